"""Snapshots as files: what is written is what is read, small and sorted; damaged files are named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from sm70_tools.errors import SnapshotError
from sm70_tools.routes import encoding
from tools_routes import EDGE, FOUR, ONE, REFUSED, layer, rows, snapshot


def written(content: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encoding.to_text(snapshot(content)))
    return document


def test_reading_gives_what_was_written() -> None:
    taken = snapshot()
    assert encoding.from_text(encoding.to_text(taken), "a test") == taken


def test_a_second_writing_has_the_same_bytes() -> None:
    text = encoding.to_text(snapshot())
    backwards = dict(reversed(rows().items()))
    assert encoding.to_text(snapshot(backwards)) == text
    assert encoding.to_text(encoding.from_text(text, "a test")) == text


def test_each_row_is_one_line_and_sorted() -> None:
    lines = encoding.to_text(snapshot()).splitlines()
    names = [line.strip().split('"')[1] for line in lines if line.startswith('  "nvfp4/')]
    assert names == sorted(rows())


def test_rows_that_share_layers_name_them() -> None:
    document = written()
    route = "v100/27b-nvfp4/tp=4"
    assert document["rows"][ONE]["cards"]["v100"] == document["rows"][FOUR]["cards"]["v100"] == route
    assert list(document["routes"][route]["qkv_proj"]["launches"]) == ["1", "4", "4096"]
    assert document["routes"][route]["qkv_proj"]["passed_over"] == "v100"
    assert document["passed_over"]["v100"] == {"SlowKernel": "disabled-by-setting"}


def test_layers_that_differ_get_a_name_of_their_own() -> None:
    content = rows()
    content[FOUR]["cards"]["v100"]["layers"]["qkv_proj"] = layer(4, 4096, served_by="SlowKernel")
    document = written(content)
    assert document["rows"][ONE]["cards"]["v100"] == "v100/27b-nvfp4/tp=4"
    assert document["rows"][FOUR]["cards"]["v100"] == "v100/27b-nvfp4/tp=4/2"
    assert encoding.from_text(json.dumps(document), "a test").rows == content


def test_launches_that_contradict_each_other_are_not_merged() -> None:
    content = rows()
    content[FOUR]["cards"]["v100"]["layers"]["qkv_proj"] = layer(4, 4096, grid=57)
    assert encoding.from_text(encoding.to_text(snapshot(content)), "a test").rows == content


def test_a_layer_without_launches_is_kept() -> None:
    content = rows()
    for row_id in (ONE, FOUR):
        content[row_id]["cards"]["v100"]["layers"]["qkv_proj"] = layer()
    assert encoding.from_text(encoding.to_text(snapshot(content)), "a test").rows == content


def _drop(document: dict[str, Any], part: str) -> None:
    del document[part]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda document: document.update(schema="sm70-routes/2"), "has the schema 'sm70-routes/2'"),
        (lambda document: _drop(document, "schema"), "has the schema None"),
        (lambda document: _drop(document, "rows"), "lacks rows"),
        (lambda document: _drop(document, "packages"), "lacks packages"),
        (lambda document: document["routes"].clear(), "is damaged: KeyError: 'v100/27b-nvfp4/tp=4'"),
        (lambda document: document["passed_over"].clear(), "is damaged: KeyError: 'v100'"),
        (lambda document: document["rows"][ONE].pop("cards"), "is damaged: ValueError: "),
        (lambda document: document["rows"][EDGE]["cards"].update(v100={}), "is damaged: KeyError"),
        (lambda document: document["rows"][REFUSED].update(cards=None), "is damaged: AttributeError"),
        (lambda document: document.update(rows=[]), "is damaged: AttributeError"),
        (
            lambda document: document["routes"]["v100/27b-nvfp4/tp=4"]["qkv_proj"]["launches"].pop("4"),
            "is damaged: KeyError: '4'",
        ),
    ],
)
def test_a_damaged_file_is_named(damage: Any, words: str, tmp_path: Path) -> None:
    document = written()
    damage(document)
    path = tmp_path / "routes.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(SnapshotError) as caught:
        encoding.read(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "sm70-routes/1"'])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(SnapshotError, match="the routes in a test, which"):
        encoding.from_text(text, "a test")


def test_a_row_that_is_there_twice_is_damage() -> None:
    text = encoding.to_text(snapshot())
    line = next(line for line in text.splitlines() if REFUSED in line)
    with pytest.raises(SnapshotError, match=f"{REFUSED} is there more than once"):
        encoding.from_text(text.replace(line, f"{line}\n{line}"), "a test")


def test_a_missing_file_and_one_of_other_bytes(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="which cannot be read"):
        encoding.read(tmp_path / "nothing.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SnapshotError, match="which cannot be read"):
        encoding.read(binary)


def test_packages_and_notes_are_kept() -> None:
    taken = dataclasses.replace(snapshot(), notes={"rows": "other words"}, packages={"torch": "2.0"})
    read = encoding.from_text(encoding.to_text(taken), "a test")
    assert (read.notes, read.packages) == (taken.notes, taken.packages)
