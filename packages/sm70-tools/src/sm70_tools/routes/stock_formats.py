"""Kinds of checkpoints for which vLLM's own choice is compared with the choice beside the suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NVFP4_MODELOPT: dict[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "kv_cache_quant_algo": None,
    "group_size": 16,
    "exclude_modules": ["lm_head"],
    "ignore": ["lm_head"],
    "producer": {"name": "modelopt", "version": "0.40"},
}

_FP4_GROUP = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": 16,
    "symmetric": True,
    "dynamic": False,
    "observer": "minmax",
}


def _compressed(
    packing: str, weights: Mapping[str, Any], activations: Mapping[str, Any] | None
) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": packing,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


NVFP4_COMPRESSED = _compressed("nvfp4-pack-quantized", _FP4_GROUP, None)

_MXFP4 = {**_FP4_GROUP, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "observer": "minmax"}


@dataclass(frozen=True)
class CheckpointFormat:
    """A kind of checkpoint.

    Attributes:
        name: Last part of the row's name.
        quantization: `quantization_config` of its config.json.
    """

    name: str
    quantization: Mapping[str, Any]


FORMATS: tuple[CheckpointFormat, ...] = (
    CheckpointFormat("nvfp4-modelopt-w4a16", {**NVFP4_MODELOPT, "quant_algo": "W4A16_NVFP4"}),
    CheckpointFormat("nvfp4-modelopt-w4a4", NVFP4_MODELOPT),
    CheckpointFormat("nvfp4-compressed-tensors-w4a16", NVFP4_COMPRESSED),
    CheckpointFormat(
        "nvfp4-compressed-tensors-w4a4",
        _compressed("nvfp4-pack-quantized", _FP4_GROUP, {**_FP4_GROUP, "dynamic": "local"}),
    ),
    CheckpointFormat("mxfp4-compressed-tensors", _compressed("mxfp4-pack-quantized", _MXFP4, None)),
    CheckpointFormat("fp8-modelopt-tensor", {**NVFP4_MODELOPT, "quant_algo": "FP8", "group_size": None}),
    CheckpointFormat(
        "fp8-compressed-tensors-channel",
        _compressed(
            "float-quantized",
            {**_FP8, "strategy": "channel", "dynamic": False},
            {**_FP8, "strategy": "token", "dynamic": True, "observer": None},
        ),
    ),
    CheckpointFormat(
        "fp8-block",
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    ),
    CheckpointFormat(
        "awq-group-128",
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    ),
    CheckpointFormat(
        "gptq-group-128",
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "desc_act": False,
            "sym": True,
            "modules_in_block_to_quantize": [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]],
        },
    ),
)
