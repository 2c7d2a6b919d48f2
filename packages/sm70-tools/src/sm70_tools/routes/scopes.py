"""The models of the grid: what their configuration says, and which linear layers are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Role:
    """A linear layer that every layer of its kind in the model has. Sizes are those of the whole model.

    Attributes:
        name: Last part of the layer's name.
        parent: What comes between the number of the layer and `name`.
        k: Input features.
        outputs: Output features of each projection in the layer.
        projections: Their names in the checkpoint.
        splits_inputs: Whether the ranks share K, and not N.
        head_size: Features of one head where `outputs` are heads of queries, keys and values; else 0.
    """

    name: str
    parent: str
    k: int
    outputs: tuple[int, ...]
    projections: tuple[str, ...]
    splits_inputs: bool = False
    head_size: int = 0

    @property
    def prefix(self) -> str:
        """The layer's dotted name."""
        return f"model.layers.3.{self.parent}.{self.name}"


@dataclass(frozen=True)
class Scope:
    """A model and its checkpoint.

    Attributes:
        name: Part of the row's name.
        weight_format: Format of the quantized linear layers.
        checkpoint: Which tool's quantization configuration it has; a key of `checkpoints.QUANTIZATIONS`.
        model_config: Content of config.json without the quantization.
        roles: Quantized linear layers.
        elsewhere: Quantized parts of the model that are no linear layers, with the reason for their absence.
        origin: Where the sizes are from.
    """

    name: str
    weight_format: str
    checkpoint: str
    model_config: Mapping[str, Any]
    roles: tuple[Role, ...]
    elsewhere: Mapping[str, str]
    origin: str


def _attention(hidden: int, heads: int, kv_heads: int, head_size: int) -> tuple[Role, ...]:
    """Attention whose queries come with a gate of the same size, as in Qwen3-Next and Qwen3.5."""
    return (
        Role(
            "qkv_proj",
            "self_attn",
            hidden,
            (2 * heads * head_size, kv_heads * head_size, kv_heads * head_size),
            ("q_proj", "k_proj", "v_proj"),
            head_size=head_size,
        ),
        Role("o_proj", "self_attn", heads * head_size, (hidden,), ("o_proj",), splits_inputs=True),
    )


def _delta_net(hidden: int, keys: int, values: int) -> tuple[Role, ...]:
    """The large projections of a gated delta net, for `keys` and `values` features."""
    return (
        Role(
            "in_proj_qkvz",
            "linear_attn",
            hidden,
            (keys, keys, values, values),
            ("in_proj_q", "in_proj_k", "in_proj_v", "in_proj_z"),
        ),
        Role("out_proj", "linear_attn", values, (hidden,), ("out_proj",), splits_inputs=True),
    )


def _mlp(parent: str, hidden: int, intermediate: int) -> tuple[Role, ...]:
    return (
        Role("gate_up_proj", parent, hidden, (intermediate, intermediate), ("gate_proj", "up_proj")),
        Role("down_proj", parent, intermediate, (hidden,), ("down_proj",), splits_inputs=True),
    )


# The module of Qwen3.5 in vLLM 0.33 needs torchvision. That of Qwen3-Next takes the same words for all that
# an engine's configuration is made of.
_HYBRID: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 262144,
    "torch_dtype": "float16",
}

DENSE_27B = Scope(
    name="27b-nvfp4",
    weight_format="nvfp4",
    checkpoint="compressed-tensors",
    model_config={
        **_HYBRID,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "num_experts": 0,
        "vocab_size": 248320,
    },
    roles=(*_attention(5120, 24, 4, 256), *_delta_net(5120, 2048, 6144), *_mlp("mlp", 5120, 17408)),
    elsewhere={},
    origin="sizes of Qwen3.5-27B; the shapes of its ranks are public",
)

FLASH_NEXT = Scope(
    name="flash-next-modelopt",
    weight_format="nvfp4",
    checkpoint="modelopt",
    model_config={
        **_HYBRID,
        "hidden_size": 2560,
        "intermediate_size": 640,
        "moe_intermediate_size": 640,
        "shared_expert_intermediate_size": 640,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 32,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "vocab_size": 151936,
    },
    roles=(
        *_attention(2560, 16, 2, 256),
        *_delta_net(2560, 2048, 4096),
        *_mlp("mlp.shared_expert", 2560, 640),
    ),
    elsewhere={"mlp.experts": "a mixture of experts; no installed package has kernels of the category moe"},
    origin="hidden 2560, 512 experts of 640 are public; attention is assumed to be as in Qwen3-Next",
)

MOE_35B_AWQ = Scope(
    name="35b-awq",
    weight_format="awq",
    checkpoint="awq",
    model_config={},
    roles=(),
    elsewhere={},
    origin="not loaded by any category that has kernels today",
)

SCOPES: tuple[Scope, ...] = (FLASH_NEXT, MOE_35B_AWQ, DENSE_27B)


def find_scope(name: str) -> Scope:
    """The scope called `name`, which must be one of SCOPES."""
    return next(scope for scope in SCOPES if scope.name == name)


def why_not(scope: Scope, weight_format: str) -> str | None:
    """Why a scope has no rows in a category of kernels for one format; None when it has."""
    if scope.weight_format == weight_format:
        return None
    return f"the scope's checkpoint is {scope.weight_format}, which kernels of {weight_format} do not read"
