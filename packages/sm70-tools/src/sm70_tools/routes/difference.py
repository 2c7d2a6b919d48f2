"""What changed between two snapshots, and whether that is what was meant to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import describe
from sm70_tools.errors import SnapshotError

if TYPE_CHECKING:
    from sm70_tools.routes.snapshot import Snapshot


@dataclass(frozen=True)
class Change:
    """One row that differs.

    Attributes:
        row_id: Its name.
        details: One line for each part that differs: `v100 down_proj class: OLD -> NEW`.
    """

    row_id: str
    details: tuple[str, ...]


def compare(old: Snapshot, new: Snapshot) -> tuple[Change, ...]:
    """Rows that differ, sorted by name; those that only one of the two has are among them.

    Raises:
        SnapshotError: The two are of different categories or versions of vLLM.
    """
    if (old.category, old.host) != (new.category, new.host):
        raise SnapshotError(
            describe(
                asked=f"comparing {old.category} of vLLM {old.host} with {new.category} of vLLM {new.host}",
                allowed="two snapshots of one category and one version of vLLM",
                fix="Take both with the same --category and --host",
            )
        )
    changes = []
    for row_id in sorted(old.rows.keys() | new.rows.keys()):
        before, after = old.rows.get(row_id), new.rows.get(row_id)
        if before is None:
            changes.append(Change(row_id, ("new row",)))
        elif after is None:
            changes.append(Change(row_id, ("row is gone",)))
        elif before != after:
            changes.append(Change(row_id, tuple(_details(before, after))))
    return tuple(changes)


_LEVELS_WITHOUT_MEANING = ("cards", "layers")


def _details(before: object, after: object, where: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            name = () if key in _LEVELS_WITHOUT_MEANING else (f"m={key}" if key.isdecimal() else key,)
            yield from _details(before.get(key), after.get(key), (*where, *name))
    elif before != after:
        yield f"{' '.join(where)}: {_shown(before)} -> {_shown(after)}"


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Judgement:
    """Changes against what was expected to change.

    Attributes:
        unexpected: Rows that differ and should not.
        missing: Rows that should differ and do not.
    """

    unexpected: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether exactly the expected rows differ."""
        return not (self.unexpected or self.missing)


def judge(changes: tuple[Change, ...], expected: frozenset[str]) -> Judgement:
    """Set the changes against the exact set of rows that are meant to change."""
    found = {change.row_id for change in changes}
    return Judgement(tuple(sorted(found - expected)), tuple(sorted(expected - found)))


def read_expected(path: Path) -> frozenset[str]:
    """Read a JSON list of row names.

    Raises:
        SnapshotError: The file cannot be read, or it is no list of different names.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _no_list(path, f"which cannot be read: {error}") from error
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        raise _no_list(path, "which holds something else")
    twice = sorted({item for item in content if content.count(item) > 1})
    if twice:
        raise _no_list(path, f"which names {', '.join(twice)} more than once")
    return frozenset(content)


def _no_list(path: Path, what: str) -> SnapshotError:
    return SnapshotError(
        describe(
            asked=f"--expected-changes {path}, {what}",
            allowed="a JSON list of row names, each once",
            fix="`sm70 routes diff OLD NEW --ids` prints the list for two files",
        )
    )
