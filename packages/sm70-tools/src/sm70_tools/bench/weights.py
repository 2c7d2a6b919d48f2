"""Random weights, and the float64 oracle that results are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_tools.bench.cases import GROUP_COLUMNS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sm70_tools.bench.cases import Shape

DecodeRows = Callable[[slice], "Tensor"]
"""Decodes some rows of a weight to float64 [rows, K]."""

_SLAB_ROWS = 2048
"""Rows that the oracle decodes at a time, so that it fits beside the weights on a small card."""

_E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Nvfp4Weight:
    """A weight as a checkpoint holds it.

    Attributes:
        codes: uint8 [N, K/2], low nibble first.
        scales: float8_e4m3fn [N, K/16].
        factor: The global scale, exact in FP32.
    """

    codes: Tensor
    scales: Tensor
    factor: float

    @classmethod
    def random(cls, shape: Shape, generator: torch.Generator) -> Nvfp4Weight:
        """Draw codes over all values, scales of 0.5 to 2.5, and a global scale of about 0.01."""
        import torch

        device = generator.device
        size = (shape.n, shape.k // 2)
        codes = torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=generator)
        drawn = torch.rand((shape.n, shape.k // GROUP_COLUMNS), device=device, generator=generator)
        factor = 0.005 + 0.01 * torch.rand((), device=device, generator=generator)
        return cls(codes, (drawn * 2 + 0.5).to(torch.float8_e4m3fn), float(factor))

    def decode_rows(self, rows: slice) -> Tensor:
        """Decode some rows to float64, without the kernels' packages."""
        import torch

        codes = self.codes[rows].to(torch.int64)
        table = torch.tensor(_E2M1_MAGNITUDES, dtype=torch.float64, device=codes.device)
        values = codes.new_empty((codes.shape[0], 2 * codes.shape[1]), dtype=torch.float64)
        for first, nibble in ((0, codes % 16), (1, codes // 16)):
            sign = 1.0 - 2.0 * (nibble // 8).double()
            values[:, first::2] = table[nibble % 8] * sign
        grouped = values.view(codes.shape[0], -1, GROUP_COLUMNS)
        return (grouped * (self.scales[rows].double() * self.factor)[..., None]).view(codes.shape[0], -1)


def relative_error(x: Tensor, y: Tensor, decode_rows: DecodeRows) -> float:
    """Relative error of a product in the Frobenius norm; NaN where y holds one.

    Args:
        x: [M, K].
        y: [M, N], to be judged.
        decode_rows: The weight, exactly.
    """
    exact = x.double()
    wrong_squared, exact_squared = 0.0, 0.0
    for first in range(0, y.shape[1], _SLAB_ROWS):
        rows = slice(first, min(first + _SLAB_ROWS, y.shape[1]))
        expected = exact @ decode_rows(rows).t()
        wrong_squared += float((y[:, rows].double() - expected).square().sum())
        exact_squared += float(expected.square().sum())
    return float((wrong_squared / exact_squared) ** 0.5)
