"""An engine without CUDA, and small runs of the measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sm70_tools.bench.cases import Shape
from sm70_tools.bench.linear import Request
from sm70_tools.bench.peers import Peer
from sm70_tools.bench.rows import Provenance

if TYPE_CHECKING:
    from sm70_tools.bench.contenders import Contender
    from sm70_tools.bench.weights import Nvfp4Weight

PROVENANCE = Provenance("2026-11-30T02:31:35+00:00", "b0d2dcc", "NVIDIA H200", "580.1", "13.0", "2.11.0")
SMALL = Shape(48, 256)
ODD = Shape(33, 128)


@dataclass
class FakeReplay:
    """Takes the same times again and again, and notes each turn."""

    name: str
    times: Sequence[float]
    turns: list[str]
    count: int = 0

    def replay_us(self) -> float:
        self.turns.append(self.name)
        self.count += 1
        return self.times[(self.count - 1) % len(self.times)]


@dataclass
class FakeEngine:
    """Runs the calls on the CPU when they are captured; the n-th capture takes n microseconds a call."""

    device: str = "cpu"
    captured: list[int] = field(default_factory=list)
    released: int = 0

    def capture(self, calls: Sequence[Callable[[], object]]) -> FakeReplay:
        for call in calls:
            call()
        self.captured.append(len(calls))
        return FakeReplay("", [float(len(self.captured))], [])

    def release(self) -> None:
        self.released += 1


def request(
    *,
    shapes: Iterable[Shape] = (SMALL,),
    rows: Iterable[int] = (1,),
    peers: Iterable[Peer] = (),
    time_limit: float | None = None,
) -> Request:
    return Request(tuple(shapes), tuple(rows), tuple(peers), False, 5, 7, time_limit)


def absent_peer(name: str = "humming") -> Peer:
    return Peer(name, "sm70_no_such_module.layer", "no-such-package", _never_loaded)


def _never_loaded(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
    raise AssertionError
