from pathlib import Path

import pytest

from sm70_demo.folders import STAMP_FILE, ForeignFolderError, build_folder, read_stamp

STAMP: dict[str, str | int] = {"kind": "fp16", "bytes": 7}


def write_one(folder: Path) -> None:
    (folder / "model.safetensors").write_text("new", encoding="utf-8")


def fail(folder: Path) -> None:
    (folder / "model.safetensors").write_text("half", encoding="utf-8")
    raise RuntimeError("killed")


def refuse(folder: Path) -> None:
    raise AssertionError(f"{folder} was built again")


def test_finished_folder_is_recognised(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "fp16"
    assert build_folder(target, STAMP, write_one)
    assert read_stamp(target) == STAMP
    assert not build_folder(target, STAMP, refuse)
    assert sorted(path.name for path in target.parent.iterdir()) == ["fp16"]


def test_interrupted_build_leaves_no_target(tmp_path: Path) -> None:
    target = tmp_path / "fp16"
    with pytest.raises(RuntimeError, match="killed"):
        build_folder(target, STAMP, fail)
    assert not target.exists()


def test_left_over_of_an_interrupted_build_is_not_kept(tmp_path: Path) -> None:
    target = tmp_path / "fp16"
    (tmp_path / "fp16.partial").mkdir()
    (tmp_path / "fp16.partial" / "stale.safetensors").touch()
    assert build_folder(target, STAMP, write_one)
    assert sorted(path.name for path in target.iterdir()) == [STAMP_FILE, "model.safetensors"]


def test_other_stamp_replaces_the_folder(tmp_path: Path) -> None:
    target = tmp_path / "fp16"
    build_folder(target, {"kind": "fp16", "bytes": 6}, lambda folder: (folder / "old").touch())
    assert build_folder(target, STAMP, write_one)
    assert sorted(path.name for path in target.iterdir()) == [STAMP_FILE, "model.safetensors"]


def test_failed_rebuild_keeps_the_finished_folder(tmp_path: Path) -> None:
    target = tmp_path / "fp16"
    build_folder(target, STAMP, write_one)
    with pytest.raises(RuntimeError, match="killed"):
        build_folder(target, {"kind": "fp16", "bytes": 8}, fail)
    assert (target / "model.safetensors").read_text(encoding="utf-8") == "new"


def test_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "fp16"
    target.mkdir()
    (target / "precious").touch()
    with pytest.raises(ForeignFolderError, match="did not write it"):
        build_folder(target, STAMP, write_one)
    assert (target / "precious").exists()
