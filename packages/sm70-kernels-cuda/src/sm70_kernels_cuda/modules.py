"""What `prepare` returns: modules that hold the one resident copy of a weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sm70_kernels_cuda import ops  # noqa: F401 - registers the operators that forward calls


class PackedLinear(nn.Module):
    """A packed NVFP4 weight, multiplied by `sm70::nvfp4_linear`.

    Attributes:
        weight: uint8, `nvfp4_block` or `nvfp4_half_block` layout.
        row_factor: float32 [N].
    """

    _operator = torch.ops.sm70.nvfp4_linear

    def __init__(
        self, weight: Tensor, row_factor: Tensor, k: int, *, qpn2: bool, dense_rows: int = 0
    ) -> None:
        """Take ownership of the packed weight.

        Args:
            weight: uint8, in a layout of the operator that `forward` calls.
            row_factor: float32 [N].
            k: Input features.
            qpn2: Whether the QPN2 kernels may multiply it.
            dense_rows: Rows from which on a dense GEMM does; 0 leaves it to the card.
        """
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.row_factor = nn.Parameter(row_factor, requires_grad=False)
        self.k = k
        self.qpn2 = qpn2
        self.dense_rows = dense_rows

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ w^T + bias: FP16 [..., K] to FP16 [..., N]."""
        held = (
            self._parameters
        )  # `self.weight` would ask `Module.__getattr__`, which costs as much as a check
        result: Tensor = self._operator(
            x, held["weight"], held["row_factor"], bias, self.k, self.qpn2, self.dense_rows
        )
        return result

    def gated(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return silu(gate) * up of a merged projection, whose first N / 2 outputs are the gate.

        Args:
            x: FP16 [..., K].
            bias: FP16 [N] or None.

        Returns:
            FP16 [..., N / 2].

        Raises:
            ProblemError: N is no multiple of 64.
        """
        result: Tensor = torch.ops.sm70.nvfp4_gated_linear(
            x, self.weight, self.row_factor, bias, self.k, self.qpn2, self.dense_rows
        )
        return result


class PackedMxfp4Linear(PackedLinear):
    """A packed MXFP4 weight, multiplied by `sm70::mxfp4_linear`.

    Attributes:
        weight: uint8, `mxfp4_block` layout.
        row_factor: float32 [N]: each row's largest scale.
    """

    _operator = torch.ops.sm70.mxfp4_linear

    def gated(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return silu(gate) * up of a merged projection: FP16 [..., K] to FP16 [..., N / 2]."""
        result: Tensor = torch.ops.sm70.mxfp4_gated_linear(
            x, self.weight, self.row_factor, bias, self.k, self.qpn2, self.dense_rows
        )
        return result


class DenseLinear(nn.Module):
    """A weight decoded to the activation dtype.

    Attributes:
        weight: [N, K].
    """

    def __init__(self, weight: Tensor) -> None:
        """Take ownership of the dense weight."""
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ w^T + bias: [..., K] to [..., N]."""
        return nn.functional.linear(x, self.weight, bias)
