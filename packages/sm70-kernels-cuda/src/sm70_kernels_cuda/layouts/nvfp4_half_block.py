"""NVFP4 weights with the scales widened to FP16: `nvfp4_half_block.cuh` reads the layout on the device.

The block of `fp4_block.py` with `scale * 2^7` as FP16: 2560 bytes, a ninth more than `nvfp4_block`. Every
E4M3 number times 2^7 is an FP16 number, so nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.fp4_block import Fp4Block

if TYPE_CHECKING:
    from torch import Tensor

SCALE_FACTOR = 128.0
"""By which the decoder wants scales multiplied."""


@dataclass(frozen=True)
class Nvfp4HalfBlock(Fp4Block):
    """Layout of an N x K NVFP4 weight: one FP16 number for 16 columns."""

    name = "nvfp4_half_block"
    group_columns = 16
    scale_bytes = 2

    def pack(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Permute a checkpoint's codes into blocks, and widen its scales.

        Args:
            codes: uint8 [N, K/2], low nibble first; any strides, any device, meta included.
            scales: float8_e4m3fn or uint8 [N, K/16]; a sign, which only a zero may have, is dropped.

        Returns:
            uint8 tensor of `storage_shape` on the same device.
        """
        import torch

        raw = scales if scales.dtype == torch.uint8 else scales.view(torch.uint8)
        return self._pack(
            codes, lambda rows: (raw[rows] & 0x7F).view(torch.float8_e4m3fn).half().mul_(SCALE_FACTOR)
        )

    def resident(
        self,
        layer: str,  # noqa: ARG002 - the base's signature
        codes: Tensor,
        scales: Tensor,
        row_factor: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The packed weight and a copy of the row factors: this layout holds every weight."""
        return self.pack(codes, scales), row_factor.clone()

    def group_factors(self, stored: Tensor) -> Tensor:
        """Values of the stored FP16 numbers, float32."""
        return stored.float() / SCALE_FACTOR
