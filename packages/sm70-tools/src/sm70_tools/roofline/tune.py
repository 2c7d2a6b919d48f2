"""The tuning table of sm70-kernels-cuda: where the model or measured rows beat the launch's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sm70_tools.roofline.cards import L2_SHARED_BYTES, find_figures
from sm70_tools.roofline.kernel import general_kernel, strip_kernel
from sm70_tools.roofline.model import predict
from sm70_tools.roofline.predictions import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.compare import MeasuredRow

CARDS = ("v100", "rtx8000", "t4")
"""Cards that the model speaks for: the suite is for them, and nobody measured on them yet."""

LEAST_GAIN = 0.05
"""A row must save this part of the time of what the arithmetic chooses, for either bandwidth of L2."""

RANGES: tuple[tuple[int, int], ...] = (
    *((1, 1), (2, 4), (5, 8), (9, 16), (17, 24), (25, 32)),
    *((33, 40), (41, 48), (49, 56), (57, 64)),
)
"""Ranges of rows of x that one choice serves: most end with a token tile."""

ORIGIN = "python -m sm70_tools.roofline tune"
MEASURED_ORIGIN = "benchmarks/results/h200/strip_kernels.csv"


@dataclass(frozen=True)
class Stamp:
    """When and for which kernels a table is made: the day in ISO 8601 and an abbreviated commit."""

    date: str
    commit: str


def build_table(measured: Sequence[MeasuredRow], stamp: Stamp) -> Any:  # noqa: ANN401 - an extra's type
    """The table for the installed kernels, a `sm70_kernels_cuda.tuning.table.TuningTable`.

    Args:
        measured: Rows of strip kernels on an H200.
        stamp: Written to every source.
    """
    from sm70_kernels_cuda.tuning.table import Source, TuningTable

    sources, rows = {}, []
    found = [("predicted", ORIGIN, find_figures(key), predicted_rows(find_figures(key))) for key in CARDS]
    h200 = find_figures("h200")
    found.append(("measured", MEASURED_ORIGIN, h200, measured_rows(h200, measured)))
    for kind, origin, figures, choices in found:
        if choices:
            sources[f"{kind}-{figures.key}"] = Source(
                kind, figures.card.name, origin, stamp.date, stamp.commit
            )
            rows += choices
    return TuningTable(sources, tuple(rows))


def predicted_rows(figures: Figures) -> list[Any]:
    """Rows for one card where the model finds a kernel that saves LEAST_GAIN at both ends of a range."""
    rows: list[Any] = []
    for n, k in SHAPES:
        for m_min, m_max in RANGES:
            kernel = _better_kernel(figures, n, k, (m_min, m_max))
            if kernel is None:
                continue
            row = _row(figures, n, k, (m_min, m_max), kernel, "predicted")
            if rows and rows[-1].m_max + 1 == m_min and replace(rows[-1], m_min=m_min, m_max=m_max) == row:
                rows[-1] = replace(rows[-1], m_max=m_max)
            else:
                rows.append(row)
    return rows


def measured_rows(figures: Figures, measured: Sequence[MeasuredRow]) -> list[Any]:
    """Rows for one card where a measured strip kernel saved LEAST_GAIN over the one that is chosen.

    Where a cluster or warpgroup kernel runs, the strip kernels' table is not asked, and no row is made.
    """
    best: dict[tuple[int, int, int], MeasuredRow] = {}
    times = {(row.m, row.n, row.k, row.kernel): row.us for row in measured}
    for row in measured:
        key = (row.m, row.n, row.k)
        if key not in best or row.us < best[key].us:
            best[key] = row
    rows = []
    for (m, n, k), row in best.items():
        usual = times.get((m, n, k, _untuned(figures, m, n, k)))
        if not _runs_newer(figures, m, n, k) and usual is not None and row.us < usual * (1 - LEAST_GAIN):
            rows.append(_row(figures, n, k, (m, m), row.kernel, "measured"))
    return rows


def _runs_newer(figures: Figures, m: int, n: int, k: int) -> bool:
    """Whether a kernel runs that no card of 7.x has: a cluster or, for more rows, a warpgroup kernel."""
    from sm70_kernels_cuda.launch_cluster import CLUSTER_VARIANTS, choose_cluster

    if figures.family.architecture != "90":
        return False
    return m > CLUSTER_VARIANTS[-1].rows or choose_cluster(m, n, k, _card(figures)) is not None


def _better_kernel(figures: Figures, n: int, k: int, ends: tuple[int, int]) -> str | None:
    shared = replace(figures, family=replace(figures.family, l2_bytes=L2_SHARED_BYTES))
    kernel = min(_candidates(figures, ends[1]), key=lambda name: _us(figures, name, ends[1], n, k))
    for card in (figures, shared):
        for m in ends:
            usual = _us(card, _untuned(figures, m, n, k), m, n, k)
            if _us(card, kernel, m, n, k) > usual * (1 - LEAST_GAIN):
                return None
    return kernel


def _candidates(figures: Figures, m: int) -> list[str]:
    from sm70_kernels_cuda.launch import TOKEN_TILE, VARIANTS, atom_of
    from sm70_kernels_cuda.launch_general import warp_shape

    atom, card = atom_of(int(figures.family.architecture)), _card(figures)
    general = [
        item.kernel for item in warp_shape(atom).variants if item.shared_bytes(atom) <= card.shared_bytes
    ]
    return general + [item.kernel for item in VARIANTS if item.token_tiles * TOKEN_TILE >= m]


def _us(figures: Figures, kernel: str, m: int, n: int, k: int) -> float:
    of_name = strip_kernel if _family(kernel) == "strip" else general_kernel
    return predict(of_name(figures.family.architecture, kernel), figures, m, n, k).us


def _untuned(figures: Figures, m: int, n: int, k: int) -> str:
    """What the arithmetic alone chooses."""
    from sm70_kernels_cuda.choice import choose_linear
    from sm70_kernels_cuda.launch import atom_of
    from sm70_kernels_cuda.tuning.table import NO_TUNING

    number = int(figures.family.architecture)
    variant = choose_linear(
        *(m, n, k, True),
        sm_number=number,
        atom=atom_of(number),
        card=_card(figures),
        tuning=NO_TUNING,
    )
    return variant.kernel


def _row(figures: Figures, n: int, k: int, ends: tuple[int, int], kernel: str, kind: str) -> Any:  # noqa: ANN401
    from sm70_kernels_cuda.tuning.table import TuningRow

    return TuningRow(
        capability=int(figures.family.architecture),
        multiprocessors=figures.multiprocessors,
        n=n,
        k=k,
        m_min=ends[0],
        m_max=ends[1],
        family=_family(kernel),
        kernel=kernel,
        source=f"{kind}-{figures.key}",
    )


def _card(figures: Figures) -> Any:  # noqa: ANN401
    from sm70_kernels_cuda.launch_cluster import Card

    return Card(figures.multiprocessors, figures.family.block_kib * 1024)


def _family(kernel: str) -> str:
    return "general" if kernel.startswith("general") else "strip"
