"""Routes of another revision: its packages are installed apart and asked the questions of this one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError, WorkerError
from sm70_tools.routes import processes

if TYPE_CHECKING:
    from sm70_tools.routes.categories import Category
    from sm70_tools.routes.snapshot import Snapshot

_PACKAGES = ("sm70-policy", "sm70-kernels-cuda", "sm70-kernels-triton", "sm70-moe")
"""What is taken from the revision. The questions, which are of sm70-tools, are the same on both sides."""


def take(category: Category, version: str, revision: str) -> Snapshot:
    """The snapshot of a category with the packages of another revision of the checkout in the current folder.

    Args:
        category: One with rows.
        version: Version of vLLM, which must be the installed one.
        revision: What git calls a commit.

    Raises:
        ArgumentError: The current folder is in no checkout, or git knows no such commit.
        WorkerError: A package of the revision cannot be built, or a process failed.
    """
    root = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel"))
    commit = _git(root, "rev-parse", "--verify", f"{revision}^{{commit}}")
    with _worktree(root, commit) as tree, tempfile.TemporaryDirectory(prefix="sm70-packages-") as folder:
        _install(tree, Path(folder), revision)
        tools = Path(__file__).parents[2]
        return processes.take(category, version, (Path(folder), tools))


@contextmanager
def _worktree(root: Path, commit: str) -> Iterator[Path]:
    """The files of a commit in a folder of their own, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="sm70-baseline-") as scratch:
        tree = Path(scratch) / "tree"
        _git(root, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _install(tree: Path, target: Path, revision: str) -> None:
    """Build the packages with what is installed here, and put them into `target`."""
    folders = [str(tree / "packages" / name) for name in _PACKAGES if (tree / "packages" / name).is_dir()]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *folders],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise WorkerError(
            describe(
                asked=f"packages of {revision}, which could not be built: {done.stdout.strip()}",
                allowed="an environment with pip and with what each package names for its build",
                fix="Install that, as `nox -s routes` does",
            )
        )


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise ArgumentError(
            describe(
                asked=f"git {' '.join(arguments)} in {folder}, which failed: {said.strip()}",
                allowed="a checkout of the suite, with git installed, and a revision that it knows",
                fix="Run the command in a checkout, and check the revision with `git rev-parse`",
            )
        ) from error
    return done.stdout.strip()
