"""What the faked platform says of a card, and what kernels are told of it: figures of data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from sm70_policy.capability import Card, find_card

_KIB = 1024


@dataclass(frozen=True)
class RoutedCard:
    """A card that routes are taken for.

    Attributes:
        key: Name, as in `sm70_policy.capability.CARDS`.
        multiprocessors: Their number.
        shared_bytes: Most shared memory of one block.
    """

    key: str
    multiprocessors: int
    shared_bytes: int

    @property
    def card(self) -> Card:
        """The card's name, capability and memory."""
        return find_card(self.key)


ROUTED_CARDS: dict[str, RoutedCard] = {
    item.key: item
    for item in (
        RoutedCard("v100", 80, 96 * _KIB),
        RoutedCard("rtx8000", 72, 64 * _KIB),
        RoutedCard("a100", 108, 163 * _KIB),
        RoutedCard("h100", 132, 227 * _KIB),
        RoutedCard("b200", 148, 227 * _KIB),
    )
}
