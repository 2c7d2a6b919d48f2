"""Build every wheel, build it again from its sdist, and install every subset of the wheels alone.

What has to hold:

1. Each wheel is `py3-none-any`, and the one built from the sdist has the same bytes.
2. Each of the 31 non-empty subsets of the five wheels installs without an index, closed under the requirement
   of sm70-policy, and every installed package imports in an isolated interpreter without torch or vLLM.
3. What is not installed is named as such by discovery and by `sm70 doctor --json`, and is no error.
4. Without the policy's wheel pip refuses the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repository import POLICY, ROOT, Package, packages, report

TOOLS = "sm70-tools"
SOURCE_DATE_EPOCH = "1767225600"
"""The time of every file in a wheel: the first second of 2026, UTC."""

PROVIDERS = {"cuda": "sm70-kernels-cuda", "triton": "sm70-kernels-triton", "moe": "sm70-moe"}

_PROBE = """
import importlib, json, sys
target, modules = sys.argv[1], sys.argv[2:]
sys.path.insert(0, target)
for name in modules:
    importlib.import_module(name)
from sm70_policy.registry import discover
found = discover()
print(json.dumps({
    "providers": sorted(provider.name for provider in found.providers),
    "absences": {absence.distribution: absence.rejection.code for absence in found.absences},
    "heavy": sorted({"torch", "triton", "vllm"} & set(sys.modules)),
}))
"""

_DOCTOR = """
import sys
sys.path.insert(0, sys.argv[1])
from sm70_tools.cli import main
sys.argv = ["sm70", "doctor", "--json"]
sys.exit(main())
"""


def subsets(names: list[str]) -> list[frozenset[str]]:
    """Every non-empty subset, the small ones first."""
    return [
        frozenset(chosen)
        for count in range(1, len(names) + 1)
        for chosen in itertools.combinations(sorted(names), count)
    ]


def expected_discovery(installed: frozenset[str]) -> dict[str, object]:
    """What the probe has to print when `installed` is installed."""
    return {
        "providers": sorted(name for name, distribution in PROVIDERS.items() if distribution in installed),
        "absences": {
            distribution: "not-installed"
            for distribution in PROVIDERS.values()
            if distribution not in installed
        },
        "heavy": [],
    }


def check_tag(wheel: Path) -> list[str]:
    """The wheel carries no tag of an interpreter or a platform."""
    return (
        [] if wheel.name.endswith("-py3-none-any.whl") else [f"{wheel.name}: expected the tag py3-none-any"]
    )


def compare_bytes(first: Path, second: Path) -> list[str]:
    """Both folders hold the same wheels with the same bytes."""
    names = {path.name for path in first.glob("*.whl")}
    others = {path.name for path in second.glob("*.whl")}
    findings = [f"{name}: built once only" for name in sorted(names ^ others)]
    findings.extend(
        f"{name}: the wheel built from the sdist has other bytes"
        for name in sorted(names & others)
        if (first / name).read_bytes() != (second / name).read_bytes()
    )
    return findings


def _pip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}
    return subprocess.run(
        command, check=check, env=environment, text=True, stderr=None if check else subprocess.PIPE
    )


def build(found: list[Package], dist: Path, rebuilt: Path) -> None:
    """Build wheels and sdists into `dist`, and wheels from the sdists into `rebuilt`."""
    shutil.rmtree(dist, ignore_errors=True)
    folders = [str(package.folder) for package in found]
    _pip("wheel", "--no-deps", "--wheel-dir", str(dist), *folders)
    for folder in folders:
        options = ["--sdist", "--no-isolation", "--skip-dependency-check", "--outdir", str(dist)]
        command = [sys.executable, "-m", "build", *options, folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sdists = [str(path) for path in sorted(dist.glob("*.tar.gz"))]
    _pip("wheel", "--no-deps", "--wheel-dir", str(rebuilt), *sdists)


def _isolated(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", program, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def check_subset(subset: frozenset[str], links: list[Path], target: Path) -> list[str]:
    """Install one subset into `target` and look at what discovery and doctor say."""
    label = " + ".join(sorted(subset))
    options = [part for link in links for part in ("--find-links", str(link))]
    options += ["--no-index", "--no-compile", "--pre", "--target", str(target)]
    done = _pip("install", *options, *sorted(subset), check=False)
    if done.returncode:
        return [f"{label}: pip refused it: {done.stderr.strip()}"]
    installed = subset | {POLICY}
    modules = [name.replace("-", "_") for name in sorted(installed)]
    probe = _isolated(_PROBE, str(target), *modules)
    if probe.returncode:
        return [f"{label}: import failed: {probe.stderr.strip()}"]
    findings = []
    seen, wanted = json.loads(probe.stdout), expected_discovery(installed)
    if seen != wanted:
        findings.append(f"{label}: discovery says {seen}, expected {wanted}")
    if TOOLS in installed:
        findings.extend(check_doctor(label, installed, target))
    return findings


def check_doctor(label: str, installed: frozenset[str], target: Path) -> list[str]:
    """`sm70 doctor --json` prints JSON that names every package of the suite."""
    done = _isolated(_DOCTOR, str(target))
    try:
        text = json.dumps(json.loads(done.stdout))
    except json.JSONDecodeError:
        return [f"{label}: doctor --json printed no JSON (exit {done.returncode}): {done.stderr.strip()}"]
    missing = [name for name in sorted({*PROVIDERS.values(), *installed}) if name not in text]
    return [f"{label}: doctor --json does not name {', '.join(missing)}"] if missing else []


def check_without_policy(dist: Path, extra: Path, scratch: Path) -> list[str]:
    """Every other wheel is refused by pip when the policy's is not there."""
    links = scratch / "without-policy"
    links.mkdir()
    others = [path for path in sorted(dist.glob("*.whl")) if not path.name.startswith("sm70_policy-")]
    findings = []
    for wheel in others:
        shutil.copy(wheel, links)
        name = wheel.name.split("-")[0]
        options = ["--no-index", "--find-links", str(links), "--find-links", str(extra), "--pre"]
        done = _pip("install", *options, "--target", str(scratch / f"none-{name}"), name, check=False)
        if done.returncode == 0 or POLICY not in done.stderr:
            findings.append(f"{name}: pip did not refuse it without {POLICY}")
    return findings


def check_all(dist: Path, scratch: Path) -> list[str]:
    """Build and check everything."""
    found = packages(ROOT)
    build(found, dist, scratch / "rebuilt")
    findings = [finding for wheel in sorted(dist.glob("*.whl")) for finding in check_tag(wheel)]
    findings.extend(compare_bytes(dist, scratch / "rebuilt"))
    extra = scratch / "third-parties"
    _pip("download", "--dest", str(extra), "rich")
    chosen = subsets([package.distribution for package in found])

    def check(numbered: tuple[int, frozenset[str]]) -> list[str]:
        number, subset = numbered
        return check_subset(subset, [dist, extra], scratch / f"subset-{number}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        findings.extend(itertools.chain.from_iterable(pool.map(check, enumerate(chosen))))
    print(f"{len(chosen)} subsets installed")
    findings.extend(check_without_policy(dist, extra, scratch))
    return findings


def main(argv: list[str] | None = None) -> int:
    """Check the repository and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder for wheels and sdists")
    dist = parser.parse_args(argv).dist
    with tempfile.TemporaryDirectory() as scratch:
        return report("check_wheels", check_all(dist, Path(scratch)))


if __name__ == "__main__":
    sys.exit(main())
