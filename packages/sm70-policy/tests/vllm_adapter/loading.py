"""The part of the scenarios that loads weights into layers and runs them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from sm70_policy import registry
from sm70_policy.provider import QuantizedWeight
from sm70_policy.vllm import engine
from vllm_adapter import models, reference_provider, scenarios
from vllm_adapter.hosts_under_test import HOST

SHARDS = (256, 128, 128)
FACTORS = [0.1, 0.02, 0.3]


class Lines(logging.Handler):
    """Collects what the suite logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@contextmanager
def logged() -> Iterator[list[str]]:
    """The suite's log lines at INFO and above."""
    logger = logging.getLogger("vllm.sm70")
    handler = Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def config(**nvfp4: Any) -> Any:
    """An engine whose user asked for the suite, so that loading is the same on every card."""
    return scenarios.engine_config(sm70_nvfp4={"enabled": True, **nvfp4})


def filled(source: str, *, of: Any = None, **keywords: Any) -> Any:
    """A layer with random weights, ready to be loaded."""
    # Not every vLLM takes a weight-only checkpoint of ModelOpt on every card.
    layer = scenarios.build(of or config(), source, activations=source == "modelopt", **keywords)
    models.fill(layer, FACTORS)
    return layer


def numerics(source: str, *, activations: bool) -> dict[str, Any]:
    """Output of a fused layer whose shards have different global scales, against a float64 product."""
    layer = scenarios.build(config(), source, activations=activations)
    raw = models.fill(layer, FACTORS)
    with logged() as lines:
        models.load(layer)
    factors = torch.cat([torch.full((rows,), factor) for rows, factor in zip(SHARDS, FACTORS, strict=True)])
    dense = reference_provider.dequantize(QuantizedWeight(raw["codes"], raw["scales"], factors))
    x = torch.randn((3, models.K), dtype=torch.float16, generator=torch.Generator().manual_seed(1))
    wanted = x.to(torch.float64) @ dense.T
    bias = torch.ones(512, dtype=torch.float16)
    compiled = torch.compile(layer.quant_method.apply, backend="eager", fullgraph=True)
    y = layer.quant_method.apply(layer, x)
    return {
        "relative error": float((y.to(torch.float64) - wanted).abs().max() / wanted.abs().max()),
        "bias": bool(torch.equal(layer.quant_method.apply(layer, x, bias), y + bias)),
        "compiled": bool(torch.equal(compiled(layer, x), y)),
        "parameters": {name: list(item.shape) for name, item in layer.named_parameters()},
        "children": [name for name, _ in layer.named_children()],
        "log": lines,
    }


def other_layers() -> dict[str, list[int]]:
    """Merged columns and row-parallel layers load too."""
    from vllm.config import set_current_vllm_config

    shapes = {}
    layers = {"gate_up": (models.gate_up, [0.1, 0.2]), "down": (models.down, [0.1])}
    for name, (build, factors) in layers.items():
        with set_current_vllm_config(config()):
            layer = build(models.modelopt(activations=True))
        models.fill(layer, factors)
        models.load(layer)
        shapes[name] = list(layer.sm70_linear.dense.shape)
    return shapes


def reload() -> dict[str, bool]:
    """A second loading of the same layer writes into the tensors that already serve."""
    layer = filled("compressed-tensors")
    models.load(layer)
    address = layer.sm70_linear.dense.data_ptr()
    before = layer.sm70_linear.dense.clone()
    layer.scheme.create_weights(
        layer, list(SHARDS), models.K, torch.float16, lambda *_: None
    )  # vLLM restores the parameters like this when it reloads
    models.fill(layer, FACTORS, seed=7)
    models.load(layer)
    return {
        "same address": layer.sm70_linear.dense.data_ptr() == address,
        "new content": not torch.equal(layer.sm70_linear.dense, before),
    }


def at_the_facade() -> Any:
    """A layer as the facade receives it: vLLM has renamed its parameters already."""
    layer = filled("compressed-tensors")
    kernel = HOST.kernel_of(layer)
    with mock.patch.object(type(kernel), "process_weights_after_loading", return_value=None):
        models.load(layer)
    return layer


