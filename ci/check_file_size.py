"""Files and functions stay short: 400 lines for Python, 600 for kernel sources, 60 for a function."""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import sys
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, report, tracked_files

FILE_LIMITS: dict[str, int] = {".py": 400, ".cu": 600, ".cuh": 600, ".h": 600, ".cpp": 600}
FUNCTION_LIMIT = 60


@dataclass(frozen=True)
class Exemption:
    """A file that may be longer for a while.

    Attributes:
        path: Relative to the root.
        lines: The longest that it may be.
        until: Last day on which this counts.
        reason: Why it is not split today.
    """

    path: str
    lines: int
    until: dt.date
    reason: str


EXEMPTIONS: tuple[Exemption, ...] = ()


def check_files(
    root: Path, files: list[Path], exemptions: tuple[Exemption, ...], today: dt.date
) -> list[str]:
    """Files over their limit, exemptions that ran out and exemptions that are not needed."""
    findings = []
    by_path = {exemption.path: exemption for exemption in exemptions}
    for path in files:
        limit = FILE_LIMITS.get(path.suffix)
        if limit is None:
            continue
        name = path.relative_to(root).as_posix()
        lines = len(path.read_text(encoding="utf-8").splitlines())
        exemption = by_path.pop(name, None)
        if exemption is not None and lines <= limit:
            findings.append(f"{name}: {lines} lines fit the limit of {limit}; remove the exemption")
        elif exemption is not None and today > exemption.until:
            findings.append(
                f"{name}: the exemption ended on {exemption.until}: {lines} lines, {limit} allowed"
            )
        elif lines > (exemption.lines if exemption else limit):
            allowed = exemption.lines if exemption else limit
            findings.append(f"{name}: {lines} lines, {allowed} allowed; split it")
    findings.extend(f"{name}: the exemption names a file that does not exist" for name in by_path)
    return findings


def check_functions(root: Path, files: list[Path]) -> list[str]:
    """Functions over the limit, counted from `def` to the last line, decorators left out."""
    findings = []
    for path in files:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LIMIT:
                    place = f"{path.relative_to(root).as_posix()}:{node.lineno}"
                    findings.append(
                        f"{place}: {node.name} has {lines} lines, {FUNCTION_LIMIT} allowed; split it"
                    )
    return findings


def main(argv: list[str] | None = None) -> int:
    """Check the repository and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    root = parser.parse_args(argv).root
    files = tracked_files(root)
    today = dt.datetime.now(tz=dt.UTC).date()
    return report(
        "check_file_size", [*check_files(root, files, EXEMPTIONS, today), *check_functions(root, files)]
    )


if __name__ == "__main__":
    sys.exit(main())
