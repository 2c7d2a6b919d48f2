"""The tuning table: for one kind of card and one shape, the variant to run, and who says so."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from sm70_kernels_cuda.launch import TOKEN_TILE, VARIANTS, Variant
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant
from sm70_policy.errors import SettingsError, describe

TABLE = Path(__file__).with_name("nvfp4.json")
"""Written by `python -m sm70_tools.roofline tune`; a test compares it. Measured rows are added by hand."""

SCHEMA = "sm70-tuning/1"

KINDS = ("measured", "predicted")

_KERNELS: dict[str, dict[str, Variant | GeneralVariant]] = {
    "strip": {item.kernel: item for item in VARIANTS},
    "general": {item.kernel: item for item in GENERAL_VARIANTS},
}

_NUMBERS = ("capability", "multiprocessors", "n", "k", "m_min", "m_max")

_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True)
class Source:
    """Who says that a variant is better.

    Attributes:
        kind: One of KINDS.
        gpu: The card that it was measured on, or predicted for.
        origin: A file of benchmarks/results, or the command that predicts.
        date: Day, ISO 8601.
        commit: Commit of the kernels, abbreviated.
    """

    kind: str
    gpu: str
    origin: str
    date: str
    commit: str


@dataclass(frozen=True)
class TuningRow:
    """One choice.

    Attributes:
        capability: Compute capability, 70 for 7.0.
        multiprocessors: Their number: what fills one card leaves another idle.
        n: Output features.
        k: Input features.
        m_min: Fewest rows of x.
        m_max: Most rows of x.
        family: `strip` or `general`.
        kernel: Name of the variant in the fat binary.
        source: Key of the table's sources.
    """

    capability: int
    multiprocessors: int
    n: int
    k: int
    m_min: int
    m_max: int
    family: str
    kernel: str
    source: str

    @property
    def variant(self) -> Variant | GeneralVariant:
        """The variant to run."""
        return _KERNELS[self.family][self.kernel]


@dataclass(frozen=True)
class TuningTable:
    """All rows, and the sources that they name."""

    sources: dict[str, Source]
    rows: tuple[TuningRow, ...]

    def find(
        self, capability: int, multiprocessors: int, m: int, n: int, k: int
    ) -> Variant | GeneralVariant | None:
        """The variant for M rows of x; None where no row says anything."""
        for row in self._by_shape.get((capability, multiprocessors, n, k), ()):
            if row.m_min <= m <= row.m_max:
                return row.variant
        return None

    @functools.cached_property
    def _by_shape(self) -> dict[tuple[int, int, int, int], list[TuningRow]]:
        found: dict[tuple[int, int, int, int], list[TuningRow]] = {}
        for row in self.rows:
            found.setdefault((row.capability, row.multiprocessors, row.n, row.k), []).append(row)
        return found


def parse(text: str, where: str) -> TuningTable:
    """Read and check a table.

    Args:
        text: JSON as `to_text` writes it.
        where: Name of the file, for messages.

    Raises:
        SettingsError: It is malformed: no JSON, another schema, an unknown or missing key, a wrong type, an
            unknown kernel or source, an empty or overlapping range of rows.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _malformed(where, f"text that is no JSON ({error})", "JSON") from error
    _check_keys(document, ("schema", "sources", "rows"), where)
    if document["schema"] != SCHEMA:
        raise _malformed(where, f"schema {document['schema']!r}", SCHEMA)
    if not isinstance(document["sources"], dict) or not isinstance(document["rows"], list):
        raise _malformed(where, "sources or rows of another type", "an object of sources and a list of rows")
    sources = {key: _source(value, f"{where}, source {key}") for key, value in document["sources"].items()}
    rows = tuple(_row(value, sources, f"{where}, row {i}") for i, value in enumerate(document["rows"]))
    for i, row in enumerate(rows):
        _check_overlap(row, rows[:i], f"{where}, row {i}")
    return TuningTable(sources, rows)


