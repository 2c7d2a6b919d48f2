"""The resident layout of MXFP4 weights: `mxfp4_block.cuh` reads it on the device.

The block of `fp4_block.py` with one byte for 32 columns: 2176 bytes, the checkpoint's own 0.53125 bytes a
weight.

A checkpoint's scale is an E8M0 byte e, 2^(e - 127). FP16 holds no such range, so a row keeps its largest
scale in the row factor, and a byte b stands for 2^(b - 30) of it. A code times such a scale is exact in FP16
for b from 6 to 30: 24 octaves below the largest. Groups of zeros alone do not count, whatever their scale:
their byte is clamped. A row whose other scales lie further apart is refused, since it could only be served
inexactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.fp4_block import Fp4Block
from sm70_policy.errors import WeightError, describe

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_BYTE = 30
"""Byte of a row's largest scale."""

OCTAVES = 24
"""How far below a row's largest scale another one may lie, in powers of two."""

_BIAS = 127
_MAGNITUDES = 0x77  # of both codes of a byte
_NO_GROUP = -1
_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Mxfp4Block(Fp4Block):
    """Layout of an N x K MXFP4 weight: one byte for 32 columns, relative to the row's largest scale."""

    name = "mxfp4_block"
    group_columns = 32
    scale_bytes = 1

    def resident(
        self, layer: str, codes: Tensor, scales: Tensor, row_factor: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The packed weight, and the row factors times each row's largest scale.

        Args:
            layer: Name for messages.
            codes: uint8 [N, K/2], low nibble first.
            scales: uint8 or float8_e8m0fnu [N, K/32]: E8M0 bytes.
            row_factor: float32 [N].

        Raises:
            WeightError: The scales of a row lie further apart than `OCTAVES`, or its factor leaves FP32.
        """
        import torch

        raw = scales if scales.dtype == torch.uint8 else scales.view(torch.uint8)
        largest = self._largest_scales(layer, codes, raw)
        factors = _factors(layer, row_factor, largest)
        return self.pack(codes, raw, largest), factors

    def pack(self, codes: Tensor, scales: Tensor, largest: Tensor) -> Tensor:
        """Permute a checkpoint's codes into blocks, and make its scales relative.

        Args:
            codes: uint8 [N, K/2], low nibble first; any strides, any device, meta included.
            scales: uint8 [N, K/32], E8M0 bytes.
            largest: int32 [N], the E8M0 byte that stands for 1 in each row.

        Returns:
            uint8 tensor of `storage_shape` on the same device.
        """
        import torch

        def relative(rows: slice) -> Tensor:
            exponents = scales[rows].to(torch.int16) - largest[rows].to(torch.int16)[:, None]
            return exponents.add_(LARGEST_BYTE).clamp_(0, LARGEST_BYTE).to(torch.uint8)

        return self._pack(codes, relative)

    def group_factors(self, stored: Tensor) -> Tensor:
        """Values of the stored bytes, float32: 1 for a row's largest scale."""
        import torch

        # The bits of FP32: exact, which a power function need not be.
        return ((stored.to(torch.int32) + (_BIAS - LARGEST_BYTE)) << 23).view(torch.float32)

    def _largest_scales(self, layer: str, codes: Tensor, scales: Tensor) -> Tensor:
        """int32 [N]: the largest E8M0 byte of a group that is not all zeros; 127 in a row of zeros."""
        import torch

        parts = []
        for first in range(0, self.n, _ROWS_AT_ONCE):
            rows = slice(first, min(first + _ROWS_AT_ONCE, self.n))
            part = scales[rows].to(torch.int32)
            groups = (codes[rows] & _MAGNITUDES).reshape(*part.shape, self.group_columns // 2)
            live = groups.any(dim=-1).bool()
            largest = part.masked_fill(~live, _NO_GROUP).amax(dim=1)
            smallest = torch.where(live, part, largest[:, None]).amin(dim=1)
            if codes.device.type != "meta":
                _check_span(layer, first, smallest, largest)
            parts.append(largest.masked_fill(largest == _NO_GROUP, _BIAS))
        return torch.cat(parts) if parts else scales.new_empty((0,), dtype=torch.int32)


def _check_span(layer: str, first: int, smallest: Tensor, largest: Tensor) -> None:
    wide = (largest - smallest) > OCTAVES
    if not bool(wide.any()):
        return
    at = int(wide.nonzero()[0])
    high, low = int(largest[at]) - _BIAS, int(smallest[at]) - _BIAS
    raise WeightError(
        describe(
            asked=f"{layer}: MXFP4 scales from 2^{low} to 2^{high} in output row {first + at}",
            allowed=f"{OCTAVES} octaves between the scales of a row, not counting groups whose codes are all "
            "zero: more is not exact in FP16",
            fix=f"Quantize the layer again with groups below 2^{high - OCTAVES} of this row set to zero, or "
            "leave the layer unquantized",
        )
    )


def _factors(layer: str, given: Tensor, largest: Tensor) -> Tensor:
    """float32 [N]: the row factors times 2^(largest - 127), exact."""
    import torch

    powers = ((largest.to(torch.int64) + (1023 - _BIAS)) << 52).view(torch.float64)
    products = given.double() * powers
    factors = products.float()
    if factors.device.type == "meta":
        return factors
    lost = factors.double() != products
    if bool(lost.any()):
        at = int(lost.nonzero()[0])
        scale = f"2^{int(largest[at]) - _BIAS}"
        raise WeightError(
            describe(
                asked=f"{layer}: global scale {float(given[at])} times an MXFP4 scale of {scale} in output "
                f"row {at}",
                allowed="products that float32 holds exactly",
                fix="The checkpoint is damaged or was written by a faulty quantizer; download or quantize it "
                "again",
            )
        )
    return factors
