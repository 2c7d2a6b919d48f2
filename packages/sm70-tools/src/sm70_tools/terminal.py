"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console

_PIPE_WIDTH = 120


def open_console() -> Console:
    """The standard output: as wide as the terminal, or a fixed width where it is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
