"""Which of the suite's own kernels real vLLM's layers get, where sm70-kernels-cuda is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from vllm_adapter.hosts_under_test import HOST, NVFP4_CHECKPOINTS

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sm70_kernels_cuda") is None, reason="needs sm70-kernels-cuda"),
]

Outcome = Callable[[int, str], dict[str, Any]]
QPN2 = {70: "Qpn2NvFp4LinearKernel", 75: "TuringQpn2NvFp4LinearKernel"}
SEVEN = pytest.mark.parametrize("capability", QPN2)
CHECKPOINTS = pytest.mark.parametrize("checkpoint", NVFP4_CHECKPOINTS)


@SEVEN
@CHECKPOINTS
def test_nvfp4(outcome: Outcome, capability: int, checkpoint: str) -> None:
    found = outcome(capability, "installed")
    assert found[checkpoint] == QPN2[capability]
    assert found[f"{checkpoint}, K=144"] == "TurboMindNvFp4LinearKernel"
    assert found[f"{checkpoint}, QPN2 disabled"] == "TurboMindNvFp4LinearKernel"
    assert found[f"{checkpoint}, QPN4"] == "Qpn4NvFp4LinearKernel"


@SEVEN
def test_mxfp4(outcome: Outcome, capability: int) -> None:
    found = outcome(capability, "installed")
    assert found["mxfp4"] == "Qpn2MxFp4LinearKernel"
    assert found["mxfp4, K=160"] == "TurboMindMxFp4LinearKernel"


@CHECKPOINTS
def test_with_all_disabled_volta_lists_every_reason(outcome: Outcome, checkpoint: str) -> None:
    error = outcome(70, "installed")[f"{checkpoint}, all disabled"]
    assert error.startswith("RouteError: No nvfp4 kernel of the suite can serve ")
    for kernel in ("Qpn4NvFp4", "Qpn2NvFp4", "TuringQpn2NvFp4", "TurboMindNvFp4"):
        assert f"{kernel}LinearKernel is listed in VLLM_DISABLED_KERNELS" in error
    assert "CpuReferenceNvFp4LinearKernel: runs on the CPU only" in error


@CHECKPOINTS
def test_with_all_disabled_turing_falls_back_to_stock(outcome: Outcome, checkpoint: str) -> None:
    assert outcome(75, "installed")[f"{checkpoint}, all disabled"] in HOST.marlin
