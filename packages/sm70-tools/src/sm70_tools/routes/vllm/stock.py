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
        row_id: _attempt(item, card, engines)
        for item in FORMATS
        if (row_id := f"stock/{card.key}/{item.name}") in wanted
    }


def _attempt(item: CheckpointFormat, card: RoutedCard, engines: Engines) -> str:
    try:
        return _route(item, card, engines)
    except Exception as error:  # noqa: BLE001 - a refusal is a route too
        return refusal(error)


def _route(item: CheckpointFormat, card: RoutedCard, engines: Engines) -> str:
    """Class name of the kernel of a fused q/k/v layer, N = 1024 and K = 512, after all gates of vLLM."""
    config = engines.for_format(item.name, item.quantization, _MODEL)
    layer = layers.build(_LAYER, config, _LAYER.prefix)
    kernel = kernel_of(layer)
    if kernel is None:
        return type(layer.quant_method).__name__
    if not _is_facade(kernel):
        return type(kernel).__name__
    layers.load(_LAYER, layer, (1.0,) * len(_LAYER.outputs))
    layer.quant_method.process_weights_after_loading(layer)
    return str(layers.observed(layer, config, card, ())["class"])


def kernel_of(layer: Any) -> Any:
    """The kernel object that vLLM gave to a layer; None where the method itself does the work."""
    for owner in (getattr(layer, "scheme", None), layer.quant_method):
        for name in ("kernel", "fp8_linear", "linear_kernel"):
            kernel = getattr(owner, name, None)
            if kernel is not None:
                return kernel
    return None


def _is_facade(kernel: Any) -> bool:
    from sm70_policy.vllm.facade import Facade

    return isinstance(kernel, Facade)
