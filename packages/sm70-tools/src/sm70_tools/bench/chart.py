"""Draws rows of measured numbers: times, and shares of the read roof, ours beside the peers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import describe
from sm70_tools.bench.errors import RowFileError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

COLORS = {"ours": "#1b6ca8", "humming": "#d1495b", "marlin": "#edae49", "torch": "#8d99ae"}
"""Variants that are drawn, in this order. Single compiled kernels are left to the tables."""

_GROUP_WIDTH = 0.82
_DOTS_PER_INCH = 130


@dataclass(frozen=True)
class Selection:
    """The rows of one chart: one card, one commit, the newest of each kind.

    Attributes:
        title: Card, commit and days.
        op: What was measured.
        rows: By shape, row count and variant.
    """

    title: str
    op: str
    rows: dict[tuple[str, int, str], dict[str, str]]

    @property
    def shapes(self) -> list[str]:
        """Shapes in the order of the file."""
        return list(dict.fromkeys(shape for shape, _, _ in self.rows))

    @property
    def row_counts(self) -> list[int]:
        """M, ascending."""
        return sorted({m for _, m, _ in self.rows})

    @property
    def variants(self) -> list[str]:
        """Variants in the order of COLORS."""
        present = {variant for _, _, variant in self.rows}
        return [variant for variant in COLORS if variant in present]

    def format_of(self, variant: str) -> str:
        """Format of a variant's weights."""
        return next(row["format"] for (_, _, name), row in self.rows.items() if name == variant)


def require_matplotlib() -> None:
    """Make sure that charts can be drawn.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(
            describe(
                asked="a chart, for which matplotlib is not installed",
                allowed="an installation with the extra `bench`",
                fix="pip install sm70-tools[bench]",
            )
        )


def select(
    rows: Iterable[dict[str, str]], commit: str | None = None, row_counts: Sequence[int] = ()
) -> Selection:
    """Choose what to draw.

    Args:
        rows: Rows of a file, the newest last.
        commit: Commit whose rows are drawn; that of the last row when None.
        row_counts: M to draw; all when empty.

    Raises:
        RowFileError: Nothing is left.
    """
    drawable = [row for row in rows if row["variant"] in COLORS]
    wanted = commit or (drawable[-1]["commit"] if drawable else "")
    chosen = [
        row
        for row in drawable
        if row["commit"] == wanted and (not row_counts or int(row["m"]) in set(row_counts))
    ]
    if not chosen:
        commits = ", ".join(dict.fromkeys(row["commit"] for row in drawable)) or "none"
        raise RowFileError(
            describe(
                asked=f"a chart of commit {wanted or 'unknown'} with M of {list(row_counts) or 'any value'}, "
                "for which there is no row",
                allowed=f"commits {commits}",
                fix="Choose with --commit and --m",
            )
        )
    gpu, op = chosen[-1]["gpu"], chosen[-1]["op"]
    kept = {
        (row["shape"], int(row["m"]), row["variant"]): row
        for row in chosen
        if (row["gpu"], row["op"]) == (gpu, op)
    }
    days = " and ".join(sorted({row["date"][:10] for row in kept.values()}))
    return Selection(f"{op} on {gpu}, commit {wanted}, {days}", op, kept)


def draw(selection: Selection, path: Path) -> None:
    """Write a PNG with two panels for each row count: microseconds, and percent of the read roof.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    counts = selection.row_counts
    width = max(9.0, 2.0 + 1.3 * len(selection.shapes))
    figure = Figure(figsize=(width, 1.2 + 2.6 * len(counts)), layout="constrained")
    panels = figure.subplots(len(counts), 2, squeeze=False)
    for m, (times, shares) in zip(counts, panels, strict=True):
        _draw_bars(times, selection, m, _microseconds, _short)
        _draw_bars(shares, selection, m, _read_percent, "{:.0f}".format)
        times.set_ylabel(f"M = {m}\nus a call", fontsize=9)
        shares.set_ylabel("% of read roof", fontsize=9)
        shares.axhline(100, color="#555555", linewidth=0.8, linestyle=":")
    panels[0][0].set_title("Time: lower is better", fontsize=10)
    panels[0][1].set_title("Weight bytes a second, as % of the measured read roof", fontsize=10)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.suptitle(selection.title, fontsize=12)
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=_DOTS_PER_INCH)


def _microseconds(row: dict[str, str]) -> tuple[float, float, float]:
    return float(row["us_median"]), float(row["us_p20"]), float(row["us_p80"])


def _short(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def _read_percent(row: dict[str, str]) -> tuple[float, float, float]:
    median, p20, p80 = (
        100 * int(row["bytes"]) / us / 1e3 / float(row["roof_gbps"]) for us in _microseconds(row)
    )
    return median, p80, p20


def _draw_bars(
    axes: Any,  # noqa: ANN401 - matplotlib is an extra, and types are checked without it
    selection: Selection,
    m: int,
    values_of: Callable[[dict[str, str]], tuple[float, float, float]],
    label: Callable[[float], str],
) -> None:
    """Draw one panel: a group of bars for each shape, one bar with its spread for each variant."""
    variants = selection.variants
    bar_width = _GROUP_WIDTH / len(variants)
    for i, variant in enumerate(variants):
        found = [
            (position, values_of(selection.rows[shape, m, variant]))
            for position, shape in enumerate(selection.shapes)
            if (shape, m, variant) in selection.rows
        ]
        offset = (i - (len(variants) - 1) / 2) * bar_width
        bars = axes.bar(
            [position + offset for position, _ in found],
            [middle for _, (middle, _, _) in found],
            bar_width * 0.94,
            color=COLORS[variant],
            label=f"{variant} ({selection.format_of(variant)})",
            yerr=[
                [max(0.0, middle - low) for _, (middle, low, _) in found],
                [max(0.0, high - middle) for _, (middle, _, high) in found],
            ],
            error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
        )
        axes.bar_label(bars, labels=[label(middle) for _, (middle, _, _) in found], fontsize=7, padding=1)
    axes.set_xticks(range(len(selection.shapes)), selection.shapes, fontsize=8, rotation=20)
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(x=0.01, y=0.12)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
