"""`python -m sm70_tools.roofline page FILE` prints docs/roofline.md, `fit FILE` the constants that fit best.

FILE holds rows of the strip kernels on an H200: benchmarks/results/h200/strip_kernels.csv.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sm70_tools.roofline.compare import read_rows
from sm70_tools.roofline.fit import fit_all
from sm70_tools.roofline.page import render_page


def main() -> None:
    """Print one of the two."""
    parser = argparse.ArgumentParser(
        prog="python -m sm70_tools.roofline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("page", "fit"))
    parser.add_argument("rows", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = read_rows(arguments.rows)
    text = render_page(rows) if arguments.what == "page" else json.dumps(fit_all(rows), indent=1) + "\n"
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
