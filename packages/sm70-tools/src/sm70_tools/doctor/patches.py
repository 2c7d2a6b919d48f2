"""The ledger of patches: what the suite would change in the installed vLLM."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass

from sm70_policy.errors import HostError
from sm70_tools.doctor.finding import Finding, Section, Severity


@dataclass(frozen=True)
class PatchState:
    """One entry of the ledger: the patch's name, its target, its status and the reason."""

    name: str
    target: str
    status: str
    reason: str


_SEVERITIES = {
    "applied": Severity.OK,
    "pending": Severity.OK,
    "not for this device": Severity.INFO,
    "refused": Severity.BLOCKING,
}


def read(release: str) -> tuple[PatchState, ...]:
    """Read the ledger for a vLLM version. Imports vLLM, and changes nothing.

    Raises:
        HostError: The suite does not know the version.
        ImportError: vLLM, or the suite's adapter, cannot be imported.
    """
    from sm70_policy.vllm import hosts, ledger

    # vLLM logs to the standard output when it is imported; that belongs to the report alone.
    with contextlib.redirect_stdout(sys.stderr):
        return tuple(
            PatchState(entry.patch.name, entry.patch.target, str(entry.status), entry.reason)
            for entry in ledger.entries(hosts.find_host(release))
        )


def probe(release: str | None) -> Section:
    """Judge the ledger; `release` is None without vLLM."""
    if release is None:
        return _section(Finding(Severity.INFO, "no vLLM, so no ledger", "install vLLM"))
    try:
        states = read(release)
    except HostError:
        return _section(Finding(Severity.INFO, f"no ledger for vLLM {release}", "see the finding about vLLM"))
    except Exception as error:  # noqa: BLE001 - importing vLLM runs everything that it brings
        return _section(
            Finding(
                Severity.BLOCKING,
                f"the ledger cannot be read: {type(error).__name__}: {error}",
                "check that vLLM itself can be imported",
            )
        )
    facts = [vars(state) for state in states]
    return Section("patches", tuple(_finding(state) for state in states), {"patches": facts})


def _section(finding: Finding) -> Section:
    return Section("patches", (finding,), {"patches": []})


def _finding(state: PatchState) -> Finding:
    severity = _SEVERITIES.get(state.status, Severity.WARNING)
    text = f"{state.name} ({state.target}): {state.status}"
    if severity is Severity.OK:
        return Finding(severity, text)
    fix = "nothing to do" if severity is Severity.INFO else "install a vLLM release that the suite knows"
    return Finding(severity, f"{text}: {state.reason}", fix)
