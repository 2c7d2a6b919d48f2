"""Writes what the model says, from a folder of measured rows: benchmarks/results/h200.

    python -m sm70_tools.roofline page FOLDER                             prints docs/roofline.md
    python -m sm70_tools.roofline fit FOLDER                              the constants that fit best
    python -m sm70_tools.roofline tune FOLDER --date DAY --commit HASH    sm70_kernels_cuda/tuning/nvfp4.json

The page shows the chosen kernels: write the table first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sm70_tools.roofline.cards import find_figures
from sm70_tools.roofline.compare import read_general_rows, read_rows
from sm70_tools.roofline.fit import fit_all
from sm70_tools.roofline.page import render_page
from sm70_tools.roofline.tune import Stamp, build_table


def main() -> None:
    """Print one of the three."""
    parser = argparse.ArgumentParser(
        prog="python -m sm70_tools.roofline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("page", "fit", "tune"))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--date", help="day of a tuning table, such as 2026-11-30")
    parser.add_argument("--commit", help="commit of its kernels")
    arguments = parser.parse_args()
    strip = read_rows(arguments.folder / "strip_kernels.csv")
    if arguments.what == "page":
        text = render_page(strip, read_general_rows(arguments.folder / "linear.csv", find_figures("h200")))
    elif arguments.what == "fit":
        text = json.dumps(fit_all(strip), indent=1) + "\n"
    elif arguments.date is None or arguments.commit is None:
        parser.error("tune needs --date and --commit")
    else:
        from sm70_kernels_cuda.tuning.table import to_text

        text = to_text(build_table(strip, Stamp(arguments.date, arguments.commit)))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
