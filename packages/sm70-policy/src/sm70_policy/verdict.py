"""What a kernel answers when asked about a problem: yes, or a reason that says what would help."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Supported:
    """The kernel can serve the problem."""

    def __str__(self) -> str:
        return "supported"


@dataclass(frozen=True)
class Rejection:
    """The kernel cannot serve the problem.

    Attributes:
        code: Stable identifier for programs and snapshots, such as `k-not-multiple`.
        message: What was asked and what is allowed, with all numbers.
        fix: What the user can do about it.
    """

    code: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.message} ({self.fix})"


Verdict = Supported | Rejection

SUPPORTED = Supported()
