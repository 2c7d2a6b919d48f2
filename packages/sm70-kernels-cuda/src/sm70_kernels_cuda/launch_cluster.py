"""Launches of the cluster kernel of compute capability 9.0 and up: pure arithmetic, tested without a card.

The names and the use of shared memory mirror csrc/cluster_nvfp4.cuh and include/sm70/gemm/cluster_nvfp4.cuh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sm70_kernels_cuda.launch import TOKEN_TILE, Launch
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS, BLOCK_ROWS

CLUSTER_BLOCKS = 2


@dataclass(frozen=True)
class ClusterVariant:
    """One compiled cluster kernel.

    Attributes:
        token_tiles: Tiles of 8 rows of x that it multiplies with each decoded weight.
        warps: Warps of a block.
    """

    token_tiles: int
    warps: int

    @property
    def kernel(self) -> str:
        """Name in the fat binary."""
        return f"cluster_nvfp4_t{self.token_tiles}_w{self.warps}"

    @property
    def rows(self) -> int:
        """Most rows of x."""
        return TOKEN_TILE * self.token_tiles


CLUSTER_VARIANTS: tuple[ClusterVariant, ...] = (
    ClusterVariant(1, 8),
    ClusterVariant(1, 16),
    ClusterVariant(2, 8),
    ClusterVariant(2, 16),
)

_FEW_ELEMENTS = 20 << 20
"""Weights of no more elements run with 8 warps a multiprocessor: what a launch pays once is less then."""
_FEW_ELEMENTS_FROM_5_ROWS = 12 << 20
_FEW_TOKEN_ELEMENTS = 17_000
"""Up to so many elements of x, two blocks of 8 warps share a multiprocessor and hide each other's ends; each
of them needs its own copy of x."""


@dataclass(frozen=True)
class Card:
    """What the launch needs to know of a device.

    Attributes:
        multiprocessors: Their number.
        shared_bytes: Most shared memory of one block.
        clusters: Clusters that run at once, by blocks on a multiprocessor and blocks of a cluster; from the
            driver, since multiprocessors belong to groups of different sizes, and a cluster lives in one.
    """

    multiprocessors: int
    shared_bytes: int
    clusters: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterPlan:
    """A launch, and those of the kernel's arguments that follow from it.

    Attributes:
        launch: The launch.
        strips_each: Strips of a cluster; pairs of a strip of the gate and one of up where there are any.
        clusters_plus1: The first so many clusters have one more.
        received_offset: Byte offset in shared memory.
        tokens_offset: Likewise.
        barriers_offset: Likewise.
        owners_offset: Likewise.
    """

    launch: Launch
    strips_each: int
    clusters_plus1: int
    inverse_blocks: tuple[float, float]
    segment_shift: int
    received_offset: int
    tokens_offset: int
    barriers_offset: int
    finish_offset: int
    owners_offset: int


def has_clusters(major: int) -> bool:
    """Whether the binary holds cluster kernels for cards of this major compute capability.

    The driver makes 12.x's code from the PTX for 8.0, which has none of them.
    """
    return major in (9, 10)


def plan_cluster(
    variant: ClusterVariant,
    m: int,
    n: int,
    k: int,
    card: Card,
    blocks_each: int = 1,
    *,
    gated: bool = False,
) -> ClusterPlan | None:
    """Lay a problem out over the card's clusters; None where its activations do not fit the shared memory.

    Args:
        variant: The kernel; it takes up to `variant.rows` rows.
        m: Rows of x.
        n: Rows of the weight.
        k: Input features, a multiple of 128.
        card: The device.
        blocks_each: Blocks for each multiprocessor.
        gated: Whether they are those of a gate and of an up projection, whose strips go in pairs.
    """
    together = 2 if gated else 1
    groups = _divide_up(n, BLOCK_ROWS * together)
    clusters = max(1, min(groups, card.multiprocessors * blocks_each // CLUSTER_BLOCKS))
    each, plus1 = divmod(groups, clusters)
    most = (each + (plus1 > 0)) * together
    row_blocks = _divide_up(k, BLOCK_COLUMNS)
    blocks = _divide_up(row_blocks, CLUSTER_BLOCKS)
    other_blocks = row_blocks - blocks
    # One copy of x for each warp: of more columns than a block's where there are more blocks than warps.
    segment_shift = (_divide_up(blocks, variant.warps) - 1).bit_length()
    *offsets, total = _offsets(variant, m, most, blocks)
    if total > card.shared_bytes // blocks_each:
        return None
    launch = Launch(
        variant.kernel,
        (clusters * CLUSTER_BLOCKS, 1),
        variant.warps * 32,
        total,
        cluster=CLUSTER_BLOCKS,
        overlaps_previous=True,
    )
    return ClusterPlan(
        launch,
        each,
        plus1,
        (1 / blocks, 1 / other_blocks if other_blocks else 0.0),
        segment_shift,
        *offsets,
    )


def _offsets(variant: ClusterVariant, m: int, strips: int, blocks: int) -> tuple[int, ...]:
    """Where in shared memory each part of `ClusterPlan` begins, in its order, and where the last one ends.

    Args:
        variant: The kernel.
        m: Rows of x.
        strips: Most strips of a cluster.
        blocks: Most column blocks of a block of threads.
    """
    finished_rows = BLOCK_ROWS // CLUSTER_BLOCKS
    received = _align((strips + variant.warps) * variant.rows * BLOCK_ROWS * 4)
    tokens = _align(received + strips * m * finished_rows * 4)
    barriers = _align(tokens + m * (blocks * BLOCK_COLUMNS * 2 + 16))
    finish = barriers + 8 * (blocks + 1)
    owners = finish + strips * finished_rows * 8
    return received, tokens, barriers, finish, owners, owners + 2 * strips


def choose_cluster(m: int, n: int, k: int, card: Card, *, gated: bool = False) -> ClusterPlan | None:
    """The plan for M rows of x; None where the strip kernel has to run.

    The limits are fitted to rows of 20 shapes and 1 to 16 rows of x, measured on an H200 with a development
    build: on those, the choice takes 0.3 % longer than the best variant in the geometric mean up to 8 rows
    of x, and 0.8 % above. The strip kernel was never faster. All were plain products.
    """
    if m > CLUSTER_VARIANTS[-1].rows:
        return None
    few = _FEW_ELEMENTS if m <= TOKEN_TILE // 2 or m > TOKEN_TILE else _FEW_ELEMENTS_FROM_5_ROWS
    tiles = _divide_up(m, TOKEN_TILE)
    if n * k <= few:
        return plan_cluster(ClusterVariant(tiles, 8), m, n, k, card, gated=gated)
    if m <= TOKEN_TILE and m * k <= _FEW_TOKEN_ELEMENTS:
        plan = plan_cluster(ClusterVariant(tiles, 8), m, n, k, card, 2, gated=gated)
        if plan is not None:
            return plan
    return plan_cluster(ClusterVariant(tiles, 16), m, n, k, card, gated=gated)


def consider_cluster(
    variant: ClusterVariant, blocks_each: int, m: int, n: int, k: int, card: Card
) -> ClusterPlan | None:
    """The plan of a variant, if it has as many token tiles as M rows need; see `plan_cluster`."""
    if variant.token_tiles != _divide_up(m, TOKEN_TILE):
        return None
    return plan_cluster(variant, m, n, k, card, blocks_each)


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _align(offset: int) -> int:
    return _divide_up(offset, 128) * 128
