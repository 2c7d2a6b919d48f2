"""What the checkers share: where the packages are, which files are tracked, and how findings are printed."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

POLICY = "sm70-policy"


@dataclass(frozen=True)
class Package:
    """One distribution of the repository.

    Attributes:
        folder: The folder that holds its pyproject.toml.
    """

    folder: Path

    @property
    def distribution(self) -> str:
        """Name for `pip install`, which is also the name of the folder."""
        return self.folder.name

    @property
    def module(self) -> str:
        """Name for `import`."""
        return self.distribution.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the importable package."""
        return self.folder / "src" / self.module

    def pyproject(self) -> dict[str, Any]:
        """The parsed pyproject.toml."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))


def packages(root: Path) -> list[Package]:
    """All packages below `root`, by name."""
    return [Package(path.parent) for path in sorted(root.glob("packages/*/pyproject.toml"))]


def tracked_files(root: Path) -> list[Path]:
    """Files below `root` that git tracks or would track: absolute, sorted, ignored ones left out."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is on the path
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(path for name in listing.split("\0") if name and (path := root / name).is_file())


def report(check: str, findings: list[str]) -> int:
    """Print the findings and return the exit status: 0 without any, 1 otherwise."""
    for finding in findings:
        print(finding)
    print(f"{check}: {len(findings)} finding(s)" if findings else f"{check}: ok")
    return 1 if findings else 0