def emulation_error() -> float:
    """Error of vLLM's own emulation of an NVFP4 layer, relative to the largest output."""
    with scenarios.asking_for("emulation") as asking:
        layer = scenarios.build(asking, "modelopt", activations=True)
    raw = models.fill(layer, [1.0, 1.0, 1.0])
    models.load(layer)
    # In every block the largest is 6, so that rounding the activations to four bits changes none of them.
    x = torch.tensor([6.0, -1.0, 0.5, 0.0, 2.0, -4.0, 3.0, 1.5]).repeat(models.K // 8)[None].half()
    dense = reference_provider.dequantize(QuantizedWeight(raw["codes"], raw["scales"], torch.ones(512)))
    wanted = x.to(torch.float64) @ dense.T
    y = layer.quant_method.apply(layer, x)
    return float((y.to(torch.float64) - wanted).abs().max() / wanted.abs().max())


def _set(layer: Any, name: str, value: torch.Tensor) -> None:
    setattr(layer, name, torch.nn.Parameter(value, requires_grad=False))


def _scale_byte(layer: Any, byte: int) -> None:
    layer.weight_scale.data.view(torch.uint8)[3, 5] = byte


def _k(layer: Any, k: int) -> None:
    layer.input_size_per_partition = k


BAD: dict[str, Callable[[Any], None]] = {
    "scale dtype": lambda layer: _set(layer, "weight_scale", layer.weight_scale.data.float()),
    "scale shape": lambda layer: _set(layer, "weight_scale", layer.weight_scale.data[:, :-1].clone()),
    "nan scale": lambda layer: _scale_byte(layer, 0x7F),
    "negative scale": lambda layer: _scale_byte(layer, 0x91),
    "codes dtype": lambda layer: _set(layer, "weight", layer.weight.data.view(torch.int8)),
    "codes shape": lambda layer: _set(layer, "weight", layer.weight.data[:-1].clone()),
    "zero global scale": lambda layer: _set(layer, "weight_global_scale", torch.tensor(0.0)),
    "negative global scale": lambda layer: _set(layer, "weight_global_scale", torch.tensor(-1.0)),
    "infinite global scale": lambda layer: _set(layer, "weight_global_scale", torch.tensor(float("inf"))),
    "two global scales": lambda layer: _set(layer, "weight_global_scale", torch.tensor([1.0, 2.0])),
    "missing scale": lambda layer: delattr(layer, "weight_scale"),
    "k of another layer": lambda layer: _k(layer, 384),
}


def bad_inputs() -> dict[str, dict[str, Any]]:
    """What each malformed layer leads to, and whether it was left as it was."""
    outcome = {}
    for name, spoil in BAD.items():
        layer = at_the_facade()
        spoil(layer)
        outcome[name] = _refused(layer)
    return outcome


def _refused(layer: Any) -> dict[str, Any]:
    kept = {name: (item.data.data_ptr(), item.data.clone()) for name, item in layer.named_parameters()}
    error = scenarios.attempt(HOST.kernel_of(layer).process_weights_after_loading, layer)
    now = dict(layer.named_parameters())
    same = kept.keys() == now.keys() and all(
        now[name].data_ptr() == address and torch.equal(_bytes(now[name].data), _bytes(content))
        for name, (address, content) in kept.items()
    )
    return {"error": error, "untouched": same and not list(layer.named_children())}


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def broken_kernel() -> dict[str, Any]:
    """A kernel whose preparation fails for a reason of its own."""
    layer = at_the_facade()
    broken = reference_provider.registry_with(reference_provider.ReferenceNvFp4LinearKernel(broken=True))
    with mock.patch.object(registry, "installed", return_value=broken):
        return _refused(layer)


def unserved() -> dict[str, Any]:
    """Layers that no kernel of the suite supports: dtype, K, a disabled class, a disabled setting."""
    cases: dict[str, Callable[[], Any]] = {
        "bfloat16": lambda: filled("compressed-tensors", dtype=torch.bfloat16),
        "k": lambda: filled("compressed-tensors", k=192),
        "setting": lambda: filled("compressed-tensors", of=config(qpn2=False)),
    }
    outcome: dict[str, Any] = {}
    for name, make in cases.items():
        with HOST.stock_does_nothing():
            outcome[name] = scenarios.attempt(_served_by, make)
    with scenarios.disabled(reference_provider.NAME), HOST.stock_does_nothing():
        outcome["class"] = scenarios.attempt(_served_by, lambda: filled("modelopt"))
    return outcome


def _served_by(make: Callable[[], Any]) -> str:
    layer = make()
    models.load(layer)
    kernel = HOST.kernel_of(layer)
    return "the suite" if kernel.stock is None else HOST.name_of(kernel.stock)


def two_engines() -> dict[str, str]:
    """Layers of two engines, built alternately in one process."""
    engines = {"yes": config(), "no": scenarios.engine_config(sm70_nvfp4={"enabled": False})}
    return {
        f"{name} {turn}": scenarios.attempt(
            scenarios.kernel_name, engines[name], "modelopt", activations=True
        )
        for turn in (1, 2)
        for name in engines
    }


def reports(folder: Path) -> dict[str, Any]:
    """Routes files of two engines, of a failing engine, and of one with a path that cannot be written."""
    files = [folder / "first.json", folder / "second.json", folder / "unserved.json"]
    engines = [
        scenarios.engine_config(sm70_nvfp4={"enabled": True}, sm70_report={"routes_file": str(file)})
        for file in files
    ]
    first = [filled("compressed-tensors", of=engines[0]), filled("modelopt", of=engines[0])]
    second = filled("modelopt", of=engines[1])
    models.load(first[0])
    early = files[0].exists()
    models.load(second)
    models.load(first[1])
    with HOST.stock_does_nothing():
        scenarios.attempt(models.load, filled("modelopt", of=engines[2], dtype=torch.bfloat16))
    nowhere = scenarios.engine_config(
        sm70_nvfp4={"enabled": True}, sm70_report={"routes_file": str(folder / "missing" / "routes.json")}
    )
    with logged() as lines:
        models.load(filled("modelopt", of=nowhere))
    return {
        "early": early,
        "texts": [file.read_text() for file in files],
        "leftovers": sorted(item.name for item in folder.glob(".*.tmp")),
        "unwritable": lines,
        "copies share": _copies_share(scenarios.tiny_engine(folder)),
    }


def hashes() -> dict[str, Any]:
    """The hash under which vLLM caches compiled graphs, without layers of the suite and with them."""
    shared: dict[str, Any] = {"sm70_nvfp4": {"enabled": True}}
    found: dict[str, Any] = {"empty": scenarios.engine_config(**shared).compute_hash()}
    registries = {"first": "1", "again": "1", "newer": "2", "variable": "1"}
    for name, version in registries.items():
        kernel = reference_provider.ReferenceNvFp4LinearKernel()
        installed = reference_provider.registry_with(kernel, version=version)
        variables = {"VLLM_SM70_NVFP4_QPN2_PREFILL_MIN_M": "64"} if name == "variable" else {}
        with (
            mock.patch.object(registry, "installed", return_value=installed),
            mock.patch.dict(os.environ, variables),
        ):
            engine_config = scenarios.engine_config(**shared)
            mapping = engine_config.additional_config
            models.load(filled("modelopt", of=engine_config))
            found["user's mapping"] = mapping
            found[name] = engine_config.compute_hash()
    return found


def _copies_share(original: Any) -> bool:
    from vllm.config.utils import replace

    # As vLLM makes the configuration of a draft model.
    derived = replace(original, parallel_config=replace(original.parallel_config))
    device = engine.platform_device(_platform())
    if device is None:
        raise AssertionError("the scenarios run on a CUDA platform")
    policy = engine.policy_of(original)
    return engine.report_of(original, policy, device) is engine.report_of(derived, policy, device)


def _platform() -> Any:
    from vllm.platforms import current_platform

    return current_platform


def run(folder: Path, capability: int) -> dict[str, Any]:
    """All of the above; only what can be served is loaded where no kernel is installed."""
    outcome: dict[str, Any] = {"unserved": unserved(), "two engines": two_engines()}
    if not registry.installed().linear_kernels():
        return outcome
    for source in models.CONFIGS:
        for activations in (False, True):
            name = f"{source}/{'w4a4' if activations else 'w4a16'}"
            if HOST.knows(name, capability):
                outcome[name] = numerics(source, activations=activations)
    outcome["other layers"] = other_layers()
    outcome["reload"] = reload()
    outcome["bad inputs"] = bad_inputs()
    outcome["broken kernel"] = broken_kernel()
    outcome["hashes"] = hashes()
    outcome["reports"] = reports(folder)
    return outcome
