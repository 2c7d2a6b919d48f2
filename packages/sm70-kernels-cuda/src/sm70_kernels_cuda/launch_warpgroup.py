"""Launches of the warpgroup kernels, compute capability 9.0: pure arithmetic, tested without a card.

The names, shapes and shared memory mirror csrc/warpgroup_nvfp4.cuh and include/sm70/gemm/warpgroup_nvfp4.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass

from sm70_kernels_cuda.launch import Launch
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS

WARPGROUP_ROWS = 64
_CHUNK_COLUMNS = 64
_CHUNKS = BLOCK_COLUMNS // _CHUNK_COLUMNS
_CHUNK_BYTES_OF_TOKEN = _CHUNK_COLUMNS * 2
_PITCH_PADDING = 4
_ROW_GRANULE = 8
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
        loads: Layout blocks that a warp holds.
        resident: Blocks that a multiprocessor has registers for.
    """

    tokens: int
    row_groups: int
    split: int
    loads: int
    resident: int

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"warpgroup_nvfp4_t{self.tokens}_g{self.row_groups}_s{self.split}_l{self.loads}"

    @property
    def warpgroups(self) -> int:
        """Warpgroups of a block."""
        return self.row_groups * self.split

    @property
    def strip(self) -> int:
        """Output columns of a block."""
        return self.row_groups * WARPGROUP_ROWS

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage of the ring."""
        chunks = 1 if self.tokens > 128 else 2 if self.tokens > 32 or self.loads == 1 else _CHUNKS  # noqa: PLR2004
        return chunks * self.tokens * _CHUNK_BYTES_OF_TOKEN

    @property
    def sum_bytes(self) -> int:
        """Bytes of the block's sums, which take the ring's place."""
        return self.split * self.tokens * (self.strip + _PITCH_PADDING) * 4


WARPGROUP_VARIANTS: tuple[WarpgroupVariant, ...] = (
    WarpgroupVariant(16, 2, 1, 2, 2),
    WarpgroupVariant(32, 2, 1, 2, 2),
    WarpgroupVariant(32, 2, 1, 1, 3),
    WarpgroupVariant(32, 5, 1, 1, 1),
    WarpgroupVariant(64, 5, 1, 1, 1),
    WarpgroupVariant(64, 2, 1, 2, 2),
    WarpgroupVariant(64, 2, 2, 2, 1),
    WarpgroupVariant(128, 2, 1, 2, 1),
    WarpgroupVariant(128, 3, 1, 2, 1),
    WarpgroupVariant(256, 2, 1, 2, 1),
)


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
    if stages < 4 or total > limit:  # noqa: PLR2004 - one is read while the other is filled
        return None
    grid = split * token_blocks * _divide_up(n, variant.strip)
    launch = Launch(
        variant.kernel, (grid, 1), variant.warpgroups * 128, total, cluster=split, overlaps_previous=True
    )
    chunks = row_blocks * _CHUNKS
    padded = token_blocks * variant.tokens
    pack_threads = min(variant.tokens, _MOST_PACK_THREADS)
    pack = Launch(
        "pack_tokens",
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


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _align(offset: int) -> int:
    return _divide_up(offset, 128) * 128
