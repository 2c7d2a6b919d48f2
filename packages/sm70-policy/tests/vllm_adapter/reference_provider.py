"""A provider with one slow kernel, so that the adapter is tested without any kernel package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sm70_policy.capability import Device, DeviceKind, Sm
from sm70_policy.formats import MXFP4, NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import Provider, QuantizedWeight
from sm70_policy.registry import Absence, Registry
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict
from sm70_policy.weights import validate_mxfp4, validate_nvfp4

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.settings import Settings

NAME = "ReferenceNvFp4LinearKernel"
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantize(weight: QuantizedWeight) -> Tensor:
    """float64 [N, K]."""
    codes = torch.stack([weight.codes & 15, weight.codes >> 4], -1).flatten(1).long()
    values = torch.tensor(_MAGNITUDES, dtype=torch.float64)[codes & 7] * (1 - 2 * (codes >> 3))
    if weight.scales.dtype == torch.uint8:
        scales = torch.exp2(weight.scales.to(torch.float64) - 127)
    else:
        scales = weight.scales.to(torch.float64)
    blocks = scales.repeat_interleave(values.shape[1] // scales.shape[1], -1)
    return values * blocks * weight.row_factor.to(torch.float64)[:, None]


class ReferenceLinear(torch.nn.Module):
    def __init__(self, dense: Tensor) -> None:
        super().__init__()
        self.register_buffer("dense", dense)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        y = (x.to(torch.float64) @ self.dense.T).to(x.dtype)
        return y if bias is None else y + bias


class ReferenceNvFp4LinearKernel:
    name = NAME
    priority = 40
    setting = "sm70_nvfp4.qpn2"
    weight_format = NVFP4

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        if problem.weight_format != self.weight_format:
            return Rejection("format", f"serves {self.weight_format.name}", "use another")
        if problem.activation is not ActivationDtype.FLOAT16:
            return Rejection("activation-dtype", f"{problem.activation} activations", "use float16")
        if problem.k % 128:
            return Rejection("k-not-multiple", f"K={problem.k}, multiples of 128 are allowed", "use another")
        if device.kind is DeviceKind.CUDA and (device.sm is None or device.sm < Sm(7, 0)):
            return Rejection("capability", f"{device} is below 7.0", "use another card")
        return SUPPORTED

    def resident_bytes(self, problem: LinearProblem) -> int:
        return problem.n * problem.k * 8

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> Any:
        (validate_mxfp4 if self.weight_format == MXFP4 else validate_nvfp4)(problem, weight)
        if self.broken:
            raise MemoryError("no memory for the prepared weight")
        return ReferenceLinear(dequantize(weight))


class ReferenceMxFp4LinearKernel(ReferenceNvFp4LinearKernel):
    name = "ReferenceMxFp4LinearKernel"
    setting = "sm70_mxfp4.qpn2"
    weight_format = MXFP4


def kernels_of(mode: str) -> tuple[Any, ...]:
    """The kernels that are installed in a mode of `vllm_adapter.scenarios`."""
    if mode == "bare":
        return ()
    nvfp4 = ReferenceNvFp4LinearKernel()
    return (nvfp4, ReferenceMxFp4LinearKernel()) if mode == "mxfp4" else (nvfp4,)


def registry_with(*kernels: Any, version: str = "1") -> Registry:
    """What discovery would return if one package with these kernels were installed."""
    reason = Rejection("not-installed", "sm70-moe is not installed", "pip install sm70-moe")
    provider = Provider("reference", "reference-kernels", version, 1, tuple(kernels))
    return Registry((provider,), (Absence("sm70-moe", reason),))
