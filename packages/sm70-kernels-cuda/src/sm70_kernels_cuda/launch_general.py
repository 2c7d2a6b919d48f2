"""Launches of the general NVFP4 kernel: pure arithmetic, tested without a card.

The names, shapes and shared memory mirror csrc/general_nvfp4.cuh and include/sm70/gemm/general_nvfp4.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import AMPERE_ATOM, TOKEN_TILE, TURING_ATOM, VOLTA_ATOM, Atom, Launch
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch_cluster import Card

_CHUNK_COLUMNS = 64
_SLABS_PER_BLOCK = BLOCK_COLUMNS // _CHUNK_COLUMNS
_PIECE_BYTES = 16
_WARPS = 8
"""Warps of a block in whose terms the times of `WarpShape` are given; some have half of them."""


@dataclass(frozen=True)
class WarpShape:
    """What a warp does with one atom: `sm70::general::WarpShape`, and how long it takes.

    Attributes:
        rows: Output columns of a warp.
        partial_pitch: Floats between the partial sums of two tokens.
        pass_tiles: Most token tiles of one pass through the final sum.
        resident_tiles: Most token tiles for which two blocks fit the registers of a multiprocessor.
        multiprocessor_bytes: Shared memory of a multiprocessor, as the compiler counts on it.
        decode_time: Time to decode the weights of a slab, in times of multiplying one token tile with them.
        least_time: Shortest time of a slab, the latency of its loads, in the same unit.
        overhead_slabs: What starting and ending a block of threads costs, in slabs.
        one_block_tiles: Up to so many token tiles, one block takes all rows.
        most_tiles: Most token tiles of a block that pay.
        variants: The compiled kernels that the choice considers.
    """

    rows: int
    partial_pitch: int
    pass_tiles: int
    resident_tiles: int
    multiprocessor_bytes: int
    decode_time: float
    least_time: float
    overhead_slabs: int
    one_block_tiles: int
    most_tiles: int
    variants: tuple[GeneralVariant, ...]


def warp_shape(atom: Atom) -> WarpShape:
    """The kernel's use of an atom."""
    return _WARP_SHAPES[atom.name]


