"""Refuse to run a GPU session on a machine without the card that it is for.

The sessions for one card prove what was run on that card, so another one, however similar, does not count.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """A GPU as nvidia-smi names it.

    Attributes:
        name: Product name, such as `Tesla V100-SXM2-16GB`.
        capability: Compute capability, such as `7.0`.
    """

    name: str
    capability: str


WANTED: dict[str, Card | None] = {
    "gpu": None,
    "gpu-v100": Card("V100", "7.0"),
    "gpu-rtx8000": Card("RTX 8000", "7.5"),
    "gpu-b200": Card("B200", "10.0"),
}
"""Session, and what its card has to be: a part of its name, and its capability. None is any card."""


def parse_listing(listing: str) -> list[Card]:
    """Cards from the output of `nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader`."""
    rows = [line.rpartition(",") for line in listing.splitlines() if "," in line]
    return [Card(name.strip(), capability.strip()) for name, _, capability in rows]


def refusal(session: str, cards: list[Card]) -> str:
    """Why the session cannot run with these cards; empty when it can. All cards have to fit."""
    wanted = WANTED[session]
    if not cards:
        return f"{session} needs a CUDA device and nvidia-smi lists none; run it on a machine that has one"
    if wanted is None:
        return ""
    for card in cards:
        if wanted.name not in card.name or wanted.capability != card.capability:
            return (
                f"{session} needs {wanted.name} (compute capability {wanted.capability}), this machine has "
                f"{card.name} ({card.capability}); run `nox -s gpu` for whatever card is present"
            )
    return ""


def installed_cards() -> list[Card]:
    """The cards of this machine; none without nvidia-smi or when it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_listing(done.stdout) if done.returncode == 0 else []


def main(argv: list[str] | None = None) -> int:
    """Print the cards, or the refusal, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("session", choices=sorted(WANTED))
    session = parser.parse_args(argv).session
    cards = installed_cards()
    reason = refusal(session, cards)
    print(reason or "; ".join(f"{card.name} ({card.capability})" for card in cards))
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
