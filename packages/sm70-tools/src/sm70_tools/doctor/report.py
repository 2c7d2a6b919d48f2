"""Runs the probes and prints what they found."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from sm70_policy.__about__ import __version__ as policy_version
from sm70_policy.registry import discover
from sm70_tools.__about__ import __version__
from sm70_tools.doctor import driver, host, packages, patches, torch_build
from sm70_tools.doctor.finding import Finding, Section, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

SCHEMA = "sm70-doctor/1"

_STYLES = {
    Severity.OK: "green",
    Severity.INFO: "cyan",
    Severity.WARNING: "yellow",
    Severity.BLOCKING: "bold red",
}


def collect() -> tuple[Section, ...]:
    """Run every probe on this machine."""
    versions = host.installed_versions()
    driver_section, cards = driver.probe(driver.ask())
    return (
        probe_machine(),
        driver_section,
        torch_build.probe(torch_build.read(), cards),
        host.probe(versions, host.adapter_of, host.plugins()),
        packages.probe(discover()),
        patches.probe(next(iter(versions.values()), None)),
    )


def probe_machine() -> Section:
    """Python, the platform and the suite's own versions."""
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sm70-policy": policy_version,
        "sm70-tools": __version__,
    }
    text = (
        f"Python {facts['python']} on {facts['platform']}; "
        f"sm70-policy {policy_version}, sm70-tools {__version__}"
    )
    return Section("machine", (Finding(Severity.OK, text),), facts)


def is_blocked(sections: Iterable[Section]) -> bool:
    """Whether any finding is blocking."""
    return any(finding.severity is Severity.BLOCKING for section in sections for finding in section.findings)


def to_json(sections: tuple[Section, ...]) -> dict[str, Any]:
    """The report for programs."""
    return {
        "schema": SCHEMA,
        "blocked": is_blocked(sections),
        "findings": [
            {
                "check": section.check,
                "severity": str(finding.severity),
                "message": finding.message,
                "fix": finding.fix,
            }
            for section in sections
            for finding in section.findings
        ],
        "facts": {section.check: section.facts for section in sections},
    }


def render(sections: tuple[Section, ...], console: Console) -> None:
    """Print the report for people."""
    table = Table(title="sm70 doctor", title_justify="left", show_lines=False)
    table.add_column("Check")
    table.add_column("Severity")
    table.add_column("Finding, and what to do", overflow="fold")
    for section in sections:
        for finding in section.findings:
            text = finding.message + (f"\n-> {finding.fix}" if finding.fix else "")
            severity = Text(str(finding.severity), style=_STYLES[finding.severity])
            table.add_row(section.check, severity, Text(text))
    console.print(table)
    console.print(
        "Something blocks: see the findings above." if is_blocked(sections) else "Nothing blocks.",
        highlight=False,
    )