@dataclass(frozen=True)
class GeneralVariant:
    """One compiled kernel.

    Attributes:
        token_tiles: Tiles of 8 rows of x of a block of threads.
        warps_n: Warps of a block that share a strip of output columns.
        warps_k: Warps of a block that share K.
    """

    token_tiles: int
    warps_n: int
    warps_k: int

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"general_nvfp4_t{self.token_tiles}_n{self.warps_n}_k{self.warps_k}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps_n * self.warps_k * 32

    @property
    def rows(self) -> int:
        """Rows of x of a block."""
        return self.token_tiles * TOKEN_TILE

    def strip(self, atom: Atom) -> int:
        """Output columns of a block."""
        return self.warps_n * warp_shape(atom).rows

    def shared_bytes(self, atom: Atom) -> int:
        """Dynamic shared memory: two slabs of x, and in the end the partial sums in their place."""
        slab = self.rows * (self.warps_k * _CHUNK_COLUMNS * 2 + _PIECE_BYTES)
        shape = warp_shape(atom)
        pass_tokens = self.token_tiles // _divide_up(self.token_tiles, shape.pass_tiles) * TOKEN_TILE
        partials = self.warps_n * self.warps_k * pass_tokens * shape.partial_pitch * 4
        return max(2 * slab, partials)

    def resident_blocks(self, atom: Atom) -> int:
        """Blocks that the compiler keeps registers free for on one multiprocessor."""
        shape = warp_shape(atom)
        blocks_of_8 = 2 if self.token_tiles <= shape.resident_tiles else 1
        by_registers = blocks_of_8 * _WARPS // (self.warps_n * self.warps_k)
        return max(1, min(by_registers, shape.multiprocessor_bytes // self.shared_bytes(atom)))


GENERAL_VARIANTS: tuple[GeneralVariant, ...] = (
    GeneralVariant(1, 1, 8),
    GeneralVariant(2, 1, 4),
    GeneralVariant(2, 1, 8),
    GeneralVariant(2, 2, 4),
    GeneralVariant(3, 1, 8),
    GeneralVariant(3, 2, 4),
    GeneralVariant(4, 1, 8),
    GeneralVariant(4, 2, 4),
    GeneralVariant(4, 4, 2),
    GeneralVariant(6, 2, 4),
    GeneralVariant(6, 4, 2),
    GeneralVariant(8, 2, 4),
    GeneralVariant(8, 4, 2),
)

# For few rows on 7.x: compiled for every card, measured on none.
_FEW_ROWS = {
    GeneralVariant(2, 1, 4),
    GeneralVariant(3, 1, 8),
    GeneralVariant(3, 2, 4),
    GeneralVariant(4, 1, 8),
}

# Times of VOLTA_ATOM and TURING_ATOM: those of 360 with which the choice comes closest to the best by the
# model of docs/roofline.md, for one on a V100, for the other on RTX 8000 and T4, 18 shapes, 9 to 64 rows:
# under 1 % more time on average, predicted. Those of AMPERE_ATOM are estimates from instruction counts and
# issue rates. Its most_tiles is measured on an H200: at 64 and 128 rows, blocks of 4 tiles beat those of 6
# and 8 on most shapes.
_WARP_SHAPES = {
    VOLTA_ATOM.name: WarpShape(
        rows=64,
        partial_pitch=65,
        pass_tiles=2,
        resident_tiles=1,
        multiprocessor_bytes=96 * 1024,
        decode_time=0.4,
        least_time=1.5,
        overhead_slabs=1,
        one_block_tiles=1,
        most_tiles=8,
        variants=GENERAL_VARIANTS,
    ),
    TURING_ATOM.name: WarpShape(
        rows=32,
        partial_pitch=36,
        pass_tiles=2,
        resident_tiles=3,
        multiprocessor_bytes=64 * 1024,
        decode_time=0.4,
        least_time=3,
        overhead_slabs=2,
        one_block_tiles=1,
        most_tiles=8,
        variants=GENERAL_VARIANTS,
    ),
    AMPERE_ATOM.name: WarpShape(
        rows=32,
        partial_pitch=36,
        pass_tiles=4,
        resident_tiles=4,
        multiprocessor_bytes=164 * 1024,
        decode_time=2,
        least_time=7,
        overhead_slabs=2,
        one_block_tiles=4,
        most_tiles=4,
        variants=tuple(item for item in GENERAL_VARIANTS if item not in _FEW_ROWS),
    ),
}


def choose_general(m: int, n: int, k: int, atom: Atom, card: Card) -> GeneralVariant:
    """Pick the variant that should finish first.

    Args:
        m: Rows of x, 1 or more.
        n: Output features.
        k: Input features.
        atom: The card's atom.
        card: The device.
    """
    shape = warp_shape(atom)
    tiles = min(_divide_up(m, TOKEN_TILE), shape.one_block_tiles)
    fitting = [
        item
        for item in shape.variants
        if shape.most_tiles >= item.token_tiles >= tiles and item.shared_bytes(atom) <= card.shared_bytes
    ]
    return min(fitting, key=lambda item: (_time(item, m, n, k, atom, card), _blocks(item, m, n, atom)))


def launch_general(variant: GeneralVariant, m: int, n: int, atom: Atom) -> Launch:
    """Launch of one variant for M rows of x and N output features."""
    return Launch(
        variant.kernel, (_blocks(variant, m, n, atom), 1), variant.threads, variant.shared_bytes(atom)
    )


def _blocks(variant: GeneralVariant, m: int, n: int, atom: Atom) -> int:
    return _divide_up(m, variant.rows) * _divide_up(n, variant.strip(atom))


def _time(variant: GeneralVariant, m: int, n: int, k: int, atom: Atom, card: Card) -> float:
    """Estimated time of the busiest multiprocessor, in times of one slab and token tile of eight warps."""
    shape = warp_shape(atom)
    slabs = _divide_up(k, BLOCK_COLUMNS * variant.warps_k) * _SLABS_PER_BLOCK + shape.overhead_slabs
    resident = min(variant.resident_blocks(atom), card.shared_bytes // variant.shared_bytes(atom))
    busiest = _divide_up(_blocks(variant, m, n, atom), card.multiprocessors)
    full, rest = divmod(busiest, resident)
    work = (variant.token_tiles + shape.decode_time) * variant.warps_n * variant.warps_k / _WARPS
    slab_time = full * max(shape.least_time, resident * work)
    if rest:
        slab_time += max(shape.least_time, rest * work)
    return slabs * slab_time


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)
