"""No test may be skipped in every leg. Reads the JUnit reports of all legs and sums them up.

A test that needs a CUDA device carries the mark `gpu`, and the root conftest.py skips it with a fixed reason;
such tests are listed as needing a card and are no findings. Any other test has to run in at least one leg.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, report

NEEDS_CARD = "needs a CUDA device"
"""Start of the reason with which conftest.py skips tests marked `gpu`."""


@dataclass(frozen=True)
class Outcome:
    """One test in one leg.

    Attributes:
        test: Class name and name as the report spells them.
        state: passed, failed, skipped or xfailed.
        reason: Why it was skipped; empty otherwise.
    """

    test: str
    state: str
    reason: str


def read_leg(path: Path) -> list[Outcome]:
    """All outcomes of one report."""
    outcomes = []
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - written by our own test run
        test = f"{case.get('classname', '')}::{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes.append(Outcome(test, "failed", ""))
        elif skipped is not None and skipped.get("type") == "pytest.xfail":
            outcomes.append(Outcome(test, "xfailed", ""))
        elif skipped is not None:
            outcomes.append(Outcome(test, "skipped", skipped.get("message", "")))
        else:
            outcomes.append(Outcome(test, "passed", ""))
    return outcomes


def skipped_everywhere(legs: list[list[Outcome]]) -> dict[str, str]:
    """Tests that were skipped in every leg that lists them, with the reason of the last one."""
    reasons: dict[str, str] = {}
    ran = set()
    for outcome in (outcome for leg in legs for outcome in leg):
        if outcome.state == "skipped":
            reasons[outcome.test] = outcome.reason
        else:
            ran.add(outcome.test)
    return {test: reason for test, reason in sorted(reasons.items()) if test not in ran}


def totals(legs: list[list[Outcome]]) -> str:
    """The line `N passed, N failed, ...` over all legs; a skip counts only when no leg ran the test."""
    counts = Counter(outcome.state for leg in legs for outcome in leg)
    left_out = len(skipped_everywhere(legs))
    return (
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['xfailed']} xfailed, "
        f"{left_out} skipped everywhere"
    )


def main(argv: list[str] | None = None) -> int:
    """Check the reports and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--reports", type=Path, default=ROOT / "reports", help="folder with one XML file a leg"
    )
    folder = parser.parse_args(argv).reports
    paths = sorted(folder.glob("*.xml"))
    if not paths:
        return report("check_skips", [f"{folder.name} holds no report; run `nox -s tests routes` first"])
    legs = [read_leg(path) for path in paths]
    absent = skipped_everywhere(legs)
    for test, reason in absent.items():
        if reason.startswith(NEEDS_CARD):
            print(f"needs a card: {test}")
    findings = [
        f"{test}: skipped in every leg ({reason})"
        for test, reason in absent.items()
        if not reason.startswith(NEEDS_CARD)
    ]
    status = report("check_skips", findings)
    print(f"{len(paths)} leg(s): {totals(legs)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