def to_text(table: TuningTable) -> str:
    """The table as JSON, one row a line."""
    sources = [f"  {json.dumps(key)}: {json.dumps(vars(value))}" for key, value in table.sources.items()]
    rows = [f"  {json.dumps(vars(row))}" for row in table.rows]
    lines = [f'{{\n "schema": "{SCHEMA}",\n "sources": {{', ",\n".join(sources), ' },\n "rows": [']
    return "\n".join([*lines, ",\n".join(rows), " ]\n}"]) + "\n"


@functools.cache
def load() -> TuningTable:
    """The table of the installed kernels.

    Raises:
        SettingsError: It is malformed.
    """
    return parse(TABLE.read_text(encoding="utf-8"), TABLE.name)


def _source(value: Any, where: str) -> Source:  # noqa: ANN401 - whatever stands in the file
    _check_keys(value, tuple(Source.__annotations__), where)
    source = Source(**{key: _typed(value, key, str, where) for key in Source.__annotations__})
    if source.kind not in KINDS:
        raise _malformed(where, f"kind {source.kind!r}", " or ".join(KINDS))
    try:
        date.fromisoformat(source.date)
    except ValueError as error:
        raise _malformed(where, f"date {source.date!r}", "a day such as 2026-11-30") from error
    return source


def _row(value: Any, sources: dict[str, Source], where: str) -> TuningRow:  # noqa: ANN401
    _check_keys(value, tuple(TuningRow.__annotations__), where)
    numbers = {key: _typed(value, key, int, where) for key in _NUMBERS}
    row = TuningRow(
        capability=numbers["capability"],
        multiprocessors=numbers["multiprocessors"],
        n=numbers["n"],
        k=numbers["k"],
        m_min=numbers["m_min"],
        m_max=numbers["m_max"],
        family=_typed(value, "family", str, where),
        kernel=_typed(value, "kernel", str, where),
        source=_typed(value, "source", str, where),
    )
    if min(numbers.values()) < 1 or row.m_min > row.m_max:
        raise _malformed(where, f"sizes {numbers}", "positive numbers, and m_min up to m_max")
    if row.family not in _KERNELS:
        raise _malformed(where, f"family {row.family!r}", " or ".join(_KERNELS))
    if row.kernel not in _KERNELS[row.family]:
        raise _malformed(where, f"{row.family} kernel {row.kernel!r}", ", ".join(_KERNELS[row.family]))
    most = row.variant.token_tiles * TOKEN_TILE
    if row.family == "strip" and row.m_max > most:
        raise _malformed(where, f"{row.m_max} rows on {row.kernel}", f"at most {most}")
    if row.source not in sources:
        raise _malformed(where, f"source {row.source!r}", ", ".join(sources) or "none: sources is empty")
    return row


def _check_overlap(row: TuningRow, earlier: tuple[TuningRow, ...], where: str) -> None:
    def key(item: TuningRow) -> tuple[int, int, int, int]:
        return item.capability, item.multiprocessors, item.n, item.k

    for other in earlier:
        if key(other) == key(row) and other.m_min <= row.m_max and row.m_min <= other.m_max:
            raise _malformed(
                where,
                f"rows of x {row.m_min} to {row.m_max}, some of which an earlier row has",
                "one row each",
            )


def _check_keys(value: Any, wanted: tuple[str, ...], where: str) -> None:  # noqa: ANN401
    if not isinstance(value, dict) or set(value) != set(wanted):
        keys = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise _malformed(where, f"keys {keys}", f"an object with the keys {', '.join(wanted)}")


def _typed(value: dict[str, Any], key: str, wanted: type[_Value], where: str) -> _Value:
    found = value[key]
    if not isinstance(found, wanted) or isinstance(found, bool) or found == "":
        raise _malformed(where, f"{key} = {found!r}", f"a non-empty value of type {wanted.__name__}")
    return found


def _malformed(where: str, asked: str, allowed: str) -> SettingsError:
    return SettingsError(
        describe(
            asked=f"{where}: {asked}", allowed=allowed, fix="Correct the file, or reinstall sm70-kernels-cuda"
        )
    )
