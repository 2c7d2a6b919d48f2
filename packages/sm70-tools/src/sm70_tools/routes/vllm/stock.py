"""Rows of the category stock, asked of vLLM for one card, with the suite or without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sm70_tools.routes.scopes import Role
from sm70_tools.routes.stock_formats import FORMATS, CheckpointFormat
from sm70_tools.routes.vllm import layers
from sm70_tools.routes.vllm.grid import refusal

if TYPE_CHECKING:
    from sm70_tools.routes.cards import RoutedCard
    from sm70_tools.routes.vllm.engines import Engines

_MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 32768,
    "torch_dtype": "float16",
}

_LAYER = Role("qkv_proj", "self_attn", 512, (512, 256, 256), ("q_proj", "k_proj", "v_proj"), head_size=64)


def rows_of(card: RoutedCard, engines: Engines, wanted: frozenset[str]) -> dict[str, str]:
    """The route of each wanted row on one card."""
    return {
        row_id: _attempt(item, engines)
        for item in FORMATS
        if (row_id := f"stock/{card.key}/{item.name}") in wanted
    }


def _attempt(item: CheckpointFormat, engines: Engines) -> str:
    try:
        return _route(item, engines)
    except Exception as error:  # noqa: BLE001 - a refusal is a route too
        return refusal(error)


def _route(item: CheckpointFormat, engines: Engines) -> str:
    """What serves a fused q/k/v layer, N = 1024 and K = 512, after all gates of vLLM."""
    config = engines.for_format(item.name, item.quantization, _MODEL)
    layer = layers.build(_LAYER, config, _LAYER.prefix)
    reason = ""
    try:
        layers.load(_LAYER, layer, (1.0,) * len(_LAYER.outputs))
        layer.quant_method.process_weights_after_loading(layer)
    except Exception as error:  # noqa: BLE001 - vLLM's own kernels call compiled code that is not here
        reason = refusal(error)
    told = layers.told(config, _LAYER.prefix)
    if told is None:
        return _name_of_stock(layer)
    return str(told["served_by"] or reason)


def _name_of_stock(layer: Any) -> str:
    """Class name of the kernel that vLLM gave to a layer, or of the method that does the work itself."""
    owners = [owner for owner in (getattr(layer, "scheme", None), layer.quant_method) if owner is not None]
    for owner in owners:
        for name in ("kernel", "fp8_linear", "linear_kernel"):
            kernel = getattr(owner, name, None)
            if kernel is not None and not isinstance(kernel, str):  # a text is what the suite's adapter noted
                return type(kernel).__name__
    backend = getattr(owners[0], "backend", None)
    name = type(owners[0]).__name__
    return name if backend is None else f"{name} with {getattr(backend, 'value', backend)}"
