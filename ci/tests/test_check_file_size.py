"""Limits on files and functions, and exemptions that run out."""

import datetime as dt
from pathlib import Path

import pytest

import check_file_size
from tree_builder import make_git, write

TODAY = dt.date(2026, 6, 15)


def exempt(lines: int, until: dt.date = TODAY) -> tuple[check_file_size.Exemption, ...]:
    return (check_file_size.Exemption("long.py", lines, until, "a table"),)


def findings(path: Path, exemptions: tuple[check_file_size.Exemption, ...] = ()) -> list[str]:
    return check_file_size.check_files(path.parent, [path], exemptions, TODAY)


@pytest.mark.parametrize(
    ("suffix", "limit"), [(".py", 400), (".cu", 600), (".cuh", 600), (".h", 600), (".cpp", 600)]
)
def test_the_limit_is_allowed_and_one_line_more_is_not(tmp_path: Path, suffix: str, limit: int) -> None:
    name = f"long{suffix}"
    assert findings(write(tmp_path, name, "\n" * limit)) == []
    assert findings(write(tmp_path, name, "\n" * (limit + 1))) == [
        f"{name}: {limit + 1} lines, {limit} allowed; split it"
    ]


def test_other_files_may_be_long(tmp_path: Path) -> None:
    assert findings(write(tmp_path, "LICENSE", "\n" * 5000)) == []


def test_an_exemption_allows_its_own_length_until_its_day(tmp_path: Path) -> None:
    path = write(tmp_path, "long.py", "\n" * 450)
    assert findings(path, exempt(450)) == []
    assert findings(path, exempt(449)) == ["long.py: 450 lines, 449 allowed; split it"]
    (ended,) = findings(path, exempt(450, TODAY - dt.timedelta(days=1)))
    assert "the exemption ended on 2026-06-14" in ended


def test_an_exemption_that_is_not_needed_is_found(tmp_path: Path) -> None:
    assert "remove the exemption" in findings(write(tmp_path, "long.py", "\n"), exempt(450))[0]
    assert "does not exist" in findings(write(tmp_path, "other.py", "\n"), exempt(450))[0]


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_long_function_is_found(tmp_path: Path, keyword: str) -> None:
    def function(lines: int) -> str:
        return f"@staticmethod\n{keyword} f():\n" + "    pass\n" * (lines - 1)

    path = write(tmp_path, "short.py", function(60))
    assert check_file_size.check_functions(tmp_path, [path]) == []
    write(tmp_path, "short.py", function(61))
    assert check_file_size.check_functions(tmp_path, [path]) == [
        "short.py:2: f has 61 lines, 60 allowed; split it"
    ]


def test_main_looks_at_tracked_files_and_leaves_ignored_ones_out(tmp_path: Path) -> None:
    make_git(tmp_path)
    write(tmp_path, ".gitignore", "built/\n")
    write(tmp_path, "built/long.py", "\n" * 401)
    assert check_file_size.main(["--root", str(tmp_path)]) == 0
    write(tmp_path, "long.py", "\n" * 401)
    assert check_file_size.main(["--root", str(tmp_path)]) == 1
