"""Launches of the warpgroup kernels, compute capability 9.0: pure arithmetic, tested without a card.

The names, shapes and shared memory mirror csrc/warpgroup_nvfp4.cuh and include/sm70/gemm/warpgroup_nvfp4.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import TOKEN_TILE, Launch
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch_cluster import Card

PACK_KERNEL = "pack_tokens"
WARPGROUP_ROWS = 64
_CHUNK_COLUMNS = 64
_CHUNKS = BLOCK_COLUMNS // _CHUNK_COLUMNS
_CHUNK_BYTES_OF_TOKEN = _CHUNK_COLUMNS * 2
_PITCH_PADDING = 4
_ROW_GRANULE = 8
_LEAST_STAGES = 4
"""One is multiplied, one is left by the last warps, one is filled again, and one is ready."""
_MOST_STAGES = 8
_RESERVED_SHARED = 1024
"""Shared memory that the driver takes of each block."""
_MOST_PACK_THREADS = 64


@dataclass(frozen=True)
class WarpgroupVariant:
    """One compiled kernel.

    Attributes:
        tokens: Rows of x of a block.
        row_groups: Warpgroups of a block along N; each has 64 output columns.
        split: Warpgroups that share the chunks of 64 columns of K.
        stage_chunks: Chunks of a stage of the ring.
        step_us: Microseconds of a chunk of a warpgroup with one block on a multiprocessor, with two if the
            registers allow them, and so on. Fitted to rows measured on an H200, see `_time`.
    """

    tokens: int
    row_groups: int
    split: int
    stage_chunks: int
    step_us: tuple[float, ...]

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"warpgroup_nvfp4_t{self.tokens}_g{self.row_groups}_s{self.split}"

    @property
    def token_tiles(self) -> int:
        """Tiles of 8 rows of x of a block."""
        return self.tokens // TOKEN_TILE

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.row_groups * self.split * 128

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has registers for."""
        return len(self.step_us)

    @property
    def strip(self) -> int:
        """Output columns of a block."""
        return self.row_groups * WARPGROUP_ROWS

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage of the ring."""
        return self.stage_chunks * self.tokens * _CHUNK_BYTES_OF_TOKEN

    @property
    def sum_bytes(self) -> int:
        """Bytes of the block's sums, which take the ring's place."""
        return self.split * self.tokens * (self.strip + _PITCH_PADDING) * 4


WARPGROUP_VARIANTS: tuple[WarpgroupVariant, ...] = (
    WarpgroupVariant(32, 2, 1, 4, (0.236, 0.349)),
    WarpgroupVariant(32, 5, 1, 2, (0.531,)),
    WarpgroupVariant(64, 2, 1, 2, (0.306, 0.534)),
    WarpgroupVariant(64, 2, 2, 2, (0.575,)),
    WarpgroupVariant(64, 5, 1, 2, (0.726,)),
    WarpgroupVariant(128, 2, 1, 2, (0.437,)),
    WarpgroupVariant(128, 3, 1, 2, (0.620,)),
    WarpgroupVariant(256, 2, 1, 1, (0.850,)),
)
_LARGE_TILE = 128
MOST_SPLIT = 6
"""Most blocks of a cluster; 8 were never faster on an H200."""
_WAVE_US = 2.9
_EXCHANGE_US = 0.95
_EXCHANGE_US_EACH = 0.44
"""What a wave of blocks costs besides its chunks, the sum over a cluster of two, and each block more of it;
fitted like `step_us`."""


@dataclass(frozen=True)
class WarpgroupPlan:
    """Two launches, and those of the kernels' arguments that follow from them.

    Attributes:
        launch: The product.
        pack: What packs x before it.
        block_tokens: Rows of x of a token block.
        token_blocks: Their number.
        packed_bytes: Scratch for the packed x.
        stages: Of the ring.
        received_offset: Byte offset in shared memory.
        barriers_offset: Likewise.
    """

    launch: Launch
    pack: Launch
    block_tokens: int
    token_blocks: int
    packed_bytes: int
    stages: int
    received_offset: int
    barriers_offset: int


def plan_warpgroup(
    variant: WarpgroupVariant, split: int, m: int, n: int, k: int, card: Card
) -> WarpgroupPlan | None:
    """Lay a problem out; None where it does not fit the shared memory.

    Args:
        variant: The kernel.
        split: Blocks of a cluster, which share K: 1 to 8, and not more than K has blocks of 256 columns.
        m: Rows of x.
        n: Output features.
        k: Input features, a multiple of 16.
        card: The device.
    """
    row_blocks = _divide_up(k, BLOCK_COLUMNS)
    token_blocks = _divide_up(m, variant.tokens)
    rows = _divide_up(variant.strip // _ROW_GRANULE, split) * _ROW_GRANULE
    received = (split - 1) * min(m, variant.tokens) * rows * 4
    limit = card.shared_bytes // variant.resident - (_RESERVED_SHARED if variant.resident > 1 else 0)
    barriers = 8 * (2 * _MOST_STAGES + 1)
    stages = min(_MOST_STAGES, (limit - received - barriers) // variant.stage_bytes)
    received_offset = _align(max(stages * variant.stage_bytes, variant.sum_bytes))
    barriers_offset = _align(received_offset + received)
    total = barriers_offset + barriers
    if stages < _LEAST_STAGES or total > limit:
        return None
    grid = split * token_blocks * _divide_up(n, variant.strip)
    launch = Launch(variant.kernel, (grid, 1), variant.threads, total, cluster=split, overlaps_previous=True)
    chunks = row_blocks * _CHUNKS
    padded = token_blocks * variant.tokens
    pack_threads = min(variant.tokens, _MOST_PACK_THREADS)
    pack = Launch(
        PACK_KERNEL,
        (chunks, padded // pack_threads),
        pack_threads,
        0,
        overlaps_previous=True,
    )
    return WarpgroupPlan(
        launch,
        pack,
        variant.tokens,
        token_blocks,
        padded * chunks * _CHUNK_BYTES_OF_TOKEN,
        stages,
        received_offset,
        barriers_offset,
    )


def choose_warpgroup(m: int, n: int, k: int, card: Card) -> WarpgroupPlan:
    """The plan that should finish first.

    Args:
        m: Rows of x, 1 or more.
        n: Output features.
        k: Input features, a multiple of 16.
        card: The device, with its clusters.
    """
    candidates = [
        (_time(variant, split, m, n, k, card), plan)
        for variant in WARPGROUP_VARIANTS
        for split in range(1, MOST_SPLIT + 1)
        if (plan := consider_warpgroup(variant, split, m, n, k, card)) is not None
    ]
    return min(candidates, key=lambda item: item[0])[1]


def consider_warpgroup(
    variant: WarpgroupVariant, split: int, m: int, n: int, k: int, card: Card
) -> WarpgroupPlan | None:
    """The plan of a variant, if it is one that the choice for these sizes considers.

    Args:
        variant: The kernel.
        split: Blocks of a cluster, 1 to `MOST_SPLIT`.
        m: Rows of x, 1 or more.
        n: Output features.
        k: Input features, a multiple of 16.
        card: The device, with its clusters.
    """
    # The fewest tokens that take all rows at once; with more rows than that, large tiles.
    tokens = next((item.tokens for item in WARPGROUP_VARIANTS if item.tokens >= m), 0)
    if variant.tokens != tokens and variant.tokens < max(tokens, _LARGE_TILE):
        return None
    fits_card = split == 1 or card.clusters.get((variant.resident, split))
    if split > _divide_up(k, BLOCK_COLUMNS) or not fits_card:
        return None
    return plan_warpgroup(variant, split, m, n, k, card)


def _time(variant: WarpgroupVariant, split: int, m: int, n: int, k: int, card: Card) -> float:
    """Estimated microseconds: waves of blocks, each as long as its chunks take.

    The last wave may leave multiprocessors with fewer blocks, which are faster then. All constants are
    fitted to the rows of benchmarks/results/h200/warpgroup_kernels.csv (`sm70 bench linear --variants all`),
    for good choices first and small errors second. On the same rows the choice takes 0.1 % longer than the
    best plan in the geometric mean; a test compares the two.
    """
    blocks = split * _divide_up(m, variant.tokens) * _divide_up(n, variant.strip)
    steps = _CHUNKS * _divide_up(_divide_up(k, BLOCK_COLUMNS), split) / variant.split
    waves, rest = divmod(blocks, _at_once(variant.resident, split, card))
    time = waves * (steps * variant.step_us[-1] + _WAVE_US)
    if rest:
        depths = range(1, variant.resident + 1)
        deepest = next(depth for depth in depths if rest <= _at_once(depth, split, card))
        time += steps * variant.step_us[deepest - 1] + _WAVE_US
    return time + (_EXCHANGE_US + (split - 2) * _EXCHANGE_US_EACH if split > 1 else 0)


def _at_once(depth: int, split: int, card: Card) -> int:
    """Blocks that run at once with so many on a multiprocessor."""
    if split == 1:
        return card.multiprocessors * depth
    return card.clusters[depth, split] * split


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _align(offset: int) -> int:
    return _divide_up(offset, 128) * 128
