"""The one resident layout of NVFP4 weights: writer and inverse. `nvfp4_block.cuh` reads it on the device.

A block is 16 rows (output features) by 256 columns (input features) in 2304 bytes, the checkpoint's own
0.5625 bytes a weight. The same bytes feed `mma.m8n8k4` (7.0), `m16n8k8` (7.5) and `m16n8k16` (8.0 and up),
and a decoder to dense FP16:

* 128 atoms of 16 bytes at `512 c + 128 t + 16 g`: rows g and g + 8, columns `64 c + 16 t` to `+ 15`. One atom
  is what one lane multiplies with one scale a row.
* the scales at `2048 + 64 t + 8 g`: E4M3 bytes of chunks 0 to 3, rows g and g + 8 in turn.

Word i of an atom holds columns 4 i to 4 i + 3 of both rows, its bytes being (row g + 8, even columns), (row
g, even columns), (row g + 8, odd columns), (row g, odd columns). A byte holds the magnitudes of columns
4 i + e and 4 i + 2 + e in bits 0 to 2 and 3 to 5 and their signs in bits 6 and 7, which is where a half2
wants them after one shift. Packing is a permutation of bits: nothing is rounded, and `unpack` restores the
checkpoint.

Rows are padded with zeros to a multiple of 32, columns to a multiple of 256.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_ROWS = 16
BLOCK_COLUMNS = 256
BLOCK_BYTES = 2304
GROUP_COLUMNS = 16
ROW_PADDING = 32

_CODE_BYTES = 2048
_SLABS = 32
"""Packing runs over about this many slabs of rows, so that temporaries stay a few percent of the result."""


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class Nvfp4Block:
    """Layout of an N x K NVFP4 weight.

    Attributes:
        n: Output features.
        k: Input features; a multiple of 16.
    """

    n: int
    k: int

    name = "nvfp4_block"

    @property
    def row_tiles(self) -> int:
        """Blocks along N."""
        return _round_up(self.n, ROW_PADDING) // BLOCK_ROWS

    @property
    def column_blocks(self) -> int:
        """Blocks along K."""
        return _round_up(self.k, BLOCK_COLUMNS) // BLOCK_COLUMNS

    @property
    def storage_shape(self) -> tuple[int, int, int]:
        """Shape of the packed uint8 tensor: row tiles, column blocks, bytes of a block."""
        return (self.row_tiles, self.column_blocks, BLOCK_BYTES)

    @property
    def storage_bytes(self) -> int:
        """Bytes of the packed tensor."""
        return self.row_tiles * self.column_blocks * BLOCK_BYTES

    def pack(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Permute a checkpoint's tensors into blocks.

        Args:
            codes: uint8 [N, K/2], low nibble first; any strides, any device, meta included.
            scales: float8_e4m3fn or uint8 [N, K/16].

        Returns:
            uint8 tensor of `storage_shape` on the same device.
        """
        import torch

        raw_scales = scales if scales.dtype == torch.uint8 else scales.view(torch.uint8)
        packed = codes.new_empty(self.storage_shape)
        step = max(1, -(-self.row_tiles // _SLABS))
        for first in range(0, self.row_tiles, step):
            last = min(first + step, self.row_tiles)
            rows = slice(first * BLOCK_ROWS, min(last * BLOCK_ROWS, self.n))
            slab = packed[first:last]
            slab[..., :_CODE_BYTES] = self._pack_codes(codes[rows], last - first)
            slab[..., _CODE_BYTES:] = self._pack_scales(raw_scales[rows], last - first)
        return packed

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Undo `pack`.

        Args:
            packed: uint8 tensor of `storage_shape`.

        Returns:
            codes uint8 [N, K/2] and scales uint8 [N, K/16] (E4M3 bytes), both contiguous.
        """
        tiles, blocks, _ = self.storage_shape
        atoms = packed[..., :_CODE_BYTES].reshape(tiles, blocks, 4, 4, 8, 4, 2, 2)  # c, t, g, i, odd, half
        pairs = _byte_to_pairs(atoms)  # ..., odd, half, which of the two columns
        # bytes of a row: (i, column pair) with the even column in the low nibble
        even, odd = pairs[..., 0, :, :], pairs[..., 1, :, :]
        nibbles = even | (odd << 4)  # tiles, blocks, c, t, g, i, half (0: row g + 8), pair
        by_row = nibbles.permute(0, 6, 4, 1, 2, 3, 5, 7).flip(1)
        codes = by_row.reshape(tiles * BLOCK_ROWS, blocks * BLOCK_COLUMNS // 2)
        scale_bytes = packed[..., _CODE_BYTES:].reshape(tiles, blocks, 4, 8, 4, 2)  # t, g, c, row half
        groups = blocks * BLOCK_COLUMNS // GROUP_COLUMNS
        scales = scale_bytes.permute(0, 5, 3, 1, 4, 2).reshape(tiles * BLOCK_ROWS, groups)
        return (
            codes[: self.n, : self.k // 2].contiguous(),
            scales[: self.n, : self.k // GROUP_COLUMNS].contiguous(),
        )

    def _pack_codes(self, codes: Tensor, tiles: int) -> Tensor:
        padded = _pad(codes, tiles * BLOCK_ROWS, self.column_blocks * BLOCK_COLUMNS // 2)
        # tile, row half (0: row g), g, block, c, t, i, column pair
        source = padded.reshape(tiles, 2, 8, self.column_blocks, 4, 4, 4, 2)
        first, second = source[..., 0], source[..., 1]
        even = _pairs_to_byte(first & 0x0F, second & 0x0F)
        odd = _pairs_to_byte(first >> 4, second >> 4)
        import torch

        words = torch.stack((even, odd), dim=-1).flip(1)  # tile, half (0: row g + 8), g, block, c, t, i, odd
        ordered = words.permute(0, 3, 4, 5, 2, 6, 7, 1)
        return ordered.reshape(tiles, self.column_blocks, _CODE_BYTES)

    def _pack_scales(self, scales: Tensor, tiles: int) -> Tensor:
        padded = _pad(scales, tiles * BLOCK_ROWS, self.column_blocks * BLOCK_COLUMNS // GROUP_COLUMNS)
        source = padded.reshape(tiles, 2, 8, self.column_blocks, 4, 4)  # tile, half, g, block, c, t
        return source.permute(0, 3, 5, 2, 4, 1).reshape(tiles, self.column_blocks, BLOCK_BYTES - _CODE_BYTES)


def _pad(source: Tensor, rows: int, columns: int) -> Tensor:
    if source.shape == (rows, columns):
        return source
    padded = source.new_zeros((rows, columns))
    padded[: source.shape[0], : source.shape[1]] = source
    return padded


def _pairs_to_byte(first: Tensor, second: Tensor) -> Tensor:
    """Byte of two codes two columns apart: magnitudes in bits 0-2 and 3-5, signs in bits 6 and 7."""
    return (first & 7) | ((second & 7) << 3) | ((first & 8) << 3) | ((second & 8) << 4)


def _byte_to_pairs(byte: Tensor) -> Tensor:
    import torch

    first = (byte & 7) | ((byte >> 3) & 8)
    second = ((byte >> 3) & 7) | ((byte >> 4) & 8)
    return torch.stack((first, second), dim=-1)
