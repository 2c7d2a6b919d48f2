"""The ledger: every change that the suite makes to vLLM, with its reason and when it can go."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import HostError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_policy.capability import Device
    from sm70_policy.vllm.hosts.base import Host

MARKER = "__sm70_patch__"
"""Attribute of a replaced function that holds the name of the patch which put it there."""


@dataclass(frozen=True)
class Patch:
    """One change to vLLM.

    Attributes:
        name: Short stable name.
        target: Dotted name of what is changed.
        why: What would go wrong without it.
        upstream: Where the changed code is in vLLM's sources.
        remove_when: What makes the patch unnecessary.
        against: Says why the patch is not for a device; None when it is.
        read: Returns the function at the target, as it is now.
        check: Raises HostError when the target is not what the patch was written for.
        perform: Makes the change.
        requires: Names of patches without which this one would do harm.
    """

    name: str
    target: str
    why: str
    upstream: str
    remove_when: str
    against: Callable[[Device], str | None]
    read: Callable[[], Any]
    check: Callable[[], None]
    perform: Callable[[], None]
    requires: tuple[str, ...] = ()

    def applies_to(self, device: Device) -> bool:
        """Whether the patch is for this device."""
        return self.against(device) is None

    def is_applied(self) -> bool:
        """Whether the target already carries this patch's mark."""
        try:
            target = self.read()
        except (ImportError, AttributeError):
            return False
        return getattr(target, MARKER, None) == self.name

    def apply(self) -> None:
        """Change the target, unless it is changed already.

        Raises:
            HostError: The target is not what the patch expects. Nothing is changed.
        """
        if self.is_applied():
            return
        self.verify()
        self.perform()

    def verify(self) -> None:
        """Check the target without changing it.

        Raises:
            HostError: The target is not what the patch expects.
        """
        try:
            self.check()
        except (ImportError, AttributeError) as error:
            raise HostError(
                describe(
                    asked=f"{self.target} ({self.upstream}), but {error}",
                    allowed="a vLLM that has it",
                    fix="Install a vLLM version that the suite names as supported, or a newer sm70-policy",
                )
            ) from error


class Status(StrEnum):
    """Where a patch stands in this process."""

    APPLIED = "applied"
    PENDING = "pending"
    NOT_FOR_DEVICE = "not for this device"
    REFUSED = "refused"


@dataclass(frozen=True)
class Entry:
    """A patch, where it stands, and why; `reason` is empty for an applied patch."""

    patch: Patch
    status: Status
    reason: str = ""


def entries(host: Host) -> tuple[Entry, ...]:
    """The ledger as it stands in this process. Changes nothing."""
    return _walk(host, apply=False)


def apply_all(host: Host) -> tuple[Entry, ...]:
    """Apply every patch that is for this process' device, in order, and return the ledger.

    A patch whose target is not as expected is refused, and so are those that require it.
    """
    return _walk(host, apply=True)


def _walk(host: Host, *, apply: bool) -> tuple[Entry, ...]:
    device = host.device()
    walked: dict[str, Entry] = {}
    for patch in host.patches():
        walked[patch.name] = _entry(patch, device, walked, apply=apply)
    return tuple(walked.values())


def _entry(patch: Patch, device: Device | None, walked: dict[str, Entry], *, apply: bool) -> Entry:
    if patch.is_applied():
        return Entry(patch, Status.APPLIED)
    against = "neither a CUDA device nor the CPU platform" if device is None else patch.against(device)
    if against is not None:
        return Entry(patch, Status.NOT_FOR_DEVICE, against)
    absent = {Status.REFUSED, Status.NOT_FOR_DEVICE}
    missing = [name for name in patch.requires if walked[name].status in absent]
    if missing:
        return Entry(patch, Status.REFUSED, f"it requires {', '.join(missing)}, which was not applied")
    try:
        if not apply:
            patch.verify()
            return Entry(patch, Status.PENDING, "register() has not run in this process")
        patch.apply()
    except HostError as error:
        return Entry(patch, Status.REFUSED, str(error))
    return Entry(patch, Status.APPLIED)


def everywhere(device: Device) -> str | None:
    """`Patch.against` of a patch that is for all devices."""
    return None


def rebind(original: object, replacement: object, name: str) -> int:
    """Point every imported module's `name` at `replacement` where it is `original`.

    `from module import name` copies the reference, so changing the defining module alone would miss those
    who imported it earlier.

    Returns:
        Number of modules changed.
    """
    changed = 0
    for module in list(sys.modules.values()):
        if module is not None and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)
            changed += 1
    return changed
