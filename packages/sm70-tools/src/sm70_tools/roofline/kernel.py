"""A kernel as the model sees it: its launch, and what one iteration of its hot loop costs one warp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError

if TYPE_CHECKING:
    from types import ModuleType

    from sm70_tools.roofline.cards import Figures

NVFP4_BYTES = 0.5625
"""Bytes of one weight: a 4-bit code and a sixteenth of an 8-bit scale."""

MODELLED_ROWS = 64
"""Most rows of x for which the general kernel's predictions were compared with anything."""

_SLAB_COLUMNS = 64
_BLOCK_COLUMNS = 256

TILE_ROWS = 8
"""Rows of x of one token tile."""

Quarters = tuple[tuple[int, int], ...]
"""For each quarter of a warp that loads x, the first row of a tile that it touches and how many."""

QUADPAIR_ROWS: Quarters = ((0, 4), (0, 4), (4, 4), (4, 4))
"""m8n8k4: a quarter is two quads, which read the same four rows."""

QUAD_ROWS: Quarters = ((0, 2), (2, 2), (4, 2), (6, 2))
"""m16n8k8 and m16n8k16: a quarter is two quads, each of which reads one row."""

PACKED_ROWS: Quarters = ((0, 1), (0, 1), (0, 1), (0, 1))
"""x stored so that eight rows of a group of columns are neighbours: one line for a quarter."""


STEP_FMAS = 256
"""Multiply-adds of one HMMA.884: a quarter of the four 8 x 8 x 4 products of an m8n8k4."""

