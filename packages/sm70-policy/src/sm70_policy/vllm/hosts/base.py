"""The one interface between the suite and a vLLM version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sm70_policy.capability import Device
    from sm70_policy.vllm.ledger import Patch


class Host(Protocol):
    """An adapter for a range of vLLM versions.

    Attributes:
        versions: The range, for people.
    """

    versions: str

    def device(self) -> Device | None:
        """The device of this process' platform; None for platforms that the suite has nothing for."""
        ...

    def patches(self) -> tuple[Patch, ...]:
        """The ledger's patches for these versions, in the order in which they are applied."""
        ...
