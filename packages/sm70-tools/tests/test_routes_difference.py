"""What differs between two snapshots, and the exact list of rows that may."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sm70_tools.cli import main
from sm70_tools.errors import SnapshotError
from sm70_tools.routes import difference, encoding
from tools_routes import EDGE, FOUR, ONE, OTHER, REFUSED, layer, rows, snapshot

if TYPE_CHECKING:
    from sm70_tools.routes.snapshot import Snapshot


def changed() -> Snapshot:
    """Another kernel for one layer of one card and row, a changed launch, a row gone, a row new."""
    content = rows()
    content[ONE]["cards"]["v100"]["layers"]["qkv_proj"]["class"] = "SlowKernel"
    content[EDGE]["cards"]["v100"]["layers"]["in_proj_ba"]["launches"]["4096"] = "aten::mm"
    del content[REFUSED]
    content["nvfp4/edge/new"] = {"about": "new", "cards": {}}
    return snapshot(content)


def test_equal_snapshots_do_not_differ() -> None:
    assert difference.compare(snapshot(), snapshot()) == ()


def test_packages_and_notes_are_not_compared() -> None:
    other = dataclasses.replace(snapshot(), packages={}, notes={})
    assert difference.compare(snapshot(), other) == ()


def test_each_difference_is_named_with_its_place() -> None:
    changes = {item.row_id: item.details for item in difference.compare(snapshot(), changed())}
    assert changes == {
        ONE: ("v100 qkv_proj class: FastKernel -> SlowKernel",),
        EDGE: ("v100 in_proj_ba launches m=4096: " + layer(4096)["launches"]["4096"] + " -> aten::mm",),
        REFUSED: ("row is gone",),
        "nvfp4/edge/new": ("new row",),
    }


@pytest.mark.parametrize(
    ("row_id", "change", "words"),
    [
        (FOUR, lambda row: row["cards"].pop("rtx8000"), "rtx8000: "),
        (FOUR, lambda row: row.update(decode_m=5), "decode_m: 4 -> 5"),
        (
            OTHER,
            lambda row: row.update(not_applicable="x"),
            "not_applicable: the scope's checkpoint is awq -> x",
        ),
        (REFUSED, lambda row: row["cards"]["v100"].update(refused="x"), "v100 refused: RouteError: no -> x"),
        (
            ONE,
            lambda row: row["cards"]["v100"]["layers"]["qkv_proj"]["passed_over"].update(New="k"),
            "v100 qkv_proj passed_over New: nothing -> k",
        ),
        (
            ONE,
            lambda row: row["cards"]["rtx8000"]["layers"].update(down_proj=layer(1)),
            "rtx8000 down_proj: nothing -> {",
        ),
    ],
)
def test_any_part_of_a_row_counts(row_id: str, change: Any, words: str) -> None:
    content = rows()
    change(content[row_id])
    (found,) = difference.compare(snapshot(), snapshot(content))
    assert found.row_id == row_id
    assert any(line.startswith(words) for line in found.details), found.details


@pytest.mark.parametrize("other", [{"category": "stock"}, {"host": "0.19.1"}])
def test_snapshots_of_different_things_are_not_compared(other: dict[str, Any]) -> None:
    with pytest.raises(SnapshotError, match="one category and one version"):
        difference.compare(snapshot(), dataclasses.replace(snapshot(), **other))


def test_exactly_the_expected_rows_may_differ() -> None:
    changes = difference.compare(snapshot(), changed())
    exactly = frozenset({ONE, EDGE, REFUSED, "nvfp4/edge/new"})
    assert difference.judge(changes, exactly).good
    assert difference.judge(changes, exactly - {ONE}) == difference.Judgement((ONE,), ())
    assert difference.judge(changes, exactly | {FOUR}) == difference.Judgement((), (FOUR,))
    assert difference.judge(changes, exactly | {"no/such/row"}).missing == ("no/such/row",)
    assert difference.judge((), frozenset()).good


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "which holds something else"),
        ("[1]", "which holds something else"),
        ('["a", "a"]', "which names a more than once"),
        ("[", "which cannot be read"),
    ],
)
def test_a_list_that_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "expected.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SnapshotError, match=words):
        difference.read_expected(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, Path]:
    """Two snapshots that differ, and a path for a list."""
    for name, taken in (("old", snapshot()), ("new", changed())):
        (tmp_path / f"{name}.json").write_text(encoding.to_text(taken), encoding="utf-8")
    return str(tmp_path / "old.json"), str(tmp_path / "new.json"), tmp_path / "expected.json"


def test_diff_prints_changes_and_fails(
    files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, _ = files
    assert main(["routes", "diff", old, new]) == 1
    printed = capsys.readouterr().out
    assert f"{ONE}:\n  v100 qkv_proj class: FastKernel -> SlowKernel\n" in printed
    assert f"differs and is not expected to: {REFUSED}\n" in printed
    assert printed.splitlines()[-1] == ("5 rows of nvfp4 in vLLM 0.33.0: 4 differ, 4 unexpected, 0 missing")
    assert main(["routes", "diff", old, old]) == 0


def test_the_printed_list_is_the_exact_one(
    files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, expected = files
    assert main(["routes", "diff", old, new, "--ids"]) == 0
    listed = json.loads(capsys.readouterr().out)
    for names, status in ((listed, 0), (listed[1:], 1), ([*listed, FOUR], 1)):
        expected.write_text(json.dumps(names), encoding="utf-8")
        assert main(["routes", "diff", old, new, "--expected-changes", str(expected)]) == status
    assert f"is expected to differ and does not: {FOUR}" in capsys.readouterr().out
    assert main(["routes", "diff", old, old, "--ids"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_rows_that_changed_alike_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = rows()
    for row_id in (ONE, FOUR):
        content[row_id]["cards"]["v100"]["layers"]["qkv_proj"]["class"] = "SlowKernel"
    for name, taken in (("old", snapshot()), ("new", snapshot(content))):
        (tmp_path / name).write_text(encoding.to_text(taken), encoding="utf-8")
    assert main(["routes", "diff", str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    printed = capsys.readouterr().out
    assert f"{ONE} and 1 more:\n" in printed
    assert printed.count("FastKernel -> SlowKernel") == 1
