"""Cards and their families as the model sees them: published figures, assumptions, fitted constants."""

from __future__ import annotations

from dataclasses import dataclass

from sm70_policy.capability import Card, find_card
from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError

OVERLAP = 2.0
"""Exponent that combines the terms of the model; 1 would add them up, infinity would take the largest.

Chosen: with the other constants fitted anew, the largest error is 0.12 to 0.18 for exponents from 1.7 to 2.3,
on the H200's rows and on the public figures of either card. Below, the figures are missed by more; above, the
rows.
"""

LAUNCH_US = 0.85
"""One kernel node of a CUDA graph: measured on an H200 with an empty kernel, taken over for the others."""

L2_BYTES_PER_CYCLE = 64.0
"""What one multiprocessor can get from L2 each cycle: nominal for all three families."""

L2_SHARED_BYTES = 20.0
"""What each gets when all ask, on V100 and T4: public microbenchmarks, not checked here.

The H200's rows of the general kernel fit the nominal figure better, so that choices must hold for both.
"""

VOLTA_TENSOR_EFFICIENCY = 0.65
"""Part of its HMMA peak that the tensor port of 7.x delivers.

Dense FP16 GEMMs of others reach 0.61 to 0.64 of it on a V100: public, not checked here. 7.5 takes it over.
"""

REGISTERS = 65536
"""Registers of a multiprocessor: programming guide, all three families."""


@dataclass(frozen=True)
class Compared:
    """A set of comparisons and the range of the errors of predicted times in it; a test recomputes both ends.

    Attributes:
        what: What the model was compared with.
        low: The most that a prediction was too short, as a fraction: -0.1 is a tenth.
        high: The most that it was too long.
    """

    what: str
    low: float
    high: float

    @property
    def text(self) -> str:
        """The range in words."""
        return f"{self.low:+.0%} to {self.high:+.0%} on {self.what}"


@dataclass(frozen=True)
class Family:
    """What cards of one architecture share. Cycles are those of the multiprocessor's clock.

    Attributes:
        architecture: Key of the table of loops.
        max_warps: Most resident warps of a multiprocessor.
        carveouts_kib: Sizes that shared memory can have.
        unified_kib: L1 and shared memory together.
        block_kib: Most shared memory of one block, in KiB.
        tensor_fmas: Most multiply-adds of a sub-core's tensor port in one cycle, FP16 with sums in FP32.
        tensor_efficiency: Part of that peak which a kernel gets.
        half_cycles: Cycles that packed FP16 arithmetic occupies its pipe.
        port_is_shared: Whether packed FP16 arithmetic goes through the tensor port.
        integer_cycles: Cycles of a logic, shift or integer addition instruction.
        multiply_cycles: Cycles of an IMAD.
        l1_latency: Cycles until a load that hits L1 has its data.
        l2_latency: The same for L2.
        memory_latency: The same for memory under load. Fitted.
        line_cycles: Cycles of L1 for one 128-byte line that a quarter of a warp touches. Fitted.
        start_cycles: Start and end of a launch, beyond its latencies. Fitted on the H200 and taken over.
        fitted: The comparisons that constants were fitted to.
        free: Those that none was fitted to.
        l2_bytes: Bytes that one multiprocessor gets from L2 in a cycle.
    """

    architecture: str
    max_warps: int
    carveouts_kib: tuple[int, ...]
    unified_kib: int
    block_kib: int
    tensor_fmas: float
    tensor_efficiency: float
    half_cycles: float
    port_is_shared: bool
    integer_cycles: float
    multiply_cycles: float
    l1_latency: float
    l2_latency: float
    memory_latency: float
    line_cycles: float
    start_cycles: float
    fitted: Compared
    free: Compared
    l2_bytes: float = L2_BYTES_PER_CYCLE


START_CYCLES = 1693.0

