"""Entry point of the command `sm70`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sm70_policy.errors import Sm70Error
from sm70_tools.__about__ import __version__
from sm70_tools.bench import command as bench
from sm70_tools.doctor import command as doctor
from sm70_tools.explain import command as explain
from sm70_tools.roofline import command as roofline
from sm70_tools.routes import command as routes

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE = 2
"""Exit status for a question that cannot be answered; argparse uses the same for unknown options."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser. Each subcommand sets `run`, which takes the namespace and returns the exit status."""
    parser = argparse.ArgumentParser(prog="sm70", description="Quantized models on NVIDIA Volta and Turing.")
    parser.add_argument("--version", action="version", version=f"sm70-tools {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor.add_parser(commands)
    explain.add_parser(commands)
    roofline.add_parser(commands)
    bench.add_parser(commands)
    routes.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        The exit status: 0 done, 1 a finding that the command was asked to fail on, 2 not answerable.
    """
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except Sm70Error as error:
        print(f"sm70: error: {error}", file=sys.stderr)
        return EXIT_USAGE
    return status


if __name__ == "__main__":
    sys.exit(main())
