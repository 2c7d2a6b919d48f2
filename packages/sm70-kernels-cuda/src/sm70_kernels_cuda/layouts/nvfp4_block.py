"""The resident layout of NVFP4 weights: `nvfp4_block.cuh` reads it on the device.

The block of `fp4_block.py` with the checkpoint's E4M3 bytes as scales: 2304 bytes, the checkpoint's own
0.5625 bytes a weight. Packing is a permutation of bits: nothing is rounded, and `unpack` restores the
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.fp4_block import BLOCK_COLUMNS, BLOCK_ROWS, Fp4Block

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BLOCK_BYTES", "BLOCK_COLUMNS", "BLOCK_ROWS", "GROUP_COLUMNS", "Nvfp4Block"]

GROUP_COLUMNS = 16


@dataclass(frozen=True)
class Nvfp4Block(Fp4Block):
    """Layout of an N x K NVFP4 weight: one E4M3 byte for 16 columns."""

    name = "nvfp4_block"
    group_columns = GROUP_COLUMNS
    scale_bytes = 1

    def pack(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Permute a checkpoint's tensors into blocks.

        Args:
            codes: uint8 [N, K/2], low nibble first; any strides, any device, meta included.
            scales: float8_e4m3fn or uint8 [N, K/16].

        Returns:
            uint8 tensor of `storage_shape` on the same device.
        """
        return self.pack_stored(codes, _as_bytes(scales))

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
        """Values of E4M3 bytes, float32."""
        import torch

        return stored.view(torch.float8_e4m3fn).float()


def _as_bytes(scales: Tensor) -> Tensor:
    import torch

    return scales if scales.dtype == torch.uint8 else scales.view(torch.uint8)


BLOCK_BYTES = Nvfp4Block.block_bytes()
