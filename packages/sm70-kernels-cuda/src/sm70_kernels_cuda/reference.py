"""E2M1 weights in plain torch: the decoder, and the kernels that serve layers on the CPU with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_policy.capability import DeviceKind
from sm70_policy.formats import MXFP4, NVFP4
from sm70_policy.problem import ActivationDtype
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict
from sm70_policy.weights import validate_mxfp4, validate_nvfp4

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.capability import Device
    from sm70_policy.formats import WeightFormat
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_DTYPE_BYTES = {ActivationDtype.FLOAT16: 2, ActivationDtype.BFLOAT16: 2, ActivationDtype.FLOAT32: 4}


def decode_fp4(codes: Tensor, group_factors: Tensor, row_factor: Tensor) -> Tensor:
    """Decode a weight.

    Args:
        codes: uint8 [N, K/2], low nibble first.
        group_factors: float32 [N, groups], one for each K / groups columns.
        row_factor: float32 [N].

    Returns:
        float32 [N, K].
    """
    import torch

    table = torch.tensor(_E2M1, dtype=torch.float32, device=codes.device)
    nibbles = torch.stack((codes & 0x0F, codes >> 4), dim=-1).reshape(codes.shape[0], -1)
    values = table[nibbles.to(torch.int32)]
    factors = group_factors.repeat_interleave(nibbles.shape[1] // group_factors.shape[1], dim=1)
    return values.mul_(factors).mul_(row_factor[:, None])


def e8m0_values(scales: Tensor) -> Tensor:
    """Values of E8M0 bytes other than NaN: uint8 to float32."""
    import torch

    # By the bits of FP64: FP32's normal numbers end at 2^-126, the scales at 2^-127.
    return ((scales.to(torch.int64) + (1023 - 127)) << 52).view(torch.float64).float()


class _CpuReferenceKernel:
    """Decodes the weight once at load and multiplies densely. Any shape, any activation dtype, CPU only."""

    weight_format: WeightFormat
    priority = 10
    setting: str | None = None

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """Accept every well-formed layer of the format on the CPU."""
        if device.kind is not DeviceKind.CPU:
            return Rejection(
                "device-kind", f"runs on the CPU only, asked for {device}", "use one of the CUDA kernels"
            )
        if problem.weight_format != self.weight_format:
            return Rejection(
                "format",
                f"serves {self.weight_format.name}, asked for {problem.weight_format.name}",
                "use another kernel",
            )
        if problem.k % self.weight_format.group_size:
            return Rejection(
                "k-not-multiple",
                f"needs K to be a multiple of {self.weight_format.group_size}, got K={problem.k}",
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

        if self.weight_format == MXFP4:
            validate_mxfp4(problem, weight)
            group_factors = e8m0_values(weight.scales)
        else:
            validate_nvfp4(problem, weight)
            group_factors = weight.scales.float()
        dense = decode_fp4(weight.codes, group_factors, weight.row_factor)
        return DenseLinear(dense.to(getattr(torch, problem.activation.value)))


class CpuReferenceNvFp4LinearKernel(_CpuReferenceKernel):
    """NVFP4 on the CPU, for tests and demonstrations."""

    name = "CpuReferenceNvFp4LinearKernel"
    weight_format = NVFP4


class CpuReferenceMxFp4LinearKernel(_CpuReferenceKernel):
    """MXFP4 on the CPU, for tests and demonstrations."""

    name = "CpuReferenceMxFp4LinearKernel"
    weight_format = MXFP4
