"""The model: what one launch of a kernel costs on a card. Cycles are those of the multiprocessors' clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_tools.roofline.cards import LAUNCH_US, OVERLAP, REGISTERS
from sm70_tools.roofline.kernel import NVFP4_BYTES, TILE_ROWS

if TYPE_CHECKING:
    from sm70_tools.roofline.cards import Family, Figures
    from sm70_tools.roofline.kernel import Kernel

_SUB_CORES = 4
_KIB = 1024
_HALF_BYTES = 2


@dataclass(frozen=True)
class Terms:
    """Cycles of the busiest multiprocessor, each as if nothing else limited it.

    Attributes:
        memory: Reading the weight at the card's ceiling.
        latency: Iterations of the warps one after the other, and each block's first load and last sum.
        pipes: The busiest of issue slots, tensor port, FP16, integer and multiply pipes.
        l1: Lines of x and weight through L1, and passes through shared memory, which is the same unit.
        l2: x from L2.
    """

    memory: float
    latency: float
    pipes: float
    l1: float
    l2: float

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.memory + other.memory,
            self.latency + other.latency,
            self.pipes + other.pipes,
            self.l1 + other.l1,
            self.l2 + other.l2,
        )

    @property
    def combined(self) -> float:
        """All terms together: they overlap in part."""
        values = (self.memory, self.latency, self.pipes, self.l1, self.l2)
        return float(sum(value**OVERLAP for value in values) ** (1 / OVERLAP))


@dataclass(frozen=True)
class Prediction:
    """One launch.

    Attributes:
        us: Microseconds.
        nbytes: Bytes of weight.
        pipe: Name of the busiest pipe.
        parts_us: Every term of the model alone, and what is added to their combination as `fixed`.
    """

    us: float
    nbytes: float
    pipe: str
    parts_us: dict[str, float]

    @property
    def limit(self) -> str:
        """Name of the largest part."""
        return self.title_of(max(self.parts_us, key=lambda name: self.parts_us[name]))

    def title_of(self, part: str) -> str:
        """A part's name for readers, which says what pipe it is."""
        return self.pipe if part == "pipes" else part

    @property
    def gb_s(self) -> float:
        """Weight bytes a second, in 10^9."""
        return self.nbytes / self.us / 1e3


