"""The suite's packages: which bring kernels, which are missing, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_tools.doctor.finding import Finding, Section, Severity

if TYPE_CHECKING:
    from sm70_policy.provider import Provider
    from sm70_policy.registry import Absence, Registry


def probe(registry: Registry) -> Section:
    """Judge what discovery found."""
    findings = [_present(provider) for provider in registry.providers]
    findings += [_absent(absence) for absence in registry.absences]
    if not registry.linear_kernels():
        findings.append(
            Finding(
                Severity.WARNING,
                "no installed package brings a linear kernel",
                "pip install sm70-kernels-cuda",
            )
        )
    facts = {
        "providers": [
            {
                "name": provider.name,
                "distribution": provider.distribution,
                "version": provider.version,
                "linear_kernels": [kernel.name for kernel in provider.linear_kernels],
            }
            for provider in registry.providers
        ],
        "absences": [
            {
                "distribution": absence.distribution,
                "code": absence.rejection.code,
                "why": absence.rejection.message,
            }
            for absence in registry.absences
        ],
    }
    return Section("packages", tuple(findings), facts)


def _present(provider: Provider) -> Finding:
    text = f"{provider.distribution} {provider.version}"
    names = ", ".join(kernel.name for kernel in provider.linear_kernels)
    if not names:
        return Finding(Severity.INFO, f"{text}: brings no linear kernel", "nothing to do")
    return Finding(Severity.OK, f"{text}: {names}")


def _absent(absence: Absence) -> Finding:
    # An absent package is a choice; one that is there and cannot be used is a defect.
    missing = absence.rejection.code == "not-installed"
    return Finding(
        Severity.INFO if missing else Severity.BLOCKING, absence.rejection.message, absence.rejection.fix
    )
