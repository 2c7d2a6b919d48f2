"""The subcommand `sm70 doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sm70_tools.doctor.report import collect, is_blocked, render, to_json
from sm70_tools.terminal import open_console

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = commands.add_parser(
        "doctor", help="driver, torch, vLLM and packages of this machine; exit 1 if blocked"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `sm70 doctor`. Returns 1 when any finding is blocking, else 0."""
    sections = collect()
    if arguments.json:
        print(json.dumps(to_json(sections), indent=1))
    else:
        render(sections, open_console())
    return 1 if is_blocked(sections) else 0
