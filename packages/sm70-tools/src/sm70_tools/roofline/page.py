"""The page docs/roofline.md: the model in formulas, its constants, its errors, and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_tools.roofline.cards import FIGURES, HOPPER, TURING, VOLTA, find_figures
from sm70_tools.roofline.compare import compare_public, compare_row, worst
from sm70_tools.roofline.fit import MEASURED_CONSTANTS, descend, measured_loss
from sm70_tools.roofline.kernel import general_kernel, strip_kernel
from sm70_tools.roofline.markdown import table
from sm70_tools.roofline.model import busiest_pipe, resident_blocks
from sm70_tools.roofline.page_general import choice_section, limits_section, measured_section, targets_section
from sm70_tools.roofline.page_text import COMPARISON, CONSTANTS, INTRODUCTION
from sm70_tools.roofline.predictions import LABEL, SHAPES, TOKENS, error_range, error_text, predict_rows
from sm70_tools.roofline.references import PUBLIC_FIGURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sm70_tools.roofline.cards import Figures
    from sm70_tools.roofline.compare import MeasuredRow
    from sm70_tools.roofline.kernel import Kernel

_PAGE_CARDS = ("v100", "rtx8000", "t4")


def render_page(rows: Sequence[MeasuredRow], general_rows: Sequence[MeasuredRow]) -> str:
    """The page in Markdown; rows of the strip and general kernels are those measured on the H200."""
    parts = [
        INTRODUCTION,
        "## Loops\n\n" + _loops(),
        CONSTANTS,
        _family_constants(),
        _cards(),
        COMPARISON,
        _measured(rows),
        _held_out(rows),
        measured_section(general_rows),
        _public(),
        choice_section(find_figures("v100")),
        targets_section(find_figures("v100")),
        f"## Predictions\n\nEvery number in these tables is {LABEL}.",
        *(_predictions(find_figures(key)) for key in _PAGE_CARDS),
        limits_section(general_rows),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _loops() -> str:
    rows = []
    for family in (VOLTA, TURING, HOPPER):
        for kernel in _kernels(family.architecture):
            counts = (kernel.instructions, kernel.tensor, kernel.half, kernel.integer, kernel.multiply)
            pipe, cycles = busiest_pipe(kernel, family)
            rows.append(
                [
                    family.architecture,
                    f"`{kernel.name}`",
                    *(f"{count:.0f}" for count in counts),
                    str(kernel.x_loads * (1 if kernel.is_general else kernel.token_tiles)),
                    f"{kernel.shared_wavefronts:.0f}",
                    str(kernel.registers),
                    f"{kernel.shared_bytes / 1024:.1f}",
                    str(resident_blocks(kernel, family)),
                    f"{cycles:.0f} {pipe}",
                    f"{kernel.serial_cycles(family.l1_latency):.0f}",
                    f"{kernel.cover_cycles:.0f}",
                ]
            )
    head = ("sm", "kernel", "all", "HMMA", "FP16", "integer", "IMAD", "loads of x", "shared wavefronts")
    tail = ("registers", "shared KiB", "blocks per SM", "pipe cycles", "serial cycles", "cover")
    return table((*head, *tail), rows)


def _kernels(architecture: str) -> list[Kernel]:
    from sm70_kernels_cuda.launch import VARIANTS
    from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS

    strip = [strip_kernel(architecture, variant.kernel) for variant in VARIANTS]
    return strip + [general_kernel(architecture, variant.kernel) for variant in GENERAL_VARIANTS]


def _family_constants() -> str:
    columns = (VOLTA, TURING, HOPPER)
    described = (
        ("max_warps", "warps per SM", "programming guide, not checked here"),
        ("unified_kib", "L1 and shared memory, KiB", "programming guide, not checked here"),
        (
            "tensor_fmas",
            "multiply-adds per cycle and tensor port",
            "7.x: issue interval that the assembler keeps (HMMA.884: 2, HMMA.1688: 8); 9.0: data sheet",
        ),
        (
            "tensor_efficiency",
            "part of the peak of HMMA",
            "7.x: others' dense GEMMs, 0.61 to 0.64; 9.0: none",
        ),
        ("half_cycles", "cycles per HMUL2", "programming guide, not checked here"),
        ("integer_cycles", "cycles per LOP3, SHF, IADD3", "programming guide, not checked here"),
        ("multiply_cycles", "cycles per IMAD", "programming guide, not checked here"),
        ("l1_latency", "latency of L1, cycles", "public microbenchmarks, not checked here"),
        ("l2_latency", "latency of L2, cycles", "public microbenchmarks, not checked here"),
        ("memory_latency", "latency of memory under load, cycles", "**fitted**"),
        ("line_cycles", "cycles of L1 per line", "**fitted**"),
        ("l2_bytes", "bytes of L2 per cycle and SM", "nominal"),
        ("start_cycles", "start and end of a launch, cycles", "**fitted** on 9.0, taken over for 7.x"),
    )
    rows = [
        [title, *(f"{getattr(family, name):g}" for family in columns), origin]
        for name, title, origin in described
    ]
    return table(("constant", "7.0", "7.5", "9.0", "origin"), rows)


def _cards() -> str:
    rows = [
        [
            item.card.name,
            str(item.multiprocessors),
            f"{item.clock_ghz:g} ({item.clock_origin})",
            f"{item.read_gb_s:.0f} ({item.read_origin})",
        ]
        for item in FIGURES
    ]
    return table(("card", "SMs", "clock, GHz", "reads, GB/s"), rows)


def _measured(rows: Sequence[MeasuredRow]) -> str:
    figures = find_figures("h200")
    found = {(row.kernel, row.m, row.n, row.k): compare_row(row, figures) for row in rows}
    lines = []
    for name, m in dict.fromkeys((row.kernel, row.m) for row in sorted(rows, key=lambda row: row.m)):
        cells = [found.get((name, m, n, k)) for n, k in SHAPES]
        texts = (
            "-" if cell is None else f"{cell.predicted:.1f} / {cell.reference:.1f} ({cell.error:+.0%})"
            for cell in cells
        )
        lines.append([f"`{name}`", str(m), *texts])
    errors = [item.error for item in found.values()]
    mean = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    summary = (
        f"H200, us predicted / measured: {len(errors)} rows, errors from {min(errors):+.1%} to "
        f"{max(errors):+.1%}, root mean square {mean:.1%}."
    )
    return summary + "\n\n" + table(("kernel", "M", *(f"{n}x{k}" for n, k in SHAPES)), lines)


def _held_out(rows: Sequence[MeasuredRow]) -> str:
    few = [row for row in rows if row.m <= 8]
    many = [row for row in rows if row.m > 8]
    fitted = descend(find_figures("h200"), MEASURED_CONSTANTS, lambda item: measured_loss(item, few))
    return (
        f"The constants fitted to the {len(few)} rows with M = 1 and 8 alone predict the {len(many)} rows "
        f"with M = 16 and 32 within {worst(compare_row(row, fitted) for row in many):.1%}."
    )


def _public() -> str:
    lines = []
    for public in PUBLIC_FIGURES:
        comparison = compare_public(public, find_figures(public.card))
        lines.append(
            [
                find_figures(public.card).card.name,
                public.kernel,
                public.title,
                str(public.m),
                f"{public.gb_s:.0f}",
                f"{comparison.predicted:.0f}",
                f"{comparison.error:+.0%}",
                "yes" if public.fitted else "no",
            ]
        )
    head = ("card", "kernel", "N x K", "M", "public GB/s", "model GB/s", "error", "fitted to")
    return "Public figures of v100-skinny:\n\n" + table(head, lines)


def _predictions(figures: Figures) -> str:
    shapes = SHAPES
    cells = {(row.n, row.k, row.m): row for row in predict_rows(figures, shapes, TOKENS)}
    lines = []
    for n, k in shapes:
        texts = []
        for m in TOKENS:
            row = cells[n, k, m]
            share = row.prediction.gb_s / figures.read_gb_s
            kernel = (row.kernel or "-").replace("qpn2_nvfp4", "strip").replace("general_nvfp4", "general")
            texts.append(f"{row.prediction.us:.1f} ({share:.0%}, {row.prediction.limit}) `{kernel}`")
        lines.append([f"{n}x{k}", *texts])
    low, high = error_range(figures)
    title = (
        f"### {figures.card.name}\n\nus (share of {figures.read_gb_s:.0f} GB/s, largest part). Errors of "
        f"predicted times where compared: {low:+.0%} to {high:+.0%}: {error_text(figures)}."
    )
    return title + "\n\n" + table(("N x K", *(f"M = {m}" for m in TOKENS)), lines)
