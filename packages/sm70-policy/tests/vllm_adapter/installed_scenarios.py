"""The part of the scenarios that uses the kernels which are really installed: which of them each layer gets.

Their weights are prepared on the CPU; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_adapter import loading, models, mxfp4_scenarios, scenarios
from vllm_adapter.hosts_under_test import HOST, NVFP4_CHECKPOINTS

QPN2 = ("Qpn2NvFp4LinearKernel", "TuringQpn2NvFp4LinearKernel")
ALL = (*QPN2, "Qpn4NvFp4LinearKernel", "TurboMindNvFp4LinearKernel")


def _kernel(fill: Callable[[Any], Any], layer: Any) -> Any:
    fill(layer)
    with HOST.stock_does_nothing():
        models.load(layer)
    (row,) = HOST.kernel_of(layer).selection.report.rows
    return row["served_by"]


def _nvfp4(checkpoint: str, config: Any, k: int = models.K) -> Any:
    source, _, kind = checkpoint.partition("/")
    layer = scenarios.build(config, source, activations=kind == "w4a4", k=k)
    return _kernel(lambda item: models.fill(item, loading.FACTORS), layer)


def _mxfp4(k: int) -> Any:
    return _kernel(mxfp4_scenarios.fill, mxfp4_scenarios.build(scenarios.engine_config(), k=k))


def run() -> dict[str, Any]:
    """Class name of the kernel that serves each layer, or the error."""
    found: dict[str, Any] = {}
    for checkpoint in NVFP4_CHECKPOINTS:
        found[checkpoint] = _nvfp4(checkpoint, scenarios.engine_config())
        found[f"{checkpoint}, K=144"] = _nvfp4(checkpoint, scenarios.engine_config(), k=144)
        with scenarios.disabled(*QPN2):
            found[f"{checkpoint}, QPN2 disabled"] = _nvfp4(checkpoint, scenarios.engine_config())
        with scenarios.disabled(*ALL):
            found[f"{checkpoint}, all disabled"] = scenarios.attempt(
                _nvfp4, checkpoint, scenarios.engine_config()
            )
        one = scenarios.engine_config(sm70_nvfp4={"qpn4": True})
        one.scheduler_config.max_num_seqs = 1
        found[f"{checkpoint}, QPN4"] = _nvfp4(checkpoint, one)
    return found | {"mxfp4": _mxfp4(models.K), "mxfp4, K=160": _mxfp4(160)}
