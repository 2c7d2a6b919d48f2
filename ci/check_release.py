"""Versions agree: `__about__`, the head of the changelog, the pins on sm70-policy and a release's tag.

Without `--tag` every package is checked. With `--tag sm70-policy-v0.1.0` that package is checked as a release
as well: the tag is its version, and a development version is refused.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from repository import POLICY, ROOT, Package, packages, report

_VERSION = re.compile(r"^__version__ = \"([^\"]+)\"$", re.MULTILINE)
_HEAD = re.compile(r"^## (\S+)", re.MULTILINE)
_TAG = re.compile(r"^(?P<distribution>.+)-v(?P<version>\d.*)$")


def about_version(package: Package) -> str:
    """The version in `__about__.py`.

    Raises:
        ValueError: The file has no line `__version__ = "..."`.
    """
    path = package.source / "__about__.py"
    match = _VERSION.search(path.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f'{path} has no line `__version__ = "..."`')
    return match[1]


def changelog_head(package: Package) -> str:
    """The version of the first section of the changelog; empty without a section."""
    match = _HEAD.search((package.folder / "CHANGELOG.md").read_text(encoding="utf-8"))
    return match[1] if match else ""


def policy_pin(policy_version: str) -> str:
    """The requirement that every package has on the policy."""
    major, minor = policy_version.split(".")[:2]
    return f"{POLICY}=={major}.{minor}.*"


def check_package(package: Package, pin: str) -> list[str]:
    """Changelog head and pins of one package."""
    findings = []
    version, head = about_version(package), changelog_head(package)
    if head != version:
        findings.append(
            f"{package.distribution}: __about__ says {version}, the changelog's head says {head or 'nothing'}"
        )
    required = [
        name for name in package.pyproject()["project"].get("dependencies", []) if name.startswith("sm70-")
    ]
    expected = [] if package.distribution == POLICY else [pin]
    if required != expected:
        findings.append(f"{package.distribution}: requires {required} of the suite, expected {expected}")
    return findings


def check_extras(package: Package, others: list[Package]) -> list[str]:
    """Extras pin the minor version of the package that they name."""
    versions = {other.distribution: about_version(other) for other in others}
    findings = []
    for extra, requirements in package.pyproject()["project"].get("optional-dependencies", {}).items():
        for requirement in requirements:
            name = re.split(r"[=<>!~\[ ]", requirement)[0]
            if name == package.distribution:
                continue
            expected = f"{name}=={'.'.join(versions[name].split('.')[:2])}.*" if name in versions else None
            if expected is not None and requirement != expected:
                findings.append(f"{package.distribution}[{extra}]: {requirement}, expected {expected}")
    return findings


def check_tag(tag: str, found: list[Package]) -> list[str]:
    """The tag names a package and its version, and that is no development version."""
    match = _TAG.match(tag)
    by_name = {package.distribution: package for package in found}
    if match is None or match["distribution"] not in by_name:
        return [f"tag {tag}: expected <package>-v<version> with one of {', '.join(sorted(by_name))}"]
    version = about_version(by_name[match["distribution"]])
    findings = []
    if match["version"] != version:
        findings.append(f"tag {tag}: __about__ says {version}")
    if ".dev" in version:
        findings.append(f"tag {tag}: {version} is a development version and is not released")
    return findings


def main(argv: list[str] | None = None) -> int:
    """Check the repository and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    parser.add_argument("--tag", help="tag of the release, such as sm70-policy-v0.1.0")
    options = parser.parse_args(argv)
    found = packages(options.root)
    (policy,) = [package for package in found if package.distribution == POLICY]
    pin = policy_pin(about_version(policy))
    findings = [finding for package in found for finding in check_package(package, pin)]
    findings.extend(finding for package in found for finding in check_extras(package, found))
    if options.tag:
        findings.extend(check_tag(options.tag, found))
    return report("check_release", findings)


if __name__ == "__main__":
    sys.exit(main())
