"""A snapshot in memory: one mapping for each row, complete in itself, so that rows can be compared alone.

A row is one of
- `{"not_applicable": reason}`;
- `{"decode_m": M, "prefill_m": M, "cards": {card: outcome}}`, a configuration of the grid;
- `{"about": text, "cards": {card: outcome}}`, an edge case;
- `{"stock": route, "suite": route}`, of the category stock.

An outcome is `{"layers": {name: layer}}`, or `{"refused": message, "passed_over": reasons}` where vLLM or the
suite raised an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The routes of one category.

    Attributes:
        category: Name of the category.
        host: Version of vLLM.
        packages: What it was taken with: versions by distribution, None for what was not installed.
        notes: What was run for a row and what was not, for people; not compared.
        rows: By name, sorted.
    """

    category: str
    host: str
    packages: Mapping[str, str | None]
    notes: Mapping[str, str]
    rows: Mapping[str, Row]