VOLTA = Family(
    architecture="70",
    max_warps=64,
    carveouts_kib=(0, 8, 16, 32, 64, 96),
    unified_kib=128,
    block_kib=96,
    tensor_fmas=128.0,
    tensor_efficiency=VOLTA_TENSOR_EFFICIENCY,
    half_cycles=2.0,
    port_is_shared=True,
    integer_cycles=2.0,
    multiply_cycles=2.0,
    l1_latency=28.0,
    l2_latency=193.0,
    memory_latency=833.0,
    line_cycles=0.678,
    start_cycles=START_CYCLES,
    fitted=Compared("6 public figures of QPN2 and QPN on a V100", -0.13, 0.17),
    free=Compared("5 others of QPN", 0.02, 0.22),
)

TURING = Family(
    architecture="75",
    max_warps=32,
    carveouts_kib=(32, 64),
    unified_kib=96,
    block_kib=64,
    tensor_fmas=128.0,
    tensor_efficiency=VOLTA_TENSOR_EFFICIENCY,
    half_cycles=2.0,
    port_is_shared=True,
    integer_cycles=2.0,
    multiply_cycles=2.0,
    l1_latency=32.0,
    l2_latency=188.0,
    memory_latency=665.0,
    line_cycles=1.700,
    start_cycles=START_CYCLES,
    fitted=Compared("12 public figures of QPN2 on an RTX 8000", -0.12, 0.17),
    free=Compared("6 others of packed QPN2", -0.18, 0.14),
)

HOPPER = Family(
    architecture="90",
    max_warps=64,
    carveouts_kib=(0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    unified_kib=256,
    block_kib=227,
    tensor_fmas=512.0,
    tensor_efficiency=1.0,
    half_cycles=1.0,
    port_is_shared=False,
    integer_cycles=2.0,
    multiply_cycles=2.0,
    l1_latency=33.0,
    l2_latency=273.0,
    memory_latency=1242.0,
    line_cycles=1.779,
    start_cycles=START_CYCLES,
    fitted=Compared("96 measured rows of these kernels on an H200", -0.14, 0.15),
    free=Compared("32 of them, M = 16 and 32, by constants fitted to the others", -0.13, 0.19),
)


GENERAL = Compared("8 measured rows of the general kernel, M = 64, on an H200", -0.09, 0.0)
"""By constants that the strip kernels' rows were fitted to; none is the general kernel's own."""


@dataclass(frozen=True)
class Figures:
    """One card.

    Attributes:
        key: Name for command lines, as in `sm70_policy.capability.CARDS`.
        family: Its architecture.
        multiprocessors: Their number: data sheet.
        clock_ghz: Clock of the multiprocessors.
        clock_origin: Where that is from.
        read_gb_s: Bandwidth of reading memory once, in 10^9 bytes a second: the ceiling.
        read_origin: Where that is from.
    """

    key: str
    family: Family
    multiprocessors: int
    clock_ghz: float
    clock_origin: str
    read_gb_s: float
    read_origin: str

    @property
    def card(self) -> Card:
        """The card with its name and its data sheet's bandwidth."""
        return find_card(self.key)

    @property
    def read_bytes_per_cycle(self) -> float:
        """Bytes that memory delivers in one cycle of the multiprocessors."""
        return self.read_gb_s / self.clock_ghz


_BOOST = "data sheet, boost"
_SKINNY = "measured by the authors of v100-skinny"

FIGURES: tuple[Figures, ...] = (
    Figures("v100", VOLTA, 80, 1.53, _BOOST, 879.0, _SKINNY),
    Figures("v100-32gb", VOLTA, 80, 1.53, _BOOST, 879.0, "that of the 16 GB card"),
    Figures("rtx8000", TURING, 72, 1.77, _BOOST, 601.0, _SKINNY),
    Figures(
        "t4", TURING, 40, 1.1, "assumed: its 70 W hold no boost", 270.0, "assumed: 84 % of its data sheet"
    ),
    Figures("h200", HOPPER, 132, 1.98, _BOOST, 4463.0, "measured, benchmarks/results/h200"),
)


def find_figures(key: str) -> Figures:
    """Return the figures of a card.

    Raises:
        ArgumentError: The model has no figures for it; the message lists those that it has.
    """
    for figures in FIGURES:
        if figures.key == key.strip().lower():
            return figures
    raise ArgumentError(
        describe(
            asked=f"a prediction for the card {key!r}",
            allowed=", ".join(figures.key for figures in FIGURES),
            fix="Pass one of these names",
        )
    )
