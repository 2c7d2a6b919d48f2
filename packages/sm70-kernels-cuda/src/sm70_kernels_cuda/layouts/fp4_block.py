"""What the resident layouts of E2M1 weights share: blocks of 16 rows by 256 columns, and the codes' order.

A block is 2048 bytes of codes and then the scales, whose number, type and size the layout decides. The codes
are the checkpoint's own bits. The same bytes feed `mma.m8n8k4` (7.0), `m16n8k8` (7.5) and `m16n8k16` (8.0
and up), and a decoder to dense FP16:

* 128 atoms of 16 bytes at `512 c + 128 t + 16 g`: rows g and g + 8, columns `64 c + 16 t` to `+ 15`. One atom
  is what one lane multiplies with one scale a row.
* the scales in the order (t, g, chunk, row half), t counting the groups of a chunk of 64 columns.

Word i of an atom holds columns 4 i to 4 i + 3 of both rows, its bytes being (row g + 8, even columns), (row
g, even columns), (row g + 8, odd columns), (row g, odd columns). A byte holds the magnitudes of columns
4 i + e and 4 i + 2 + e in bits 0 to 2 and 3 to 5 and their signs in bits 6 and 7, which is where a half2
wants them after one shift.

Rows are padded with zeros to a multiple of 32, columns to a multiple of 256.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

BLOCK_ROWS = 16
BLOCK_COLUMNS = 256
CODE_BYTES = 2048
ROW_PADDING = 32

LAYOUT_ABI = 1
"""Number of the rules by which all layouts are written. The kernels' own is in `layout_abi.cuh`."""

_SLABS = 32
"""Packing runs over about this many slabs of rows, so that temporaries stay a few percent of the result."""


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class Fp4Block:
    """Layout of an N x K weight of E2M1 codes; the base of the layouts.

    Attributes:
        n: Output features.
        k: Input features; a multiple of `group_columns`.
    """

    n: int
    k: int

    name: ClassVar[str]
    """Name of the layout."""
    group_columns: ClassVar[int]
    """Columns that share one scale."""
    scale_bytes: ClassVar[int]
    """Bytes of a stored scale."""

    @classmethod
    def block_bytes(cls) -> int:
        """Bytes of a block."""
        return CODE_BYTES + BLOCK_ROWS * (BLOCK_COLUMNS // cls.group_columns) * cls.scale_bytes

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
        return (self.row_tiles, self.column_blocks, self.block_bytes())

    @property
    def storage_bytes(self) -> int:
        """Bytes of the packed tensor."""
        return self.row_tiles * self.column_blocks * self.block_bytes()

    def resident(
        self, layer: str, codes: Tensor, scales: Tensor, row_factor: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What stays on the device of a validated checkpoint's tensors.

        Args:
            layer: Name for messages.
            codes: uint8 [N, K/2], low nibble first.
            scales: The checkpoint's scales [N, K / `group_columns`].
            row_factor: float32 [N].

        Returns:
            The packed weight, and float32 [N]: what the kernels multiply each row with. Both are new tensors.

        Raises:
            WeightError: The layout cannot hold the weight exactly.
        """
        raise NotImplementedError

    def group_factors(self, stored: Tensor) -> Tensor:
        """Value of each stored scale: float32 of the same shape, still without the row factor."""
        raise NotImplementedError

    def pack_stored(self, codes: Tensor, stored: Tensor) -> Tensor:
        """Permute codes and stored scales into blocks: bits move, nothing is computed.

        Args:
            codes: uint8 [N, K/2], low nibble first; any strides, any device, meta included.
            stored: [N, K / `group_columns`], of any dtype with `scale_bytes` bytes.

        Returns:
            uint8 tensor of `storage_shape` on the same device.
        """
        return self._pack(codes, lambda rows: stored[rows])

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Undo `pack_stored`.

        Args:
            packed: uint8 tensor of `storage_shape`.

        Returns:
            codes uint8 [N, K/2] and stored scales [N, K / `group_columns`], both contiguous. Scales are
            uint8, or float16 where one has two bytes.
        """
        return self._unpack_codes(packed), self._unpack_scales(packed)

    def _pack(self, codes: Tensor, stored_rows: Callable[[slice], Tensor]) -> Tensor:
        packed = codes.new_empty(self.storage_shape)
        step = max(1, -(-self.row_tiles // _SLABS))
        for first in range(0, self.row_tiles, step):
            last = min(first + step, self.row_tiles)
            rows = slice(first * BLOCK_ROWS, min(last * BLOCK_ROWS, self.n))
            slab = packed[first:last]
            slab[..., :CODE_BYTES] = self._pack_codes(codes[rows], last - first)
            slab[..., CODE_BYTES:] = self._pack_scales(stored_rows(rows), last - first)
        return packed

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
        return ordered.reshape(tiles, self.column_blocks, CODE_BYTES)

    def _pack_scales(self, stored: Tensor, tiles: int) -> Tensor:
        import torch

        padded = _pad(stored, tiles * BLOCK_ROWS, self.column_blocks * BLOCK_COLUMNS // self.group_columns)
        source = padded.reshape(tiles, 2, 8, self.column_blocks, 4, -1)  # tile, half, g, block, c, t
        ordered = source.permute(0, 3, 5, 2, 4, 1).reshape(tiles, self.column_blocks, -1)
        return ordered.view(torch.uint8)

    def _unpack_codes(self, packed: Tensor) -> Tensor:
        tiles, blocks, _ = self.storage_shape
        atoms = packed[..., :CODE_BYTES].reshape(tiles, blocks, 4, 4, 8, 4, 2, 2)  # c, t, g, i, odd, half
        pairs = _byte_to_pairs(atoms)  # ..., odd, half, which of the two columns
        # bytes of a row: (i, column pair) with the even column in the low nibble
        even, odd = pairs[..., 0, :, :], pairs[..., 1, :, :]
        nibbles = even | (odd << 4)  # tiles, blocks, c, t, g, i, half (0: row g + 8), pair
        by_row = nibbles.permute(0, 6, 4, 1, 2, 3, 5, 7).flip(1)
        codes = by_row.reshape(tiles * BLOCK_ROWS, blocks * BLOCK_COLUMNS // 2)
        return codes[: self.n, : self.k // 2].contiguous()

    def _unpack_scales(self, packed: Tensor) -> Tensor:
        import torch

        tiles, blocks, _ = self.storage_shape
        raw = packed[..., CODE_BYTES:].contiguous()
        stored = raw if self.scale_bytes == 1 else raw.view(torch.float16)
        groups = BLOCK_COLUMNS // self.group_columns
        ordered = stored.reshape(tiles, blocks, groups // 4, 8, 4, 2)  # t, g, c, row half
        scales = ordered.permute(0, 5, 3, 1, 4, 2).reshape(tiles * BLOCK_ROWS, blocks * groups)
        return scales[: self.n, : self.k // self.group_columns].contiguous()


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
