"""The modules of a Llama-like model, derived from its configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_policy.formats import FORMATS
from sm70_tools.errors import CheckpointError
from sm70_tools.explain.inventory import FP16_BYTES, Inventory, Module, Parameter
from sm70_tools.explain.model_config import require_size

if TYPE_CHECKING:
    from sm70_tools.explain.model_config import ModelShape
    from sm70_tools.explain.quantization import Scheme

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm", "smollm3"})

_NORMED_HEADS = frozenset({"qwen3"})
_BIASED_QKV = frozenset({"qwen2"})


def derive_inventory(shape: ModelShape, scheme: Scheme) -> Inventory:
    """Build the modules of a model of a known family.

    Raises:
        CheckpointError: The family is unknown, or the format's stored size is.
    """
    if shape.model_type not in FAMILIES:
        raise CheckpointError(
            describe(
                asked=f"the layers of a {shape.model_type or 'nameless'!s} model from its config.json alone",
                allowed=f"the families {', '.join(sorted(FAMILIES))}",
                fix="Pass the checkpoint's folder: the layers are then read from its tensors",
            )
        )
    vocab = require_size(shape.text, "vocab_size")
    modules: list[Module] = []
    parameters = [_parameter("model.embed_tokens.weight", vocab, shape.hidden)]
    for index in range(shape.layers):
        modules += _layer_modules(f"model.layers.{index}", shape, scheme)
        parameters += _layer_norms(f"model.layers.{index}", shape)
    parameters.append(_parameter("model.norm.weight", shape.hidden))
    if not shape.tied:
        modules.append(Module("lm_head", vocab, shape.hidden, None, vocab * shape.hidden * FP16_BYTES))
    return Inventory(tuple(modules), tuple(parameters))


def _layer_modules(prefix: str, shape: ModelShape, scheme: Scheme) -> list[Module]:
    intermediate = require_size(shape.text, "intermediate_size")
    hidden, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention_bias = bool(shape.text.get("attention_bias"))
    qkv_bias = attention_bias or shape.model_type in _BIASED_QKV
    mlp_bias = bool(shape.text.get("mlp_bias"))
    rows = [
        ("self_attn.q_proj", q, hidden, qkv_bias),
        ("self_attn.k_proj", kv, hidden, qkv_bias),
        ("self_attn.v_proj", kv, hidden, qkv_bias),
        ("self_attn.o_proj", hidden, q, attention_bias),
        ("mlp.gate_proj", intermediate, hidden, mlp_bias),
        ("mlp.up_proj", intermediate, hidden, mlp_bias),
        ("mlp.down_proj", hidden, intermediate, mlp_bias),
    ]
    return [_module(f"{prefix}.{name}", n, k, scheme, bias=bias) for name, n, k, bias in rows]


def _module(name: str, n: int, k: int, scheme: Scheme, *, bias: bool) -> Module:
    group = scheme.group_of(name)
    if group is None:
        return Module(name, n, k, None, n * k * FP16_BYTES, bias)
    known = FORMATS.get(group.format)
    # Of other formats the bytes of the codes alone are known here; their scales add a few percent.
    nbytes = n * k * group.bits // 8 if known is None else known.weight_bytes(n, k)
    return Module(name, n, k, group.format, nbytes, bias)


def _layer_norms(prefix: str, shape: ModelShape) -> list[Parameter]:
    norms = [
        _parameter(f"{prefix}.input_layernorm.weight", shape.hidden),
        _parameter(f"{prefix}.post_attention_layernorm.weight", shape.hidden),
    ]
    if shape.model_type in _NORMED_HEADS:
        norms += [
            _parameter(f"{prefix}.self_attn.{leaf}.weight", shape.head_dim) for leaf in ("q_norm", "k_norm")
        ]
    return norms


def _parameter(name: str, *shape: int) -> Parameter:
    elements = 1
    for size in shape:
        elements *= size
    return Parameter(name, shape, elements * FP16_BYTES)
