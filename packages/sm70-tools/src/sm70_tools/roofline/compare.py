"""Errors of the model: against measured rows of these kernels, and against public figures of others'."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_tools.roofline.kernel import MODELLED_ROWS, NVFP4_BYTES, chosen_kernel, general_kernel, strip_kernel
from sm70_tools.roofline.model import predict
from sm70_tools.roofline.references import qpn_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.references import PublicFigure

KERNEL_PREFIX = "qpn2_nvfp4_t"
"""Rows of a benchmark's file whose variant begins so are launches of one strip kernel."""

OPERATOR = "ours"
"""Rows of this variant are calls of the operator, which chose the kernel by itself."""

GENERAL_COMMIT = "ad4f7f3"
"""Only rows of this commit are read: there the operator ran general kernels for more than STRIP_ROWS rows."""

STRIP_ROWS = 32
"""Up to so many rows of x the operator chose a strip or cluster kernel on the H200."""


@dataclass(frozen=True)
class MeasuredRow:
    """One row of a benchmark's file: a launch of a strip or general kernel, timed."""

    kernel: str
    n: int
    k: int
    m: int
    us: float


@dataclass(frozen=True)
class Comparison:
    """A prediction beside what it is compared with, both in microseconds or both in GB/s."""

    predicted: float
    reference: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.1 is a tenth too much."""
        return self.predicted / self.reference - 1


def read_rows(path: Path) -> tuple[MeasuredRow, ...]:
    """Rows of strip kernels in a benchmark's file."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(
            MeasuredRow(row["variant"], *_sizes(row["shape"]), int(row["m"]), float(row["us_median"]))
            for row in csv.DictReader(file)
            if row["variant"].startswith(KERNEL_PREFIX)
        )


def read_general_rows(path: Path, figures: Figures) -> tuple[MeasuredRow, ...]:
    """Rows of GENERAL_COMMIT in which the operator ran a general kernel, with that kernel's name."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["variant"] == OPERATOR and row["commit"] == GENERAL_COMMIT
        ]
    found = []
    for row in rows:
        (n, k), m = _sizes(row["shape"]), int(row["m"])
        if STRIP_ROWS < m <= MODELLED_ROWS:
            kernel = chosen_kernel(figures, m, n, k)
            found.append(MeasuredRow(kernel.name if kernel else "", n, k, m, float(row["us_median"])))
    return tuple(found)


def _sizes(shape: str) -> tuple[int, int]:
    n, k = shape.split("x")
    return int(n), int(k)


def compare_row(row: MeasuredRow, figures: Figures) -> Comparison:
    """Microseconds, predicted and measured."""
    of_name = strip_kernel if row.kernel.startswith(KERNEL_PREFIX) else general_kernel
    kernel = of_name(figures.family.architecture, row.kernel)
    return Comparison(predict(kernel, figures, row.m, row.n, row.k).us, row.us)


def compare_public(public: PublicFigure, figures: Figures) -> Comparison:
    """GB/s, predicted and published."""
    us = sum(
        predict(qpn_kernel(public.kernel, public.m, n, k), figures, public.m, n, k).us
        for n, k in public.shapes
    )
    nbytes = sum(n * k * NVFP4_BYTES for n, k in public.shapes)
    return Comparison(nbytes / us / 1e3, public.gb_s)


def worst(comparisons: Iterable[Comparison]) -> float:
    """Largest error, whatever its sign."""
    return max(abs(item.error) for item in comparisons)
