"""Discovery of providers through entry points: a missing or broken package is a reason, never an error."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from sm70_policy.__about__ import CONTRACT_VERSION
from sm70_policy.errors import ContractError
from sm70_policy.provider import ENTRY_POINT_GROUP, LinearKernel, Provider
from sm70_policy.verdict import Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable

KNOWN_PROVIDERS: dict[str, str] = {
    "cuda": "sm70-kernels-cuda",
    "triton": "sm70-kernels-triton",
    "moe": "sm70-moe",
}
"""Entry-point name of each package of the suite, with the name that pip installs."""


@dataclass(frozen=True)
class Absence:
    """A package whose kernels cannot take part, and why."""

    distribution: str
    rejection: Rejection


@dataclass(frozen=True)
class Registry:
    """Everything that discovery found, and everything that it did not."""

    providers: tuple[Provider, ...]
    absences: tuple[Absence, ...]

    def linear_kernels(self) -> tuple[LinearKernel, ...]:
        """All linear kernels in the order in which they are asked: priority, then name."""
        kernels = [kernel for provider in self.providers for kernel in provider.linear_kernels]
        return tuple(sorted(kernels, key=lambda kernel: (-kernel.priority, kernel.name)))


def discover(candidates: Iterable[EntryPoint] | None = None) -> Registry:
    """Load every provider.

    Args:
        candidates: Entry points to consider; those of the group `sm70.providers` when None.
    """
    found = entry_points(group=ENTRY_POINT_GROUP) if candidates is None else candidates
    providers: list[Provider] = []
    absences: list[Absence] = []
    seen: dict[str, str] = {}
    for entry in sorted(found, key=lambda entry: (entry.name, entry.value)):
        if entry.name in seen:
            # The same object listed twice is harmless: two copies of one distribution's metadata.
            if entry.value != seen[entry.name]:
                absences.append(Absence(_distribution(entry.name), _duplicate(entry, seen[entry.name])))
            continue
        seen[entry.name] = entry.value
        try:
            providers.append(_load(entry))
        except Exception as error:  # noqa: BLE001 - a broken package must not take the others down
            absences.append(Absence(_distribution(entry.name), _broken(entry, error)))
    absences.extend(
        Absence(distribution, _not_installed(distribution))
        for name, distribution in KNOWN_PROVIDERS.items()
        if name not in seen
    )
    return Registry(tuple(providers), tuple(absences))


@functools.cache
def installed() -> Registry:
    """The registry of this process, discovered once."""
    return discover()


def _load(entry: EntryPoint) -> Provider:
    provider = entry.load()
    if not isinstance(provider, Provider):
        raise ContractError(
            f"{entry.value} is a {type(provider).__name__}, not a sm70_policy.provider.Provider"
        )
    if provider.contract != CONTRACT_VERSION:
        raise ContractError(
            f"{provider.distribution} {provider.version} was built for contract {provider.contract}, "
            f"sm70-policy speaks contract {CONTRACT_VERSION}"
        )
    return provider


def _distribution(name: str) -> str:
    return KNOWN_PROVIDERS.get(name, name)


def _broken(entry: EntryPoint, error: Exception) -> Rejection:
    code = "contract-mismatch" if isinstance(error, ContractError) else "load-failed"
    distribution = _distribution(entry.name)
    return Rejection(
        code,
        f"{distribution} could not be loaded: {type(error).__name__}: {error}",
        f"reinstall it beside the installed sm70-policy: pip install --force-reinstall {distribution}",
    )


def _duplicate(entry: EntryPoint, first: str) -> Rejection:
    return Rejection(
        "duplicate-entry",
        f"the entry point {entry.name} names both {first} and {entry.value}; the first is used",
        "uninstall the distribution that does not belong to the suite",
    )


def _not_installed(distribution: str) -> Rejection:
    return Rejection("not-installed", f"{distribution} is not installed", f"pip install {distribution}")