def resident_blocks(kernel: Kernel, family: Family) -> int:
    """Blocks of the kernel that one multiprocessor holds at once."""
    registers_of_warp = -(-kernel.registers // 8) * 8 * 32
    warps = min(family.max_warps, REGISTERS // registers_of_warp)
    shared = family.carveouts_kib[-1] * _KIB // kernel.shared_bytes
    return max(1, min(warps // kernel.warps, shared))


def busiest_pipe(kernel: Kernel, family: Family) -> tuple[str, float]:
    """The pipe that an iteration of one warp occupies longest, and its cycles, over the sub-cores."""
    tensor = kernel.tensor * kernel.hmma_fmas / (family.tensor_fmas * family.tensor_efficiency)
    half = kernel.half * family.half_cycles
    pipes = {
        "issue": kernel.instructions,
        "tensor port": tensor + half if family.port_is_shared else max(tensor, half),
        "integer": kernel.integer * family.integer_cycles,
        "IMAD": kernel.multiply * family.multiply_cycles,
    }
    name = max(pipes, key=lambda key: pipes[key])
    return name, pipes[name] / _SUB_CORES


def pipe_cycles(kernel: Kernel, family: Family) -> float:
    """Cycles that an iteration of one warp occupies the busiest pipe."""
    return busiest_pipe(kernel, family)[1]


def l1_bytes(kernel: Kernel, family: Family, resident: int) -> int:
    """What shared memory leaves to L1."""
    used = resident * kernel.shared_bytes
    carveout = next(size for size in family.carveouts_kib if size * _KIB >= used)
    return (family.unified_kib - carveout) * _KIB


def iteration_cycles(kernel: Kernel, family: Family, missing: float) -> float:
    """Cycles of an iteration of a lone warp, for the fraction of x that is not in L1 yet."""
    in_l1 = 0.0 if kernel.is_general else 1 - missing
    x_latency = family.l2_latency + (family.l1_latency - family.l2_latency) * in_l1
    # Waits for x stand between the loads of the next unit and the wait for them: they cover its latency too.
    uncovered = kernel.serial_cycles(0) - kernel.cover_cycles
    return max(kernel.serial_cycles(x_latency), family.memory_latency + uncovered)


def wave_terms(kernel: Kernel, figures: Figures, m: int, k: int, blocks: int, missing: float) -> Terms:
    """Terms of blocks that run at once.

    Args:
        kernel: The kernel.
        figures: The card.
        m: Rows of x.
        k: Columns of x.
        blocks: Blocks, spread over all multiprocessors.
        missing: Fraction of x that is not in L1 yet.
    """
    family = figures.family
    units = kernel.units(k)
    on_busiest = -(-blocks // figures.multiprocessors)
    iteration = iteration_cycles(kernel, family, missing)
    # The first load of weight and, before the store, that of the row factors: nothing hides these two.
    fill = 2 * family.memory_latency
    strips = blocks / kernel.token_blocks(m)
    lines = kernel.lines(m) * family.line_cycles + kernel.shared_wavefronts
    # A strip kernel's blocks share x in L1. A general one's each stage it, and all but one reread the strip.
    from_l2 = _x_bytes(kernel, m, k) * missing
    if kernel.is_general:
        again = kernel.strip * k * NVFP4_BYTES * (1 - 1 / kernel.token_blocks(m))
        from_l2 = on_busiest * (_x_bytes(kernel, m, k) + again)
    return Terms(
        memory=strips * _strip_bytes(kernel, m, k) / figures.read_bytes_per_cycle,
        latency=kernel.iterations(k) * iteration + fill,
        pipes=on_busiest * units * pipe_cycles(kernel, family),
        l1=on_busiest * units * lines,
        l2=from_l2 / family.l2_bytes,
    )


def _strip_bytes(kernel: Kernel, m: int, k: int) -> float:
    """What a strip moves through memory: its weight and, where there are many rows, its part of y."""
    padded = -(-k // kernel.k_padding) * kernel.k_padding
    y = m * kernel.strip * _HALF_BYTES if kernel.is_general else 0
    return padded * kernel.strip * NVFP4_BYTES + y


def predict(kernel: Kernel, figures: Figures, m: int, n: int, k: int) -> Prediction:
    """Predict one launch: waves of as many blocks as fit, one after the other, on cold caches."""
    family = figures.family
    resident = resident_blocks(kernel, family)
    capacity = l1_bytes(kernel, family, resident)
    left = -(-n // kernel.strip) * kernel.token_blocks(m)
    terms, missing = Terms(0, 0, 0, 0, 0), 1.0
    while left > 0:
        blocks = min(left, resident * figures.multiprocessors)
        terms += wave_terms(kernel, figures, m, k, blocks, missing)
        left -= blocks
        missing = max(0.0, 1 - capacity / _x_bytes(kernel, m, k))
    cycles_of_us = figures.clock_ghz * 1e3
    fixed = LAUNCH_US + (family.start_cycles + family.memory_latency) / cycles_of_us
    parts = {
        "memory": terms.memory / cycles_of_us,
        "latency": terms.latency / cycles_of_us,
        "pipes": terms.pipes / cycles_of_us,
        "L1": terms.l1 / cycles_of_us,
        "L2": terms.l2 / cycles_of_us,
        "fixed": fixed,
    }
    return Prediction(
        us=fixed + terms.combined / cycles_of_us,
        nbytes=n * k * NVFP4_BYTES,
        pipe=busiest_pipe(kernel, family)[0],
        parts_us=parts,
    )


def bound_many_rows(figures: Figures, n: int, k: int) -> Prediction:
    """Least time of more rows than were compared: the weight once through memory, and one launch."""
    nbytes = n * k * NVFP4_BYTES
    memory = nbytes / figures.read_gb_s / 1e3
    parts = {"memory": memory, "fixed": LAUNCH_US}
    return Prediction(memory + LAUNCH_US, nbytes, "none", parts)


def _x_bytes(kernel: Kernel, m: int, k: int) -> int:
    return min(m, kernel.token_tiles * TILE_ROWS) * k * _HALF_BYTES
