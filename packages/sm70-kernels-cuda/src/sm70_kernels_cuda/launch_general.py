"""Launches of the general kernel: pure arithmetic, tested without a card.

The names, shapes and shared memory mirror csrc/general_nvfp4.cuh and include/sm70/gemm/general_nvfp4.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import AMPERE_ATOM, TOKEN_TILE, VOLTA_ATOM, Atom, Launch
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch_cluster import Card

_CHUNK_COLUMNS = 64
_SLABS_PER_BLOCK = BLOCK_COLUMNS // _CHUNK_COLUMNS
_PIECE_BYTES = 16
_ONE_BLOCK_TILES = 4
_OVERHEAD_SLABS = 2
"""What starting and ending a block of threads costs, in slabs; an estimate."""


@dataclass(frozen=True)
class WarpShape:
    """What a warp does with one atom: `sm70::general::WarpShape`, and how long it takes.

    Attributes:
        rows: Output columns of a warp.
        partial_pitch: Floats between the partial sums of two tokens.
        pass_tiles: Most token tiles of one pass through the final sum.
        resident_tiles: Most token tiles for which two blocks fit the registers of a multiprocessor.
        decode_time: Time to decode the weights of a slab, in times of multiplying one token tile with them.
        least_time: Shortest time of a slab, the latency of its loads, in the same unit.
        most_tiles: Most token tiles of a block that pay.
    """

    rows: int
    partial_pitch: int
    pass_tiles: int
    resident_tiles: int
    decode_time: int
    least_time: int
    most_tiles: int


# The times are estimates from instruction counts and issue rates, not measurements. most_tiles of AMPERE_ATOM
# is measured on an H200: at 64 and 128 rows, blocks of 4 tiles beat those of 6 and 8 on most shapes.
_WARP_SHAPES = {
    VOLTA_ATOM.name: WarpShape(64, 65, 2, 1, decode_time=1, least_time=2, most_tiles=8),
    AMPERE_ATOM.name: WarpShape(32, 36, 4, 4, decode_time=2, least_time=7, most_tiles=4),
}


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
        layout: Name of the layout that it reads, without `_block`.
    """

    token_tiles: int
    warps_n: int
    warps_k: int
    layout: str = "nvfp4"

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"general_{self.layout}_t{self.token_tiles}_n{self.warps_n}_k{self.warps_k}"

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
        return 2 if self.token_tiles <= warp_shape(atom).resident_tiles else 1


GENERAL_VARIANTS: tuple[GeneralVariant, ...] = (
    GeneralVariant(1, 1, 8),
    GeneralVariant(2, 1, 8),
    GeneralVariant(2, 2, 4),
    GeneralVariant(4, 2, 4),
    GeneralVariant(4, 4, 2),
    GeneralVariant(6, 2, 4),
    GeneralVariant(6, 4, 2),
    GeneralVariant(8, 2, 4),
    GeneralVariant(8, 4, 2),
)


def choose_general(
    m: int, n: int, k: int, atom: Atom, card: Card, variants: tuple[GeneralVariant, ...] = GENERAL_VARIANTS
) -> GeneralVariant:
    """Pick the variant that should finish first.

    Args:
        m: Rows of x, 1 or more.
        n: Output features.
        k: Input features.
        atom: The card's atom.
        card: The device.
        variants: What was compiled for the weight's layout.
    """
    # Up to 32 rows, one block takes them all, and no weight is read or decoded twice.
    tiles = min(_divide_up(m, TOKEN_TILE), _ONE_BLOCK_TILES)
    fitting = [
        item
        for item in variants
        if warp_shape(atom).most_tiles >= item.token_tiles >= tiles
        and item.shared_bytes(atom) <= card.shared_bytes
    ]
    return min(fitting, key=lambda item: (_time(item, m, n, k, atom, card), _blocks(item, m, n, atom)))


def launch_general(variant: GeneralVariant, m: int, n: int, atom: Atom) -> Launch:
    """Launch of one variant for M rows of x and N output features."""
    return Launch(
        variant.kernel, (_blocks(variant, m, n, atom), 1), variant.threads, variant.shared_bytes(atom)
    )


def _blocks(variant: GeneralVariant, m: int, n: int, atom: Atom) -> int:
    return _divide_up(m, variant.rows) * _divide_up(n, variant.strip(atom))


def _time(variant: GeneralVariant, m: int, n: int, k: int, atom: Atom, card: Card) -> int:
    """Estimated time of the busiest multiprocessor, in times of one slab and token tile of a block."""
    shape = warp_shape(atom)
    slabs = _divide_up(k, BLOCK_COLUMNS * variant.warps_k) * _SLABS_PER_BLOCK + _OVERHEAD_SLABS
    resident = min(variant.resident_blocks(atom), card.shared_bytes // variant.shared_bytes(atom))
    busiest = _divide_up(_blocks(variant, m, n, atom), card.multiprocessors)
    full, rest = divmod(busiest, resident)
    work = variant.token_tiles + shape.decode_time
    slab_time = full * max(shape.least_time, resident * work)
    if rest:
        slab_time += max(shape.least_time, rest * work)
    return slabs * slab_time


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)
