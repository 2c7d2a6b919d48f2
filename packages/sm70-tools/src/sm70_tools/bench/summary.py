"""Measurements as lines for the terminal and as a Markdown document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_tools.bench.cases import MATMUL_ROOF_FROM
from sm70_tools.bench.contenders import OURS

if TYPE_CHECKING:
    from sm70_tools.bench.cases import Shape
    from sm70_tools.bench.linear import Failure, Outcome, Request
    from sm70_tools.bench.roof import Roofs
    from sm70_tools.bench.rows import Measurement, Provenance

_NO_NUMBER = "-"


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a peer's time over ours.

    Attributes:
        ratio: The mean; above 1 the suite is faster.
        count: Shapes that it is taken over.
    """

    ratio: float
    count: int

    def __str__(self) -> str:
        return f"{self.ratio:.2f} over {self.count} shape{'' if self.count == 1 else 's'}"


class Results:
    """Measurements, to be asked for by shape, row count and variant."""

    def __init__(self, outcome: Outcome) -> None:
        """Index an outcome."""
        self._failures = outcome.failures
        self._found = {(item.shape, item.m, item.variant): item for item in outcome.measurements}

    def get(self, shape: Shape, m: int, variant: str) -> Measurement | None:
        """The measurement, where there is one."""
        return self._found.get((shape, m, variant))

    def ratio(self, shape: Shape, m: int, peer: str) -> float | None:
        """A peer's median time over ours, where both were measured."""
        ours, theirs = self.get(shape, m, OURS), self.get(shape, m, peer)
        return theirs.timing.median / ours.timing.median if ours and theirs else None

    def reason(self, shape: Shape, m: int, variant: str) -> str:
        """Why there is no number, in so few words as a table's cell holds."""
        for failure in self._failures:
            if failure.concerns(variant, shape, m):
                return failure.reason.replace("|", "/")[:60]
        return _NO_NUMBER

    def mean(self, shapes: tuple[Shape, ...], m: int, peer: str) -> Mean | None:
        """Geometric mean of the ratios of all shapes that have one."""
        ratios = [ratio for shape in shapes if (ratio := self.ratio(shape, m, peer)) is not None]
        if not ratios:
            return None
        return Mean(math.exp(math.fsum(map(math.log, ratios)) / len(ratios)), len(ratios))


def matmul_share(item: Measurement, roofs: Roofs) -> float | None:
    """Share of the matrix product's roof, for row counts that are set against it."""
    return roofs.matmul_share(item.flops, item.timing.median) if item.m >= MATMUL_ROOF_FROM else None


def line(item: Measurement, roofs: Roofs, ours: Measurement | None) -> str:
    """One measurement for the terminal."""
    timing = item.timing
    product = matmul_share(item, roofs)
    spread = f"[{timing.p20:.2f}, {timing.p80:.2f}]"
    parts = [
        f"{item.shape!s:>12} M={item.m:<4} {item.variant:<18} {timing.median:9.2f} us {spread}",
        f"{_read_share(item, roofs):>6} of read",
    ]
    if product is not None:
        parts.append(f"{product:6.1%} of matmul")
    if ours is not None and item is not ours:
        parts.append(f"{timing.median / ours.timing.median:.2f}x ours")
    return "  ".join([*parts, f"error {item.error:.1e}"])


def failure_line(failure: Failure) -> str:
    """One failure for the terminal."""
    place = "" if failure.shape is None else f" {failure.shape}"
    place += "" if failure.m is None else f" M={failure.m}"
    return f"not measured: {failure.variant}{place}: {failure.reason}"


def closing_lines(outcome: Outcome, request: Request) -> list[str]:
    """Geometric means, and what the time limit left out."""
    results = Results(outcome)
    lines = []
    for m in request.rows:
        means = {peer.name: results.mean(request.shapes, m, peer.name) for peer in request.peers}
        found = ", ".join(f"{name} {mean}" for name, mean in means.items() if mean is not None)
        if found:
            lines.append(f"M={m:<4} geometric mean of peer's time over ours: {found}")
    if outcome.missing:
        left_out = ",".join(map(str, outcome.missing))
        done = len(request.shapes) - len(outcome.missing)
        lines.append(
            f"The time limit ended the run after {done} of {len(request.shapes)} shapes. "
            f"Measure the others with --shapes {left_out}"
        )
    return lines


