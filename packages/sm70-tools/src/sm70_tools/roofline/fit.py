"""Fits the model's constants: the H200's to measured rows, those of Volta and Turing to public figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sm70_tools.roofline.cards import find_figures
from sm70_tools.roofline.compare import Comparison, compare_public, compare_row
from sm70_tools.roofline.references import PUBLIC_FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.compare import MeasuredRow

MEASURED_CONSTANTS = ("memory_latency", "line_cycles", "start_cycles")
"""Fitted to measured rows. The last is taken over for all families."""

PUBLIC_CONSTANTS = ("memory_latency", "line_cycles")
"""Fitted to public figures, for each family."""

_STEPS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005)


def loss(comparisons: Sequence[Comparison]) -> float:
    """Sum of fourth powers of the logarithmic errors: what is worst counts most."""
    return float(sum(math.log1p(item.error) ** 4 for item in comparisons))


def measured_loss(figures: Figures, rows: Sequence[MeasuredRow]) -> float:
    """Loss of a card on measured rows."""
    return loss([compare_row(row, figures) for row in rows])


def public_loss(figures: Figures) -> float:
    """Loss of a card on the public figures that serve for fitting."""
    used = [public for public in PUBLIC_FIGURES if public.card == figures.key and public.fitted]
    return loss([compare_public(public, figures) for public in used])


def descend(start: Figures, names: Sequence[str], objective: Callable[[Figures], float]) -> Figures:
    """Change one constant after the other by shrinking factors for as long as the loss falls."""
    best, least = start, objective(start)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for name in names:
                for factor in (1 + step, 1 / (1 + step)):
                    trial = with_constants(best, {name: getattr(best.family, name) * factor})
                    value = objective(trial)
                    if value < least * (1 - 1e-6):
                        best, least, improved = trial, value, True
    return best


def with_constants(figures: Figures, constants: dict[str, float]) -> Figures:
    """The card with other constants: any of MEASURED_CONSTANTS."""
    family = figures.family
    changed = replace(
        family,
        memory_latency=constants.get("memory_latency", family.memory_latency),
        line_cycles=constants.get("line_cycles", family.line_cycles),
        start_cycles=constants.get("start_cycles", family.start_cycles),
    )
    return replace(figures, family=changed)


def fit_all(rows: Sequence[MeasuredRow]) -> dict[str, dict[str, float]]:
    """Fitted constants by card; rows are those of the H200."""
    hopper = descend(find_figures("h200"), MEASURED_CONSTANTS, lambda item: measured_loss(item, rows))
    common = {"start_cycles": hopper.family.start_cycles}
    fitted = {"h200": hopper}
    for key in ("v100", "rtx8000"):
        start = with_constants(find_figures(key), common)
        fitted[key] = descend(start, PUBLIC_CONSTANTS, public_loss)
    return {
        key: {name: getattr(figures.family, name) for name in MEASURED_CONSTANTS}
        for key, figures in fitted.items()
    }
