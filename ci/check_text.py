"""Tracked text names no folder of one person's machine and no host of a package registry."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from repository import ROOT, report, tracked_files

_FOLDERS = ("home", "root", "Users", "work", "mnt")
_PATH = re.compile(rf"(?<![\w./$}}~-])/(?:{'|'.join(_FOLDERS)})/[\w.-]+")

_HOSTS = (  # in parts, so that this file passes its own check
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("download", "pytorch", "org"),
    ("pypi", "nvidia", "com"),
    ("conda", "anaconda", "org"),
    ("registry", "npmjs", "org"),
    ("ghcr", "io"),
    ("nvcr", "io"),
    ("docker", "io"),
)
_HOST = re.compile("|".join(re.escape(".".join(parts)) for parts in _HOSTS), re.IGNORECASE)


def check_text(name: str, text: str) -> list[str]:
    """Findings in one text, each with its line."""
    findings: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        findings.extend(f"{name}:{number}: absolute path {match[0]}" for match in _PATH.finditer(line))
        findings.extend(f"{name}:{number}: registry host {match[0]}" for match in _HOST.finditer(line))
    return findings


def read_text(path: Path) -> str:
    """The text of a file; empty for one that is not UTF-8 text."""
    data = path.read_bytes()
    if b"\0" in data:
        return ""
    return data.decode("utf-8", errors="replace")


def main(argv: list[str] | None = None) -> int:
    """Check the repository and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    root = parser.parse_args(argv).root
    findings = [
        finding
        for path in tracked_files(root)
        for finding in check_text(path.relative_to(root).as_posix(), read_text(path))
    ]
    return report("check_text", findings)


if __name__ == "__main__":
    sys.exit(main())
