"""What one process is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """Rows of one category on one card.

    Attributes:
        category: Name of the category.
        host: Version of vLLM.
        card: A key of `cards.ROUTED_CARDS`.
        rows: Names of the rows.
        suite: Whether the suite's plug-in is registered.
    """

    category: str
    host: str
    card: str
    rows: tuple[str, ...]
    suite: bool = True
