"""The subcommand `sm70 roofline`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError
from sm70_tools.roofline.cards import FIGURES, HOPPER, find_figures
from sm70_tools.roofline.kernel import MODELLED_ROWS
from sm70_tools.roofline.predictions import LABEL, SHAPES, TOKENS, Row, error_range, error_text, predict_rows
from sm70_tools.terminal import open_console

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sm70_tools.roofline.cards import Figures

SCHEMA = "sm70-roofline/1"

NOT_MODELLED = (
    f"More than {MODELLED_ROWS} rows of x are not modelled: the general kernel was compared with nothing "
    "there, and a dense GEMM takes over in the end."
)

_SHAPE = re.compile(r"([1-9]\d*)x([1-9]\d*)")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `roofline` to the command line."""
    parser = commands.add_parser(
        "roofline", help="what a model predicts for the NVFP4 linear on a card that is not at hand"
    )
    parser.add_argument(
        "--device", required=True, metavar="CARD", help=f"one of {', '.join(item.key for item in FIGURES)}"
    )
    parser.add_argument(
        "--shapes",
        default=",".join(f"{n}x{k}" for n, k in SHAPES),
        metavar="NxK,...",
        help="output by input features, comma-separated (default: eight shapes of 8B to 27B models)",
    )
    parser.add_argument(
        "--m", default=",".join(map(str, TOKENS)), metavar="M,...", help="rows of x (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON with every term of the model")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `sm70 roofline` and return 0."""
    figures = find_figures(arguments.device)
    rows = predict_rows(figures, parse_shapes(arguments.shapes), parse_tokens(arguments.m))
    if arguments.json:
        print(json.dumps(to_json(figures, rows), indent=1))
    else:
        render(figures, rows, open_console())
    return 0


def parse_shapes(text: str) -> tuple[tuple[int, int], ...]:
    """Read `5120x1536,4096x4096`.

    Raises:
        ArgumentError: A part is not N x K in positive numbers.
    """
    matches = [(part, _SHAPE.fullmatch(part.strip())) for part in text.split(",")]
    shapes = []
    for part, match in matches:
        if match is None:
            raise ArgumentError(
                describe(
                    asked=f"{part!r} as a shape",
                    allowed="output by input features in positive numbers, such as 5120x1536",
                    fix="Pass --shapes in this form",
                )
            )
        shapes.append((int(match[1]), int(match[2])))
    return tuple(shapes)


def parse_tokens(text: str) -> tuple[int, ...]:
    """Read `1,8,16`.

    Raises:
        ArgumentError: A part is not a positive number.
    """
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ArgumentError(
                describe(
                    asked=f"{part!r} rows of x", allowed="positive numbers, such as 1,8,16", fix="Change --m"
                )
            )
    return tuple(int(part) for part in text.split(","))


def render(figures: Figures, rows: tuple[Row, ...], console: Console) -> None:
    """Print predictions for people."""
    table = Table(title=f"{figures.card.name}: {LABEL}", title_justify="left")
    for title in ("N x K", "M", "Kernel"):
        table.add_column(title, justify="left" if title == "Kernel" else "right", overflow="fold")
    for title in ("us", "us by error range", "GB/s", "% of read", "Limited by"):
        table.add_column(title, justify="left" if title == "Limited by" else "right", overflow="fold")
    for row in rows:
        table.add_row(*row.cells(figures))
    console.print(table)
    for line in notes(figures):
        console.print(Text(line))


def notes(figures: Figures) -> list[str]:
    """What has to be said beside every table."""
    lines = [
        f"Every number above is {LABEL}.",
        f"Error of predicted times where the model was compared: {error_text(figures)}.",
        f"Reading memory: {figures.read_gb_s:.0f} GB/s ({figures.read_origin}).",
        f"Clock: {figures.clock_ghz} GHz ({figures.clock_origin}).",
        f"Rows with >= are bounds: weight once through memory and one launch. {NOT_MODELLED}",
    ]
    if figures.family is HOPPER:
        lines.append(
            "The model is of strip and general kernels, which 7.x runs; from 9.0 on the suite has others too."
        )
    return lines


def to_json(figures: Figures, rows: tuple[Row, ...]) -> dict[str, Any]:
    """Build the document for programs."""
    family = figures.family
    low, high = error_range(figures)
    return {
        "schema": SCHEMA,
        "label": LABEL,
        "device": {
            "key": figures.key,
            "name": figures.card.name,
            "read_gb_s": figures.read_gb_s,
            "read_origin": figures.read_origin,
            "clock_ghz": figures.clock_ghz,
            "clock_origin": figures.clock_origin,
        },
        "fitted": {
            "memory_latency_cycles": family.memory_latency,
            "line_cycles": family.line_cycles,
            "start_cycles": family.start_cycles,
        },
        "error": {"low": low, "high": high, "text": error_text(figures)},
        "predictions": [row.to_json(figures) for row in rows],
    }