def markdown(outcome: Outcome, request: Request, provenance: Provenance, roofs: Roofs) -> str:
    """The whole run as a Markdown document."""
    origin = (
        f"Commit {provenance.commit}, {provenance.date}, driver {provenance.driver}, CUDA {provenance.cuda}, "
        f"torch {provenance.torch}, seed {request.seed}. The card {roofs}. Median of {request.rounds} "
        "replays in microseconds a call, with the 20th and 80th percentile; every result was compared with "
        "float64."
    )
    blocks = [
        f"# NVFP4 linear on {provenance.gpu}",
        origin,
        _table(*_main_table(outcome, request, roofs)),
    ]
    means = _mean_table(outcome, request)
    if means:
        blocks += ["Geometric mean over the shapes of a peer's time over ours:", means]
    variants = _variant_table(outcome, request, roofs)
    if variants:
        blocks += ["Each compiled kernel by itself:", variants]
    blocks += [f"- {failure_line(failure)}" for failure in outcome.failures]
    if outcome.missing:
        blocks.append(f"Left out by the time limit: {', '.join(map(str, outcome.missing))}.")
    return "\n\n".join(blocks) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _main_table(outcome: Outcome, request: Request, roofs: Roofs) -> tuple[list[str], list[list[str]]]:
    results = Results(outcome)
    header = ["N x K", "M", "ours us", "of read roof", "of matmul roof"]
    for peer in request.peers:
        header += [f"{peer.name} us", f"{peer.name} / ours"]
    rows = []
    for shape in (shape for shape in request.shapes if shape not in outcome.missing):
        for m in request.rows:
            cells = [str(shape), str(m), *_time_cells(results, shape, m, OURS, roofs)]
            for peer in request.peers:
                theirs, ratio = results.get(shape, m, peer.name), results.ratio(shape, m, peer.name)
                cells.append(_times(theirs) if theirs else results.reason(shape, m, peer.name))
                cells.append(_NO_NUMBER if ratio is None else f"{ratio:.2f}")
            rows.append(cells)
    return header, rows


def _time_cells(results: Results, shape: Shape, m: int, variant: str, roofs: Roofs) -> list[str]:
    item = results.get(shape, m, variant)
    if item is None:
        return [results.reason(shape, m, variant), _NO_NUMBER, _NO_NUMBER]
    product = matmul_share(item, roofs)
    return [
        _times(item),
        _read_share(item, roofs),
        _NO_NUMBER if product is None else f"{product:.1%}",
    ]


def _read_share(item: Measurement, roofs: Roofs) -> str:
    return f"{roofs.read_share(item.nbytes, item.timing.median):.1%}"


def _times(item: Measurement) -> str:
    return f"{item.timing.median:.2f} ({item.timing.p20:.2f} to {item.timing.p80:.2f})"


def _mean_table(outcome: Outcome, request: Request) -> str:
    results = Results(outcome)
    rows = []
    for m in request.rows:
        means = [results.mean(request.shapes, m, peer.name) for peer in request.peers]
        if any(means):
            rows.append([str(m), *(str(mean) if mean else _NO_NUMBER for mean in means)])
    return _table(["M", *(f"{peer.name} / ours" for peer in request.peers)], rows) if rows else ""


def _variant_table(outcome: Outcome, request: Request, roofs: Roofs) -> str:
    known = {OURS, *(peer.name for peer in request.peers)}
    rows = [
        [str(item.shape), str(item.m), item.variant, _times(item), _read_share(item, roofs)]
        for item in outcome.measurements
        if item.variant not in known
    ]
    return _table(["N x K", "M", "kernel", "us", "of read roof"], rows) if rows else ""
