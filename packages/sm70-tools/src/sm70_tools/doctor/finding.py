"""What a probe reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    BLOCKING = "blocking"


@dataclass(frozen=True)
class Finding:
    """One observation.

    Attributes:
        severity: How much it matters.
        message: What was found.
        fix: What to do; empty for `ok`.
    """

    severity: Severity
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Section:
    """What one probe found.

    Attributes:
        check: Name of the probe.
        findings: Its observations, for people.
        facts: The same for programs: JSON values.
    """

    check: str
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)
