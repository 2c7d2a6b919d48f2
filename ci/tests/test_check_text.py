"""Paths and hosts that must not be in tracked text; the samples are put together, so this file passes too."""

from pathlib import Path

import pytest

import check_text
from tree_builder import make_git, write

SLASH = "/"


def path(*parts: str) -> str:
    return SLASH + SLASH.join(parts)


def host(*parts: str) -> str:
    return ".".join(parts)


@pytest.mark.parametrize("folder", ["home", "root", "Users", "work", "mnt"])
def test_an_absolute_path_is_found(folder: str) -> None:
    text = f'first\nROOT = "{path(folder, "someone", "tree")}"\n'
    (finding,) = check_text.check_text("a.py", text)
    assert finding.startswith(f"a.py:2: absolute path {path(folder, 'someone')}")


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/home/page",
        "docs/work/notes.md",
        "~/work/notes.md",
        "$HOME/work/x",
        "a /work-group of rows",
        "/usr/bin/env",
        "/opt/x",
    ],
)
def test_other_paths_are_fine(text: str) -> None:
    assert check_text.check_text("a.md", text) == []


@pytest.mark.parametrize(
    "parts",
    [
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("PyPI", "org"),
        ("nvcr", "io"),
    ],
)
def test_a_registry_host_is_found(parts: tuple[str, ...]) -> None:
    (finding,) = check_text.check_text("a.md", f"see https://{host(*parts)}/simple")
    assert finding.startswith("a.md:1: registry host")


def test_main_reads_tracked_text_and_skips_binaries(tmp_path: Path) -> None:
    make_git(tmp_path)
    write(tmp_path, "fine.md", "nothing here\n")
    (tmp_path / "blob.bin").write_bytes(b"\0" + host("pypi", "org").encode())
    assert check_text.main(["--root", str(tmp_path)]) == 0
    write(tmp_path, "deep/bad.toml", f'index = "https://{host("pypi", "org")}"\n')
    assert check_text.main(["--root", str(tmp_path)]) == 1
