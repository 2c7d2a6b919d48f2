"""Checkpoint folders that are either complete or absent: written under another name, then renamed."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

STAMP_FILE = "demo_stamp.json"

Stamp = Mapping[str, str | int]


class ForeignFolderError(RuntimeError):
    """The target exists and the demo did not write it."""


def read_stamp(folder: Path) -> dict[str, str | int] | None:
    """Return what a finished folder says it was made from, or None where there is no stamp."""
    path = folder / STAMP_FILE
    if not path.is_file():
        return None
    stamp: dict[str, str | int] = json.loads(path.read_text(encoding="utf-8"))
    return stamp


def build_folder(target: Path, stamp: Stamp, build: Callable[[Path], None]) -> bool:
    """Make `target` with `build` unless it is there already and was made from the same `stamp`.

    `build` receives an empty folder beside `target`; the rename at the end is the only step that makes
    `target` appear, so a killed process leaves no half checkpoint under that name. Returns True where `build`
    ran. Raises ForeignFolderError where `target` exists without a stamp.
    """
    if target.exists():
        found = read_stamp(target)
        if found is None:
            raise ForeignFolderError(
                f"{target} exists and has no {STAMP_FILE}: the demo did not write it. "
                "Choose another --work folder."
            )
        if found == dict(stamp):
            return False
    partial = target.with_name(target.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    build(partial)
    (partial / STAMP_FILE).write_text(json.dumps(dict(stamp), indent=1) + "\n", encoding="utf-8")
    if target.exists():
        shutil.rmtree(target)
    partial.rename(target)
    return True
