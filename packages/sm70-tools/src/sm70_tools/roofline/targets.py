"""What the project asks of a V100, beside what the model says and what an even spread would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_tools.roofline.cards import LAUNCH_US
from sm70_tools.roofline.kernel import NVFP4_BYTES, general_kernel
from sm70_tools.roofline.model import Terms, iteration_cycles, pipe_cycles
from sm70_tools.roofline.predictions import Row, predict_rows

if TYPE_CHECKING:
    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.kernel import Kernel

TARGETS: dict[tuple[int, int], dict[int, float]] = {
    (17408, 5120): {1: 0.92, 8: 0.92, 16: 0.86, 32: 0.60, 64: 0.35},
    (5120, 8704): {1: 0.85, 8: 0.85, 16: 0.78, 32: 0.60, 64: 0.35},
    (4096, 4096): {1: 0.72, 8: 0.72, 16: 0.66, 32: 0.48, 64: 0.30},
}
"""N x K to rows of x to the least share of the card's read bandwidth, with the tensor port at 65 %."""

_EVEN_KERNELS = ("general_nvfp4_t2_n1_k8", "general_nvfp4_t4_n2_k4", "general_nvfp4_t8_n2_k4")


@dataclass(frozen=True)
class Judged:
    """One target and the prediction beside it.

    Attributes:
        row: The prediction, with the chosen kernel.
        target: Least share of the read bandwidth.
        share: The predicted share.
        even_share: The share if all multiprocessors had the same work in one wave; None up to 8 rows.
    """

    row: Row
    target: float
    share: float
    even_share: float | None

    @property
    def is_met(self) -> bool:
        """Whether the prediction itself reaches the target."""
        return self.share >= self.target

    @property
    def largest_parts(self) -> list[tuple[str, float]]:
        """The two largest parts of the prediction with their microseconds, each as if it were alone."""
        parts = self.row.prediction.parts_us
        names = sorted(parts, key=lambda name: -parts[name])[:2]
        return [(self.row.prediction.title_of(name), parts[name]) for name in names]


def judge(figures: Figures) -> list[Judged]:
    """All targets beside the predictions for a card."""
    found = []
    for (n, k), shares in TARGETS.items():
        for row in predict_rows(figures, ((n, k),), tuple(shares)):
            even = _even_us(figures, row.m, n, k)
            share = row.prediction.gb_s / figures.read_gb_s
            even_share = None if even is None else n * k * NVFP4_BYTES / even / 1e3 / figures.read_gb_s
            found.append(Judged(row, shares[row.m], share, even_share))
    return found


def _even_us(figures: Figures, m: int, n: int, k: int) -> float | None:
    """Least time of a general kernel whose work were spread evenly over all multiprocessors in one wave."""
    kernels = [general_kernel(figures.family.architecture, name) for name in _EVEN_KERNELS]
    times = [_even_kernel_us(item, figures, m, n, k) for item in kernels if m > 8 and item.rows <= m]
    return min(times, default=None)


def _even_kernel_us(kernel: Kernel, figures: Figures, m: int, n: int, k: int) -> float:
    family = figures.family
    units = n / kernel.strip * kernel.token_blocks(m) * kernel.units(k) / figures.multiprocessors
    lines = kernel.lines(m) * family.line_cycles + kernel.shared_wavefronts
    terms = Terms(
        memory=n * k * NVFP4_BYTES / figures.read_bytes_per_cycle,
        latency=units / kernel.warps * iteration_cycles(kernel, family, 1.0) + 2 * family.memory_latency,
        pipes=units * pipe_cycles(kernel, family),
        l1=units * lines,
        l2=0.0,
    )
    cycles = family.start_cycles + family.memory_latency + terms.combined
    return LAUNCH_US + cycles / (figures.clock_ghz * 1e3)
