"""NVFP4 in plain torch: the decoder, and the kernel that serves layers on the CPU with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_policy.capability import DeviceKind
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict
from sm70_policy.weights import validate_nvfp4

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.capability import Device
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_DTYPE_BYTES = {ActivationDtype.FLOAT16: 2, ActivationDtype.BFLOAT16: 2, ActivationDtype.FLOAT32: 4}


def decode_nvfp4(codes: Tensor, scales: Tensor, row_factor: Tensor) -> Tensor:
    """Decode a weight.

    Args:
        codes: uint8 [N, K/2], low nibble first.
        scales: float8_e4m3fn [N, K/16].
        row_factor: float32 [N].

    Returns:
        float32 [N, K].
    """
    import torch

    table = torch.tensor(_E2M1, dtype=torch.float32, device=codes.device)
    nibbles = torch.stack((codes & 0x0F, codes >> 4), dim=-1).reshape(codes.shape[0], -1)
    values = table[nibbles.to(torch.int32)]
    factors = scales.float().repeat_interleave(NVFP4.group_size, dim=1)
    return values.mul_(factors).mul_(row_factor[:, None])


class CpuReferenceNvFp4LinearKernel:
    """Decodes the weight once at load and multiplies densely. Any shape, any activation dtype, CPU only."""

    name = "CpuReferenceNvFp4LinearKernel"
    priority = 10
    setting: str | None = None

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """Accept every well-formed NVFP4 layer on the CPU."""
        if device.kind is not DeviceKind.CPU:
            return Rejection(
                "device-kind", f"runs on the CPU only, asked for {device}", "use one of the CUDA kernels"
            )
        if problem.weight_format != NVFP4:
            return Rejection(
                "format", f"serves {NVFP4.name}, asked for {problem.weight_format.name}", "use another kernel"
            )
        if problem.k % NVFP4.group_size:
            return Rejection(
                "k-not-multiple",
                f"needs K to be a multiple of {NVFP4.group_size}, got K={problem.k}",
                "choose a tensor-parallel size that leaves such a K",
            )
        return SUPPORTED

    def resident_bytes(self, problem: LinearProblem) -> int:
        """Bytes of the dense weight."""
        return problem.n * problem.k * _DTYPE_BYTES[problem.activation]

    def prepare(
        self,
        problem: LinearProblem,
        weight: QuantizedWeight,
        settings: Settings,  # noqa: ARG002 - the contract's signature
    ) -> PreparedLinear:
        """Decode into the activation dtype.

        Raises:
            WeightError: The tensors do not form a valid weight.
        """
        import torch

        from sm70_kernels_cuda.modules import DenseLinear

        validate_nvfp4(problem, weight)
        dense = decode_nvfp4(weight.codes, weight.scales, weight.row_factor)
        return DenseLinear(dense.to(getattr(torch, problem.activation.value)))
