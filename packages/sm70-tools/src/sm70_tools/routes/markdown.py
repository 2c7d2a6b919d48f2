"""The category stock as tables for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.errors import SnapshotError
from sm70_tools.routes.cards import ROUTED_CARDS

if TYPE_CHECKING:
    from sm70_tools.routes.snapshot import Snapshot

_LONGEST_REFUSAL = 160


def stock_table(snapshot: Snapshot) -> str:
    """One table for each card: kind of checkpoint, vLLM's own choice, the choice beside the suite.

    Raises:
        SnapshotError: The snapshot is of another category.
    """
    if snapshot.category != "stock":
        raise SnapshotError(
            describe(
                asked=f"a table of {snapshot.category}",
                allowed="a snapshot of the category stock",
                fix="Take one with `sm70 routes snapshot --category stock --output FILE`",
            )
        )
    tables = []
    for key, routed in ROUTED_CARDS.items():
        rows = {name: row for name, row in snapshot.rows.items() if name.split("/")[1] == key}
        lines = [
            f"### {routed.card.sm} ({routed.card.name})",
            "",
            f"| checkpoint | vLLM {snapshot.host} alone | with the suite |",
            "|---|---|---|",
        ]
        for name, row in rows.items():
            stock = _cell(row["stock"])
            suite = "the same" if row["suite"] == row["stock"] else _cell(row["suite"])
            lines.append(f"| {name.split('/')[2]} | {stock} | {suite} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _cell(route: str) -> str:
    """A class name in code, or a refusal cut to what fits a table."""
    if ": " not in route:
        return f"`{route}`"
    kind, _, message = route.partition(": ")
    short = message if len(message) <= _LONGEST_REFUSAL else f"{message[:_LONGEST_REFUSAL].rstrip()} ..."
    return f"{kind}: {short}".replace("|", "\\|")