HMMA_FMAS = {"m8n8k4": STEP_FMAS, "m16n8k8": 16 * 8 * 8, "m16n8k16": 16 * 8 * 16}
"""Multiply-adds of one HMMA by the atom whose instruction it is part of."""


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        name: Its name.
        strip: Output columns of a block of threads.
        warps: Warps of a block.
        warps_k: Warps among them that split K; the others share the strip.
        token_tiles: Tiles of 8 rows of x of a block.
        registers: Registers of a thread.
        shared_bytes: Shared memory of a block.
        k_of_unit: Columns of K that one iteration of one warp takes.
        k_padding: K is padded to a multiple of this.
        instructions: Instructions of an iteration.
        tensor: HMMA instructions among them; `half`, `integer` and `multiply` likewise.
        hmma_fmas: Multiply-adds of one of them.
        half: Packed FP16 arithmetic.
        integer: Logic, shifts, additions.
        multiply: IMAD.
        x_loads: Loads of x from global memory; in a strip kernel, of one token tile.
        quarters: Rows that such a load touches; in a general kernel, 128-byte lines.
        shared_wavefronts: Passes of 128 bytes through shared memory; none in a strip kernel.
        weight_lines: 128-byte lines of weight.
        cover_cycles: Cycles between the next unit's loads and the first wait for them.
        serial_points: Pairs of a latency of x and the duration of an iteration of a lone warp, in cycles.
    """

    name: str
    strip: int
    warps: int
    warps_k: int
    token_tiles: int
    registers: int
    shared_bytes: int
    k_of_unit: int
    k_padding: int
    instructions: float
    tensor: float
    hmma_fmas: int
    half: float
    integer: float
    multiply: float
    x_loads: int
    quarters: Quarters
    shared_wavefronts: float
    weight_lines: float
    cover_cycles: float
    serial_points: tuple[tuple[float, float], ...]

    @property
    def is_general(self) -> bool:
        """Whether it stages x in shared memory and takes any number of rows."""
        return self.shared_wavefronts > 0

    @property
    def rows(self) -> int:
        """Most rows of x of a block."""
        return self.token_tiles * TILE_ROWS

    def token_blocks(self, m: int) -> int:
        """Blocks that share a strip."""
        return -(-m // self.rows)

    def units(self, k: int) -> int:
        """Iterations that the warps of a block share."""
        padded = -(-k // self.k_padding) * self.k_padding
        return padded // self.k_of_unit * (self.warps // self.warps_k)

    def iterations(self, k: int) -> int:
        """Iterations of a block, one after the other."""
        if self.is_general:
            return -(-k // (self.warps_k * _BLOCK_COLUMNS)) * (_BLOCK_COLUMNS // self.k_of_unit)
        return -(-self.units(k) // self.warps)

    def serial_cycles(self, latency: float) -> float:
        """Duration of an iteration when loads of x take `latency`: linear between points, and beyond them."""
        points = self.serial_points
        right = next((i for i in range(1, len(points)) if latency <= points[i][0]), len(points) - 1)
        (x0, y0), (x1, y1) = points[right - 1], points[right]
        return y0 + (y1 - y0) * (latency - x0) / (x1 - x0)

    def lines(self, m: int) -> float:
        """Lines of 128 bytes that one iteration touches for M rows of x, weight included."""
        if self.is_general:
            return self.x_loads * len(self.quarters) + self.weight_lines
        total = 0
        for tile in range(self.token_tiles):
            rows = max(1, min(TILE_ROWS, m - tile * TILE_ROWS))
            total += sum(max(1, min(count, rows - first)) for first, count in self.quarters)
        return self.x_loads * total + self.weight_lines


def chosen_kernel(figures: Figures, m: int, n: int, k: int) -> Kernel | None:
    """The strip or general kernel that the suite launches; None for more than MODELLED_ROWS rows.

    Raises:
        ArgumentError: sm70-kernels-cuda is not installed, or M or K is no problem that it takes.
    """
    launch = _launch_module()
    if m < 1 or k < 64 or k % 64:
        raise ArgumentError(
            describe(
                asked=f"a prediction for M={m}, K={k}",
                allowed="M from 1 on, and K a multiple of 64",
                fix="Change --m or --shapes",
            )
        )
    if m > MODELLED_ROWS:
        return None
    from sm70_kernels_cuda.choice import choose_linear
    from sm70_kernels_cuda.launch_cluster import Card
    from sm70_kernels_cuda.tuning.table import load

    architecture = figures.family.architecture
    number = int(architecture)
    variant = choose_linear(
        m,
        n,
        k,
        k % launch.QPN2_K_MULTIPLE == 0,
        sm_number=number,
        atom=launch.atom_of(number),
        card=Card(figures.multiprocessors, figures.family.block_kib * 1024),
        tuning=load(),
    )
    of_name = strip_kernel if isinstance(variant, launch.Variant) else general_kernel
    return of_name(architecture, variant.kernel)


@cache
def strip_kernel(architecture: str, name: str) -> Kernel:
    """The strip kernel called `name` in the table of loops, for an architecture such as `70`.

    Raises:
        ArgumentError: sm70-kernels-cuda is not installed.
    """
    launch = _launch_module()
    from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS
    from sm70_kernels_cuda.profile.loops import REPLAY_LATENCIES, load

    loop = load()[architecture][name]
    atom = launch.atom_of(int(architecture))
    variant = next(item for item in launch.VARIANTS if item.kernel == name)
    return Kernel(
        name=name,
        strip=atom.strip,
        warps=variant.warps,
        warps_k=variant.warps,
        token_tiles=variant.token_tiles,
        registers=loop.registers,
        shared_bytes=variant.shared_bytes(atom),
        k_of_unit=round(loop.unit_bytes / (NVFP4_BYTES * atom.strip)),
        k_padding=BLOCK_COLUMNS,
        instructions=loop.instructions,
        tensor=loop.tensor,
        hmma_fmas=HMMA_FMAS[atom.name],
        half=loop.half,
        integer=loop.integer,
        multiply=loop.multiply,
        x_loads=loop.activation_loads // variant.token_tiles,
        quarters=QUADPAIR_ROWS if atom is launch.VOLTA_ATOM else QUAD_ROWS,
        shared_wavefronts=0,
        weight_lines=loop.unit_bytes / 128,
        cover_cycles=loop.cover_cycles,
        serial_points=tuple(zip(REPLAY_LATENCIES, loop.serial_cycles, strict=True)),
    )


@cache
def general_kernel(architecture: str, name: str) -> Kernel:
    """The general kernel called `name` in the table of loops, for an architecture such as `70`.

    An iteration is a slab: 64 columns of K of a warp's rows of the layout.

    Raises:
        ArgumentError: sm70-kernels-cuda is not installed.
    """
    launch = _launch_module()
    from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, warp_shape
    from sm70_kernels_cuda.profile.loops import REPLAY_LATENCIES, load

    loop = load()[architecture][name]
    atom = launch.atom_of(int(architecture))
    variant = next(item for item in GENERAL_VARIANTS if item.kernel == name)
    slabs = loop.slabs
    return Kernel(
        name=name,
        strip=variant.strip(atom),
        warps=variant.warps_n * variant.warps_k,
        warps_k=variant.warps_k,
        token_tiles=variant.token_tiles,
        registers=loop.registers,
        shared_bytes=variant.shared_bytes(atom),
        k_of_unit=_SLAB_COLUMNS,
        k_padding=_SLAB_COLUMNS,
        instructions=loop.instructions / slabs,
        tensor=loop.tensor / slabs,
        hmma_fmas=HMMA_FMAS[atom.name],
        half=loop.half / slabs,
        integer=loop.integer / slabs,
        multiply=loop.multiply / slabs,
        x_loads=loop.activation_loads // slabs,
        quarters=PACKED_ROWS,
        shared_wavefronts=loop.shared_wavefronts / slabs,
        weight_lines=warp_shape(atom).rows * _SLAB_COLUMNS * NVFP4_BYTES / 128,
        cover_cycles=loop.cover_cycles,
        serial_points=tuple(
            (latency, cycles / slabs)
            for latency, cycles in zip(REPLAY_LATENCIES, loop.serial_cycles, strict=True)
        ),
    )


def _launch_module() -> ModuleType:
    try:
        from sm70_kernels_cuda import launch
    except ImportError as error:
        raise ArgumentError(
            describe(
                asked="a prediction for the kernels of sm70-kernels-cuda, which is not installed",
                allowed="an environment that holds it; no GPU is needed",
                fix="pip install sm70-tools[cuda]",
            )
        ) from error
    return launch
