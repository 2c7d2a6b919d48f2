"""Parts of docs/roofline.md about the general kernel: its measured rows, choices on 7.x, the targets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sm70_tools.roofline.cards import L2_SHARED_BYTES, find_figures
from sm70_tools.roofline.compare import GENERAL_COMMIT, compare_row
from sm70_tools.roofline.kernel import chosen_kernel, general_kernel, strip_kernel
from sm70_tools.roofline.markdown import table
from sm70_tools.roofline.model import predict
from sm70_tools.roofline.page_text import CHOICE, GENERAL_COMPARISON, LIMITS, TARGETS
from sm70_tools.roofline.predictions import SHAPES, error_range
from sm70_tools.roofline.targets import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.compare import MeasuredRow
    from sm70_tools.roofline.targets import Judged

_CHOICE_TOKENS = (8, 9, 16, 24, 32, 48, 64)


def measured_section(rows: Sequence[MeasuredRow]) -> str:
    """Every measured row of the general kernel with the model's parts beside it."""
    figures = find_figures("h200")
    lines, errors = [], []
    for row in rows:
        comparison = compare_row(row, figures)
        kernel = general_kernel(figures.family.architecture, row.kernel)
        prediction = predict(kernel, figures, row.m, row.n, row.k)
        parts = prediction.parts_us
        errors.append(comparison.error)
        lines.append(
            [
                f"{row.n}x{row.k}",
                str(row.m),
                f"`{row.kernel}`",
                f"{comparison.predicted:.1f} / {comparison.reference:.1f} ({comparison.error:+.0%})",
                *(f"{parts[name]:.1f}" for name in ("memory", "latency", "pipes", "L1", "L2", "fixed")),
            ]
        )
    head = ("N x K", "M", "kernel", "us predicted / measured", "memory", "latency", "pipes", "L1", "L2")
    covers = [general_kernel(figures.family.architecture, row.kernel).cover_cycles for row in rows]
    text = GENERAL_COMPARISON.format(
        commit=GENERAL_COMMIT, cover=max(covers), latency=figures.family.memory_latency
    )
    summary = f"{len(errors)} rows, errors from {min(errors):+.1%} to {max(errors):+.1%}."
    return f"{text}\n\n{summary}\n\n" + table((*head, "fixed"), lines)


def limits_section(rows: Sequence[MeasuredRow]) -> str:
    """What the model leaves out; with the errors that another bandwidth of L2 would give."""
    figures = find_figures("h200")
    slow = replace(figures, family=replace(figures.family, l2_bytes=L2_SHARED_BYTES))
    errors = [compare_row(row, slow).error for row in rows]
    return LIMITS.format(low=min(errors), high=max(errors))


def choice_section(figures: Figures) -> str:
    """The best strip kernel beside the chosen one, for 8 to 64 rows of x."""
    lines = []
    for n, k in SHAPES:
        cells = [_choice_cell(figures, m, n, k) for m in _CHOICE_TOKENS]
        lines.append([f"{n}x{k}", *cells])
    return f"{CHOICE}\n\n" + table(("N x K", *(f"M = {m}" for m in _CHOICE_TOKENS)), lines)


def _choice_cell(figures: Figures, m: int, n: int, k: int) -> str:
    from sm70_kernels_cuda.launch import TOKEN_TILE, VARIANTS

    architecture = figures.family.architecture
    fitting = [item.kernel for item in VARIANTS if item.token_tiles * TOKEN_TILE >= m]
    times = [predict(strip_kernel(architecture, name), figures, m, n, k).us for name in fitting]
    kernel = chosen_kernel(figures, m, n, k)
    if kernel is None:
        return "-"
    us = predict(kernel, figures, m, n, k).us
    strip = f"{min(times):.1f} / " if times else ""
    return f"{strip}{us:.1f} `{kernel.name.removeprefix('general_nvfp4_').removeprefix('qpn2_nvfp4_')}`"


def targets_section(figures: Figures) -> str:
    """The targets beside the predictions, with what limits each."""
    lines = [_target_line(item, figures) for item in judge(figures)]
    head = ("N x K", "M", "target", "predicted", "by error range", "largest parts, us alone")
    tail = ("with them overlapped", "with an even spread", "verdict")
    return f"{TARGETS}\n\n" + table((*head, *tail), lines)


def _target_line(item: Judged, figures: Figures) -> list[str]:
    row, prediction = item.row, item.row.prediction
    low, high = error_range(figures)
    best = item.share * (1 + high)
    largest = item.largest_parts
    alone = item.share * prediction.us / (prediction.parts_us["fixed"] + largest[0][1])
    if item.is_met:
        verdict = "met"
    elif best >= item.target:
        verdict = f"**missed**, within the model's error; limit: {largest[0][0]}, then {largest[1][0]}"
    else:
        verdict = f"**missed**; limit: {largest[0][0]}, then {largest[1][0]}"
    return [
        f"{row.n}x{row.k}",
        str(row.m),
        f"{item.target:.0%}",
        f"{item.share:.0%}",
        f"{item.share * (1 + low):.0%} to {min(1.0, best):.0%}",
        ", ".join(f"{name} {us:.1f}" for name, us in largest),
        f"{alone:.0%}",
        "-" if item.even_share is None else f"{item.even_share:.0%}",
        verdict,
    ]
