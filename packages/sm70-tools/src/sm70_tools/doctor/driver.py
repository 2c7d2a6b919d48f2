"""The NVIDIA driver and the cards that it sees, as `nvidia-smi` tells."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict, dataclass

from sm70_policy.capability import SM7X, Sm
from sm70_policy.errors import ProblemError
from sm70_tools.doctor.finding import Finding, Section, Severity

_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,compute_cap,memory.total,memory.free,driver_version",
    "--format=csv,noheader,nounits",
)
_TIMEOUT_S = 30
_FIELDS_AFTER_NAME = 4
_FIRST_SERVED = Sm(7, 0)


@dataclass(frozen=True)
class DriverCard:
    """A card.

    Attributes:
        name: Product name.
        capability: Compute capability, such as `7.0`.
        total_mib: Memory in MiB; 0 where the driver does not say.
        free_mib: Free memory in MiB; 0 where the driver does not say.
        driver: Version of the driver.
    """

    name: str
    capability: str
    total_mib: int
    free_mib: int
    driver: str

    @property
    def sm(self) -> Sm:
        """The compute capability."""
        return Sm.parse(self.capability)


@dataclass(frozen=True)
class Answer:
    """Output of `nvidia-smi`, or the reason why there is none."""

    text: str = ""
    failure: str = ""


def ask() -> Answer:
    """Start `nvidia-smi`."""
    if shutil.which(_QUERY[0]) is None:
        return Answer(failure="nvidia-smi is not on the path")
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(failure=f"nvidia-smi did not answer: {error}")
    if done.returncode:
        said = (done.stdout.strip() or done.stderr.strip()).replace("\n", " ")
        return Answer(failure=f"nvidia-smi failed with status {done.returncode}: {said}")
    return Answer(text=done.stdout)


def parse(text: str) -> tuple[DriverCard, ...]:
    """Read the lines of the query.

    Raises:
        ProblemError: A line has another form.
    """
    cards = []
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = [part.strip() for part in line.rsplit(",", _FIELDS_AFTER_NAME)]
        if len(fields) <= _FIELDS_AFTER_NAME:
            raise ProblemError(
                f"nvidia-smi answered {line!r}, which is not name, capability, two sizes and driver"
            )
        name, capability, total, free, driver = fields
        Sm.parse(capability)
        cards.append(DriverCard(name, capability, _mib(total), _mib(free), driver))
    return tuple(cards)


def probe(answer: Answer) -> tuple[Section, tuple[DriverCard, ...]]:
    """Judge what `nvidia-smi` said. Returns the cards as well, for the probes that follow."""
    if answer.failure:
        finding = Finding(
            Severity.WARNING,
            f"no NVIDIA driver found: {answer.failure}",
            "install the driver to use a card; without one vLLM runs on the CPU alone",
        )
        return Section("driver", (finding,), {"cards": []}), ()
    try:
        cards = parse(answer.text)
    except ProblemError as error:
        finding = Finding(Severity.WARNING, str(error), "look at the output of nvidia-smi")
        return Section("driver", (finding,), {"cards": []}), ()
    findings = [_card_finding(index, card) for index, card in enumerate(cards)]
    if not cards:
        findings.append(
            Finding(Severity.WARNING, "the driver sees no card", "check the card and its power supply")
        )
    findings += _hazards(cards)
    return Section("driver", tuple(findings), {"cards": [asdict(card) for card in cards]}), cards


def _card_finding(index: int, card: DriverCard) -> Finding:
    text = (
        f"card {index}: {card.name}, compute capability {card.capability}, {card.total_mib} MiB "
        f"({card.free_mib} MiB free), driver {card.driver}"
    )
    if card.sm in SM7X:
        return Finding(Severity.OK, text)
    if card.sm < _FIRST_SERVED:
        return Finding(
            Severity.WARNING, text, "the suite serves compute capability 7.0 and above: use another card"
        )
    return Finding(
        Severity.INFO,
        text,
        "stock vLLM keeps its own kernels here; sm70_nvfp4.enabled = true asks for the suite's",
    )


def _hazards(cards: tuple[DriverCard, ...]) -> list[Finding]:
    several = [card for card in cards if card.sm in SM7X]
    if len(several) < 2:
        return []
    return [
        Finding(
            Severity.INFO,
            f"{len(several)} cards of compute capability 7.x: on boards without NVLink, peer-to-peer traffic "
            "and vLLM's own all-reduce are known to hang at start",
            "if tensor parallelism hangs, start vLLM with NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce",
        )
    ]


def _mib(text: str) -> int:
    return int(text) if text.isdecimal() else 0
