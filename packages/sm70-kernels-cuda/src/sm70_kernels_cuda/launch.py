"""From a problem's sizes to a launch: pure arithmetic, tested without a card.

The names and shapes here mirror csrc/qpn2_nvfp4.cuh; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS, BLOCK_ROWS

TOKEN_TILE = 8
NATIVE_ROWS = 32
"""Most rows of x that a QPN2 kernel takes."""

QPN2_K_MULTIPLE = 128
"""K of the QPN2 kernels is a multiple of this."""

GATED_N_MULTIPLE = 64
"""N of a merged gate and up projection, for which y is silu(gate) * up, is a multiple of this."""

DEQUANTIZE_KERNEL = "dequantize_nvfp4"
DEQUANTIZE_THREADS = 128

_REDUCTION_PADDING = 2


@dataclass(frozen=True)
class Atom:
    """A tensor-core atom as the launch sees it.

    Attributes:
        name: Name in the documentation.
        strip: Output columns of one block of threads.
        units_per_block: Units of work that a warp finds in one layout block along K.
        warps: Warps of a block that keep the card busiest, where K is long enough for them.
        dense_rows: From so many rows on, the weight is decoded into scratch and multiplied by a dense GEMM.
        strip_rows: Most rows that the QPN2 kernels are chosen for; more go to the general kernel.
    """

    name: str
    strip: int
    units_per_block: int
    warps: int
    dense_rows: int
    strip_rows: int = NATIVE_ROWS


# dense_rows: on 7.x the default that users of Volta builds know, not measured; for AMPERE_ATOM measured on an
# H200, where the two ways meet between 64 and 128 rows on three shapes of four.
# warps: with VOLTA_ATOM a strip of 64 columns gives few blocks (80 for N = 5120, one for each SM of a V100),
# so many warps must share each; predicted, not measured. With TURING_ATOM there are 320, for the 72 SMs of an
# RTX 8000, 68 of a 2080 Ti or 40 of a T4, and an SM holds three blocks of 8 warps but only one of 16. The
# model of `sm70 roofline` predicts, as the mean over its shapes on an RTX 8000 and on a T4, 4 to 8 % more
# time with 16 and up to 1.1 % less with 4. For AMPERE_ATOM measured on an H200, see
# benchmarks/results: at M = 1, 16 warps were slower on all eight shapes, 4 warps faster on two of them.
# strip_rows: with VOLTA_ATOM a load of x by 8 lanes touches four lines of L1, one for each row. The general
# kernel's copy in shared memory is predicted (docs/roofline.md), not measured, to win from 9 rows on. With
# TURING_ATOM it touches two: from 9 to 16 rows the general kernel is predicted to take up to 12 % less time
# on a T4 but, for few columns on an RTX 8000, up to 39 % more; from 17 rows on it wins.
VOLTA_ATOM = Atom(
    "m8n8k4", strip=4 * BLOCK_ROWS, units_per_block=4, warps=16, dense_rows=1024, strip_rows=TOKEN_TILE
)
TURING_ATOM = Atom(
    "m16n8k8", strip=BLOCK_ROWS, units_per_block=1, warps=8, dense_rows=1024, strip_rows=2 * TOKEN_TILE
)
AMPERE_ATOM = Atom("m16n8k16", strip=BLOCK_ROWS, units_per_block=1, warps=8, dense_rows=128)

ATOMS: tuple[Atom, ...] = (VOLTA_ATOM, TURING_ATOM, AMPERE_ATOM)


def atom_of(sm_number: int) -> Atom:
    """The atom that the fat binary holds for a compute capability, 70 for 7.0."""
    if sm_number < 75:
        return VOLTA_ATOM
    return TURING_ATOM if sm_number < 80 else AMPERE_ATOM


@dataclass(frozen=True)
class Variant:
    """One compiled QPN2 kernel.

    Attributes:
        token_tiles: Tiles of 8 rows of x that it multiplies with each decoded weight.
        warps: Warps that split K.
        layout: Name of the layout that it reads, without `_block`.
    """

    token_tiles: int
    warps: int
    layout: str = "nvfp4"

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"qpn2_{self.layout}_t{self.token_tiles}_w{self.warps}"

    def shared_bytes(self, atom: Atom) -> int:
        """Dynamic shared memory: one float for each warp, token and padded output column."""
        return self.warps * TOKEN_TILE * (atom.strip + _REDUCTION_PADDING) * 4


VARIANTS: tuple[Variant, ...] = (
    Variant(1, 4),
    Variant(1, 8),
    Variant(1, 16),
    Variant(2, 8),
    Variant(2, 16),
    Variant(4, 8),
)


@dataclass(frozen=True)
class Launch:
    """Everything the driver needs besides the arguments.

    Attributes:
        kernel: Name in the fat binary.
        grid: Blocks in x and y.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory of a block.
        cluster: Consecutive blocks that form a cluster.
        overlaps_previous: Whether it may start before its predecessor has ended; it waits by itself.
    """

    kernel: str
    grid: tuple[int, int]
    threads: int
    shared_bytes: int
    cluster: int = 1
    overlaps_previous: bool = False


def choose_variant(m: int, k: int, atom: Atom, variants: tuple[Variant, ...] = VARIANTS) -> Variant:
    """Pick the variant for M rows of x.

    Args:
        m: Rows, 1 to 8 times the largest `token_tiles`.
        k: Input features.
        atom: The card's atom.
        variants: What was compiled for the weight's layout.
    """
    tiles = 1 if m <= TOKEN_TILE else 2 if m <= 2 * TOKEN_TILE else 4
    units = -(-k // BLOCK_COLUMNS) * atom.units_per_block
    fitting = [item for item in variants if item.token_tiles == tiles]
    # More warps than units leave some idle, yet fewer would take two units one after the other. Half of them
    # idle is too many.
    busy = [item for item in fitting if item.warps <= atom.warps and item.warps < 2 * units]
    return max(busy, key=lambda item: item.warps) if busy else fitting[0]


def launch_variant(variant: Variant, n: int, atom: Atom) -> Launch:
    """Launch of one variant for N output features."""
    return Launch(variant.kernel, (-(-n // atom.strip), 1), variant.warps * 32, variant.shared_bytes(atom))


def launch_dequantize(n: int, k: int, kernel: str = DEQUANTIZE_KERNEL) -> Launch:
    """Launch of the decoder to dense FP16."""
    warps = DEQUANTIZE_THREADS // 32
    grid = (-(-k // (BLOCK_COLUMNS * warps)), -(-n // BLOCK_ROWS))
    return Launch(kernel, grid, DEQUANTIZE_THREADS, 0)
