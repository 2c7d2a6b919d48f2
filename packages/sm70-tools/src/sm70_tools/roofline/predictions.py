"""Predictions of the suite's own choice of kernels, row by row, with the error to print beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_tools.roofline.cards import GENERAL, HOPPER
from sm70_tools.roofline.kernel import MODELLED_ROWS, chosen_kernel
from sm70_tools.roofline.model import bound_many_rows, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sm70_tools.roofline.cards import Compared, Figures
    from sm70_tools.roofline.model import Prediction

LABEL = "predicted by the model, not measured"

SHAPES: tuple[tuple[int, int], ...] = (
    *((5120, 1536), (8704, 5120), (5120, 4352), (4096, 5120)),
    *((17408, 5120), (5120, 8704), (4096, 4096), (14336, 4096)),
)
"""N x K: layers of 27B and 8B models, whole or as one of four tensor-parallel ranks."""

TOKENS: tuple[int, ...] = (1, 8, 16, 32, 64)

OTHER = f"more than {MODELLED_ROWS} rows: general kernel or dense GEMM, not modelled"


@dataclass(frozen=True)
class Row:
    """One prediction.

    Attributes:
        n: Output features.
        k: Input features.
        m: Rows of x.
        kernel: The kernel that the suite launches; None where it is not one that is modelled.
        prediction: What the model says; a bound where `kernel` is None.
    """

    n: int
    k: int
    m: int
    kernel: str | None
    prediction: Prediction

    def cells(self, figures: Figures) -> tuple[str, ...]:
        """The row as text."""
        us = self.prediction.us
        low, high = error_range(figures)
        bound = ">= " if self.kernel is None else ""
        at_most = "<= " if self.kernel is None else ""
        return (
            f"{self.n}x{self.k}",
            str(self.m),
            self.kernel or OTHER,
            f"{bound}{us:.1f}",
            "-" if self.kernel is None else f"{us / (1 + high):.1f} to {us / (1 + low):.1f}",
            f"{at_most}{self.prediction.gb_s:.0f}",
            f"{at_most}{self.prediction.gb_s / figures.read_gb_s:.0%}",
            self.prediction.limit,
        )

    def to_json(self, figures: Figures) -> dict[str, Any]:
        """The row for programs."""
        prediction = self.prediction
        return {
            "n": self.n,
            "k": self.k,
            "m": self.m,
            "kernel": self.kernel or OTHER,
            "is_bound": self.kernel is None,
            "us": round(prediction.us, 3),
            "gb_s": round(prediction.gb_s, 1),
            "fraction_of_read": round(prediction.gb_s / figures.read_gb_s, 4),
            "limit": prediction.limit,
            "parts_us": {name: round(value, 3) for name, value in prediction.parts_us.items()},
        }


def predict_rows(
    figures: Figures, shapes: Sequence[tuple[int, int]], tokens: Sequence[int]
) -> tuple[Row, ...]:
    """Predict every shape for every number of rows.

    Raises:
        ArgumentError: sm70-kernels-cuda is not installed, or it takes no such shape.
    """
    return tuple(_row(figures, m, n, k) for n, k in shapes for m in tokens)


def _row(figures: Figures, m: int, n: int, k: int) -> Row:
    kernel = chosen_kernel(figures, m, n, k)
    if kernel is None:
        return Row(n, k, m, None, bound_many_rows(figures, n, k))
    return Row(n, k, m, kernel.name, predict(kernel, figures, m, n, k))


def comparisons_of(figures: Figures) -> tuple[Compared, ...]:
    """What stands for the error of a prediction: rows of the same kernels, and the card's own family."""
    families = (HOPPER,) if figures.family is HOPPER else (HOPPER, figures.family)
    return (*(item for family in families for item in (family.fitted, family.free)), GENERAL)


def error_range(figures: Figures) -> tuple[float, float]:
    """The widest range of errors of predicted times in all comparisons, as fractions."""
    compared = comparisons_of(figures)
    return min(item.low for item in compared), max(item.high for item in compared)


def error_text(figures: Figures) -> str:
    """The errors of every comparison in words."""
    families = (HOPPER,) if figures.family is HOPPER else (HOPPER, figures.family)
    parts = [f"{family.fitted.text} (fitted to), {family.free.text} (not fitted to)" for family in families]
    return "; ".join([*parts, f"{GENERAL.text} (not fitted to)"])
