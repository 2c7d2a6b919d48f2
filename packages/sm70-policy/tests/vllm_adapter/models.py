"""Real vLLM linear layers with NVFP4 weights, built the way vLLM builds them."""

from __future__ import annotations

from typing import Any

import torch

K = 256
"""Input features; a multiple of 128."""


def compressed_tensors(*, activations: bool) -> Any:
    """A configuration object of vLLM for a compressed-tensors NVFP4 checkpoint."""
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    scheme = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": 16,
        "symmetric": True,
        "dynamic": False,
        "observer": "minmax",
    }
    return CompressedTensorsConfig.from_config(
        {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": scheme,
                    "input_activations": {**scheme, "dynamic": "local"} if activations else None,
                }
            },
        }
    )


def modelopt(*, activations: bool) -> Any:
    """A configuration object of vLLM for a ModelOpt NVFP4 checkpoint."""
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config

    return ModelOptNvFp4Config.from_config(
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4" if activations else "W4A16_NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": 16,
            "exclude_modules": ["lm_head"],
            "ignore": ["lm_head"],
            "producer": {"name": "modelopt", "version": "0.40"},
        }
    )


CONFIGS = {"compressed-tensors": compressed_tensors, "modelopt": modelopt}


def qkv(config: Any, k: int = K, dtype: torch.dtype = torch.float16) -> Any:
    """A fused q/k/v projection: N = 256 + 128 + 128."""
    from vllm.model_executor.layers.linear import QKVParallelLinear

    return QKVParallelLinear(
        k, 64, 4, 2, bias=False, params_dtype=dtype, quant_config=config,
        prefix="model.layers.0.attn.qkv_proj", disable_tp=True,
    )  # fmt: skip


def gate_up(config: Any) -> Any:
    """A fused gate/up projection: N = 512 + 512."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    return MergedColumnParallelLinear(
        K, [512, 512], bias=False, params_dtype=torch.float16, quant_config=config,
        prefix="model.layers.0.mlp.gate_up_proj", disable_tp=True,
    )  # fmt: skip


def down(config: Any) -> Any:
    """A row-parallel projection: N = 256."""
    from vllm.model_executor.layers.linear import RowParallelLinear

    return RowParallelLinear(
        512, 256, bias=False, params_dtype=torch.float16, quant_config=config,
        prefix="model.layers.0.mlp.down_proj", disable_tp=True,
    )  # fmt: skip


def fill(layer: Any, factors: list[float], seed: int = 0) -> dict[str, torch.Tensor]:
    """Load random codes and scales, and one global scale per shard; returns copies of what was loaded."""
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(layer.named_parameters())
    codes = parameters.get("weight_packed", parameters.get("weight"))
    if codes is None:
        raise AssertionError(f"no codes among {sorted(parameters)}")
    codes.data.copy_(torch.randint(0, 256, codes.shape, generator=generator, dtype=torch.uint8))
    scales = parameters["weight_scale"]
    scales.data.copy_((torch.rand(scales.shape, generator=generator) + 0.5).to(torch.float8_e4m3fn))
    multipliers = torch.tensor(factors, dtype=torch.float32)
    if "weight_scale_2" in parameters:
        parameters["weight_scale_2"].data.copy_(multipliers)
    else:
        parameters["weight_global_scale"].data.copy_(1.0 / multipliers)
    for name in ("input_global_scale", "input_scale"):
        if name in parameters:
            parameters[name].data.fill_(1.0)
    return {"codes": codes.data.clone(), "scales": scales.data.clone(), "multipliers": multipliers}


def load(layer: Any) -> None:
    """What vLLM's loader does once the weights of a layer are there."""
    layer.quant_method.process_weights_after_loading(layer)
