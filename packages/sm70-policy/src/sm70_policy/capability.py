"""Devices and cards as data: what a kernel declares support for, and what a route is chosen for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from sm70_policy.errors import ProblemError, describe

_SM_PATTERN = re.compile(r"(?:sm_?)?(\d{1,2})[.]?(\d)$")

GIB = 1 << 30


@dataclass(frozen=True, order=True)
class Sm:
    """A CUDA compute capability, such as 7.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Sm:
        """Read `7.0`, `70`, `sm70` or `sm_70`.

        Raises:
            ProblemError: The text is none of these.
        """
        match = _SM_PATTERN.match(text.strip().lower())
        if match is None:
            raise ProblemError(
                describe(
                    asked=f"{text!r} as a compute capability",
                    allowed="forms such as 7.0, 70, sm70, sm_70",
                    fix="Pass one of these forms",
                )
            )
        return cls(int(match[1]), int(match[2]))

    @property
    def number(self) -> int:
        """The capability as vLLM and compilers write it: 70 for 7.0."""
        return self.major * 10 + self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


VOLTA: frozenset[Sm] = frozenset({Sm(7, 0), Sm(7, 2)})
TURING: frozenset[Sm] = frozenset({Sm(7, 5)})
SM7X: frozenset[Sm] = VOLTA | TURING


class DeviceKind(StrEnum):
    """Where a layer runs."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True)
class Device:
    """The device that a route is chosen for.

    Attributes:
        kind: CUDA or CPU.
        sm: Compute capability; None on the CPU.
        name: Name to show to people.
        memory_bytes: Total memory; 0 where it is unknown.
    """

    kind: DeviceKind
    sm: Sm | None
    name: str
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.kind is DeviceKind.CUDA) != (self.sm is not None):
            raise ProblemError(
                describe(
                    asked=f"a {self.kind} device with compute capability {self.sm}",
                    allowed="a capability for CUDA devices, None for the CPU",
                    fix="Construct the device with Device.cuda() or Device.cpu()",
                )
            )

    @classmethod
    def cpu(cls) -> Device:
        """The host's CPU."""
        return cls(DeviceKind.CPU, None, "CPU")

    @classmethod
    def cuda(cls, sm: Sm, name: str = "", memory_bytes: int = 0) -> Device:
        """A CUDA card of capability `sm`."""
        return cls(DeviceKind.CUDA, sm, name or f"CUDA {sm}", memory_bytes)

    @property
    def is_sm7x(self) -> bool:
        """Whether this is a Volta or Turing card, for which the suite chooses by default."""
        return self.sm in SM7X

    def __str__(self) -> str:
        return self.name if self.sm is None else f"{self.name} (compute capability {self.sm})"


@dataclass(frozen=True)
class Card:
    """A product, with the figures its maker publishes.

    Attributes:
        key: Short name for command lines.
        name: Product name.
        sm: Compute capability.
        memory_gib: Memory size in GiB.
        bandwidth_gb_s: Published peak memory bandwidth in GB/s (10^9 bytes).
    """

    key: str
    name: str
    sm: Sm
    memory_gib: int
    bandwidth_gb_s: float

    @property
    def device(self) -> Device:
        """The card as a device to choose routes for."""
        return Device.cuda(self.sm, self.name, self.memory_gib * GIB)


# Memory sizes and bandwidths: the makers' data sheets.
CARDS: tuple[Card, ...] = (
    Card("v100", "Tesla V100-SXM2-16GB", Sm(7, 0), 16, 900.0),
    Card("v100-32gb", "Tesla V100-SXM2-32GB", Sm(7, 0), 32, 900.0),
    Card("t4", "Tesla T4", Sm(7, 5), 16, 320.0),
    Card("rtx2080ti", "GeForce RTX 2080 Ti", Sm(7, 5), 11, 616.0),
    Card("rtx8000", "Quadro RTX 8000", Sm(7, 5), 48, 672.0),
    Card("a100", "A100-SXM4-80GB", Sm(8, 0), 80, 2039.0),
    Card("h100", "H100-SXM5-80GB", Sm(9, 0), 80, 3350.0),
    Card("h200", "H200-SXM5-141GB", Sm(9, 0), 141, 4800.0),
    Card("b200", "B200", Sm(10, 0), 180, 8000.0),
)


def find_card(key: str) -> Card:
    """Return the card called `key`.

    Raises:
        ProblemError: No card has this name; the message lists the known ones.
    """
    wanted = key.strip().lower()
    for card in CARDS:
        if card.key == wanted:
            return card
    raise ProblemError(
        describe(
            asked=f"the card {key!r}",
            allowed=", ".join(card.key for card in CARDS),
            fix="Pass one of these names",
        )
    )
