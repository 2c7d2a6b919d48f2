"""Builds small repositories for the tests of the checkers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, name: str, text: str) -> Path:
    """Write one file, with its folders."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def add_package(root: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """A package that the checkers find nothing wrong with, as long as `requires` is right."""
    module = name.replace("-", "_")
    dependencies = ", ".join(f'"{requirement}"' for requirement in requires)
    write(
        root,
        f"packages/{name}/pyproject.toml",
        f'[project]\nname = "{name}"\ndependencies = [{dependencies}]\n',
    )
    write(root, f"packages/{name}/CHANGELOG.md", f"# Changelog\n\n## {version}\n\n- First.\n")
    write(root, f"packages/{name}/src/{module}/__init__.py", '"""A package."""\n')
    write(root, f"packages/{name}/src/{module}/__about__.py", f'__version__ = "{version}"\n')


def add_suite(root: Path) -> None:
    """The policy, one kernel package and the tools."""
    add_package(root, "sm70-policy", "0.3.0.dev0")
    add_package(root, "sm70-moe", "0.1.0", ("sm70-policy==0.3.*",))
    add_package(root, "sm70-tools", "0.2.0", ("sm70-policy==0.3.*", "rich"))


def make_git(root: Path) -> None:
    """Turn `root` into a git repository, so that its files count as tracked."""
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)  # noqa: S607 - git is on the path
