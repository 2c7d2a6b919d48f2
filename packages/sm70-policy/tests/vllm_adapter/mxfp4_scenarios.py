"""The part of the scenarios that concerns MXFP4: routes, gate, loading; and what engines are used for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from sm70_policy import registry
from sm70_policy.provider import QuantizedWeight
from sm70_policy.vllm import engine
from vllm_adapter import loading, models, reference_provider, scenarios
from vllm_adapter.hosts_under_test import HOST

FACADE = "Sm70MxFp4LinearKernel"


def compressed_tensors(*, activations: bool) -> Any:
    """A configuration object of vLLM for a compressed-tensors MXFP4 checkpoint."""
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    scheme = {
        "num_bits": 4,
        "type": "float",
        "strategy": "group",
        "group_size": 32,
        "symmetric": True,
        "dynamic": False,
        "observer": "minmax",
    }
    return CompressedTensorsConfig.from_config(
        {
            "quant_method": "compressed-tensors",
            "format": "mxfp4-pack-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": scheme,
                    "input_activations": {**scheme, "dynamic": True} if activations else None,
                }
            },
        }
    )


def build(config: Any, *, activations: bool = False, **keywords: Any) -> Any:
    """A fused q/k/v layer of an engine."""
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(config):
        return models.qkv(compressed_tensors(activations=activations), **keywords)


def fill(layer: Any, seed: int = 0) -> QuantizedWeight:
    """Load random codes and scales; returns copies of what was loaded."""
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(layer.named_parameters())
    codes, scales = parameters["weight_packed"].data, parameters["weight_scale"].data
    codes.copy_(torch.randint(0, 256, codes.shape, generator=generator, dtype=torch.uint8))
    scales.copy_(torch.randint(115, 122, scales.shape, generator=generator, dtype=torch.uint8))
    return QuantizedWeight(codes.clone(), scales.clone(), torch.ones(codes.shape[0]))


def config(**mxfp4: Any) -> Any:
    """An engine whose user asked for the suite."""
    return scenarios.engine_config(sm70_mxfp4={"enabled": True, **mxfp4})


def _route(of: Any, *, activations: bool = False) -> Any:
    return scenarios.attempt(lambda: HOST.name_of(HOST.kernel_of(build(of, activations=activations))))


def routes() -> dict[str, Any]:
    """Class name of the kernel under every kind of request, or the error."""
    found = {
        "default": _route(scenarios.engine_config()),
        "activations": _route(scenarios.engine_config(), activations=True),
        "requested": _route(scenarios.engine_config(sm70_mxfp4={"enabled": True})),
        "refused": _route(scenarios.engine_config(sm70_mxfp4={"enabled": False})),
        "nvfp4 refused": _route(scenarios.engine_config(sm70_nvfp4={"enabled": False})),
    }
    for backend in ("marlin", "emulation"):
        with scenarios.asking_for(backend) as asking:
            found[f"backend-{backend}"] = _route(asking)
    with scenarios.disabled(FACADE):
        found["facade-disabled"] = _route(scenarios.engine_config())
    with mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
        found["batch-invariant"] = _route(scenarios.engine_config())
    return found


def numerics() -> dict[str, Any]:
    """Output of a layer against a float64 product, and what is left of the checkpoint's tensors."""
    layer = build(config())
    raw = fill(layer)
    with loading.logged() as lines:
        models.load(layer)
    x = torch.randn((3, models.K), dtype=torch.float16, generator=torch.Generator().manual_seed(1))
    wanted = x.to(torch.float64) @ reference_provider.dequantize(raw).T
    y = layer.quant_method.apply(layer, x)
    compiled = torch.compile(layer.quant_method.apply, backend="eager", fullgraph=True)
    return {
        "relative error": float((y.to(torch.float64) - wanted).abs().max() / wanted.abs().max()),
        "bias": bool(torch.equal(layer.quant_method.apply(layer, x, torch.ones(512).half()), y + 1)),
        "compiled": bool(torch.equal(compiled(layer, x), y)),
        "parameters": {name: list(item.shape) for name, item in layer.named_parameters()},
        "log": lines,
    }


def reload() -> dict[str, bool]:
    """A second loading of the same layer writes into the tensors that already serve."""
    layer = build(config())
    fill(layer)
    models.load(layer)
    address, before = layer.sm70_linear.dense.data_ptr(), layer.sm70_linear.dense.clone()
    layer.scheme.create_weights(layer, list(loading.SHARDS), models.K, torch.float16, lambda *_: None)
    fill(layer, seed=7)
    models.load(layer)
    return {
        "same address": layer.sm70_linear.dense.data_ptr() == address,
        "new content": not torch.equal(layer.sm70_linear.dense, before),
    }


def _served(of: Any, change: Callable[[Any], None] = lambda _: None, **keywords: Any) -> str:
    layer = build(of, **keywords)
    fill(layer)
    change(layer)
    models.load(layer)
    stock = HOST.kernel_of(layer).stock
    return "the suite" if stock is None else HOST.name_of(stock)


def _nan(layer: Any) -> None:
    layer.weight_scale.data[3, 5] = 255


def unserved() -> dict[str, Any]:
    """Layers that cannot be served, and why."""
    with HOST.stock_does_nothing():
        return {
            "bfloat16": scenarios.attempt(_served, config(), dtype=torch.bfloat16),
            "k": scenarios.attempt(_served, config(), k=192),
            "setting": scenarios.attempt(_served, config(qpn2=False)),
            "nan": scenarios.attempt(_served, config(), _nan),
        }


def other_activations() -> str:
    """Who serves a layer whose user asked for activations that the suite does not compute; since 0.33."""
    from vllm.model_executor.kernels import linear

    with mock.patch.object(linear, "_resolve_linear_activation_key", return_value="int8"):
        return str(_route(config()))


class _Qpn4(reference_provider.ReferenceNvFp4LinearKernel):
    name = "Qpn4NvFp4LinearKernel"
    priority = 220
    setting = "sm70_nvfp4.qpn4"


def qpn4() -> dict[str, str]:
    """Kernel of an NVFP4 layer for engines of different use, by setting and number of requests."""
    kernels = (_Qpn4(), reference_provider.ReferenceNvFp4LinearKernel())
    found = {}
    with mock.patch.object(registry, "installed", return_value=reference_provider.registry_with(*kernels)):
        for wanted in (False, True):
            for requests in (1, 2):
                engine_config = loading.config(qpn4=wanted)
                engine_config.scheduler_config.max_num_seqs = requests
                layer = loading.filled("modelopt", of=engine_config)
                models.load(layer)
                (row,) = HOST.kernel_of(layer).selection.report.rows
                found[f"{wanted} {requests}"] = row["kernel"]
        engine_config.scheduler_config.max_num_seqs = 1
        with mock.patch.object(engine_config, "speculative_config", object()):
            found["speculation"] = str(engine.workload_of(engine_config))
    return found


def run() -> dict[str, Any]:
    """Everything that the tests ask of one process."""
    outcome: dict[str, Any] = {"routes": routes(), "ledger": scenarios.ledger_state()}
    outcome |= {"numerics": numerics(), "reload": reload(), "unserved": unserved()}
    if HOST.mx_says_activations:
        outcome["other activations"] = other_activations()
    outcome["qpn4"] = qpn4()
    outcome["minimums"] = scenarios.minimums()
    return outcome
