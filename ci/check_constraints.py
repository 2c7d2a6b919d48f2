"""Resolve vLLM 0.19.1 under the constraints that its users are given. Downloads metadata, installs nothing.

What has to hold, for every Python of the suite that is on this machine:

1. pip finds a set of packages.
2. Each package of the set is pinned by the file, but for those in UNPINNED, so that a later release of any
   package cannot change the set.
3. The set holds the torch whose wheel has code for compute capability 7.0.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from repository import ROOT, report

CONSTRAINTS = ROOT / "docs" / "v100" / "vllm-0.19.1-constraints.txt"
REQUIREMENT = "vllm==0.19.1"
TORCH = "2.10.0"
UNPINNED = frozenset({"setuptools", "six"})
"""Packages that vLLM asks for on some Pythons only, within bounds of its own."""

PYTHONS = ("3.11", "3.12", "3.13")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)$")


def canonical(name: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Version of every pinned package.

    Raises:
        ValueError: A line is no pin, or pins a package again.
    """
    pins: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _PIN.match(line)
        if match is None or canonical(match[1]) in pins:
            raise ValueError(f"{line!r} is not the only pin of a package, in the form name==version")
        pins[canonical(match[1])] = match[2]
    return pins


def judge(python: str, resolution: dict[str, Any], pins: dict[str, str]) -> list[str]:
    """Findings about what pip would install, as its report tells."""
    found = {
        canonical(item["metadata"]["name"]): str(item["metadata"]["version"])
        for item in resolution["install"]
    }
    findings = [
        f"Python {python}: {name} {version} is not pinned: add {name}=={version}"
        for name, version in sorted(found.items())
        if name not in pins and name not in UNPINNED
    ]
    if found.get("torch") != TORCH:
        findings.append(f"Python {python}: torch {found.get('torch')}, but {TORCH} has the code for 7.0")
    return findings


def resolve(python: str) -> dict[str, Any] | str:
    """What pip would install for an interpreter, or its last words."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "report.json")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--dry-run"),
                *("--ignore-installed", "--only-binary=:all:", "--report", f"{answer}"),
                *("--constraint", f"{CONSTRAINTS}", REQUIREMENT),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        resolution: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return resolution


def main(argv: list[str] | None = None) -> int:
    """Check the file and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", metavar="COMMAND", help="interpreters to resolve for")
    arguments = parser.parse_args(argv)
    pythons = arguments.python or [name for item in PYTHONS if (name := shutil.which(f"python{item}"))]
    if not pythons:
        return report("check_constraints", [f"none of Python {', '.join(PYTHONS)} is on the path"])
    pins = read_pins(CONSTRAINTS.read_text(encoding="utf-8"))
    findings = []
    for python in pythons:
        resolution = resolve(python)
        if isinstance(resolution, str):
            findings.append(f"{python}: {resolution}")
        else:
            version = resolution["environment"]["python_full_version"]
            print(f"Python {version}: {len(resolution['install'])} packages")
            findings += judge(version, resolution, pins)
    return report("check_constraints", findings)


if __name__ == "__main__":
    sys.exit(main())
