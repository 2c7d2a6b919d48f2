"""A snapshot as a file: JSON that is sorted, with one line for each configuration, and repetitions named.

Layers that many rows share are written once, under `routes`, and a row names them. Why kernels were passed
over is written once, under `passed_over`. A name says what its content depends on: `v100/27b-nvfp4/tp=4` are
the layers of one model on one card and number of ranks. Where rows with the same of these have different
layers, as when concurrency matters, the second and further ones get `/2` and so on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sm70_policy.errors import describe
from sm70_tools.errors import SnapshotError
from sm70_tools.routes.snapshot import Row, Snapshot

SCHEMA = "sm70-routes/1"
_PARTS = ("schema", "category", "host", "packages", "notes", "passed_over", "routes", "rows")
_M_KEYS = ("decode_m", "prefill_m")

Named = dict[str, dict[str, Any]]


def to_text(snapshot: Snapshot) -> str:
    """The content of the file."""
    passed_over: Named = {}
    routes: Named = {}
    rows = {
        row_id: _shortened(row_id, snapshot.rows[row_id], routes, passed_over)
        for row_id in sorted(snapshot.rows)
    }
    head = {
        "schema": SCHEMA,
        "category": snapshot.category,
        "host": snapshot.host,
        "packages": dict(sorted(snapshot.packages.items())),
        "notes": dict(snapshot.notes),
        "passed_over": passed_over,
        "routes": routes,
    }
    opened = json.dumps(head, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row_id)}: {json.dumps(row)}" for row_id, row in rows.items())
    return f'{opened},\n "rows": {{\n{lines}\n }}\n}}\n'


def _shortened(row_id: str, row: Row, routes: Named, passed_over: Named) -> dict[str, Any]:
    if "cards" not in row:
        return dict(row)
    in_grid = "decode_m" in row
    cards: dict[str, Any] = {}
    for card, outcome in row["cards"].items():
        if "refused" in outcome:
            name = _name_of(outcome["passed_over"], card, passed_over)
            cards[card] = {**outcome, "passed_over": name}
            continue
        layers = {
            name: {**layer, "passed_over": _name_of(layer["passed_over"], card, passed_over)}
            for name, layer in outcome["layers"].items()
        }
        cards[card] = _route_name(layers, card, row_id, routes) if in_grid else {"layers": layers}
    return {**row, "cards": cards}


def _route_name(layers: dict[str, Any], card: str, row_id: str, routes: Named) -> str:
    _, scope, _, tp, *_ = row_id.split("/")
    base = f"{card}/{scope}/{tp}"
    return _name_of(layers, base, routes, merge=_merge_launches)


def _name_of(
    content: Mapping[str, Any],
    base: str,
    table: Named,
    merge: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any] | None] | None = None,
) -> str:
    """The name of `content` in `table`, which gets it where it is new."""
    number = 1
    while True:
        name = base if number == 1 else f"{base}/{number}"
        if name not in table:
            table[name] = dict(content)
            return name
        if table[name] == content:
            return name
        merged = merge(table[name], content) if merge else None
        if merged is not None:
            table[name] = merged
            return name
        number += 1


def _merge_launches(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """Layers that differ in nothing but the numbers of rows that they were asked for; None for others."""
    if old.keys() != new.keys():
        return None
    merged = {}
    for role, layer in old.items():
        first, second = layer["launches"], new[role]["launches"]
        if {**layer, "launches": None} != {**new[role], "launches": None}:
            return None
        if any(first[m] != second[m] for m in first.keys() & second.keys()):
            return None
        union = {**first, **second}
        merged[role] = {**layer, "launches": {m: union[m] for m in sorted(union, key=int)}}
    return merged


def read(path: Path) -> Snapshot:
    """Read a file.

    Raises:
        SnapshotError: There is no such file, it is damaged, or another version wrote it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(
            describe(
                asked=f"the routes in {path}, which cannot be read: {error}",
                allowed="a file that `sm70 routes snapshot --output FILE` wrote",
                fix="Check the path, or write one",
            )
        ) from error
    return from_text(text, str(path))


def from_text(text: str, origin: str) -> Snapshot:
    """Parse the content of a file.

    Args:
        text: The content.
        origin: Where it is from, for messages.

    Raises:
        SnapshotError: It is damaged, or another version wrote it.
    """
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
        if document.get("schema") != SCHEMA:
            raise _not_ours(origin, f"has the schema {document.get('schema')!r}")
        missing = [part for part in _PARTS if part not in document]
        if missing:
            raise _not_ours(origin, f"lacks {', '.join(missing)}")
        rows = {row_id: _complete(row_id, row, document) for row_id, row in document["rows"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise _not_ours(origin, f"is damaged: {type(error).__name__}: {error}") from error
    return Snapshot(document["category"], document["host"], document["packages"], document["notes"], rows)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{', '.join(twice)} is there more than once")
    return found


def _complete(row_id: str, row: Row, document: Mapping[str, Any]) -> dict[str, Any]:
    """The row with what it names in the place of the names."""
    if "cards" not in row:
        if not row.keys() & {"not_applicable", "stock"}:
            raise ValueError(f"{row_id} has no cards")
        return dict(row)
    wanted = {str(row[key]) for key in _M_KEYS if key in row}
    cards = {}
    for card, outcome in row["cards"].items():
        by_name = isinstance(outcome, str)
        found = {"layers": document["routes"][outcome]} if by_name else outcome
        if "refused" in found:
            found = {**found, "passed_over": document["passed_over"][found["passed_over"]]}
        else:
            found = {
                "layers": {
                    name: _complete_layer(layer, document, wanted if by_name else None)
                    for name, layer in found["layers"].items()
                }
            }
        cards[card] = found
    return {**row, "cards": cards}


def _complete_layer(
    layer: Mapping[str, Any], document: Mapping[str, Any], wanted: set[str] | None
) -> dict[str, Any]:
    launches = layer["launches"]
    if wanted is not None:
        launches = {m: launches[m] for m in sorted(wanted, key=int)} if launches else launches
    return {**layer, "launches": launches, "passed_over": document["passed_over"][layer["passed_over"]]}


def _not_ours(origin: str, what: str) -> SnapshotError:
    return SnapshotError(
        describe(
            asked=f"the routes in {origin}, which {what}",
            allowed=f"files of the schema {SCHEMA}, as `sm70 routes snapshot` of this version writes them",
            fix="Restore the file from version control, or take the snapshot anew and review the difference",
        )
    )
