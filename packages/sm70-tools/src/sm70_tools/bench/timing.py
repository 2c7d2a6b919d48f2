"""Replays of CUDA graphs in turn, and what is kept of their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

WARM_UP = 3
"""Rounds that are replayed before the first one that counts."""

LEAST_CALLS = 48
"""A graph holds at least this many calls. Starting it costs 13 us on an H200 (graphs of 5 and of 22 empty
kernels took 4.0 and 1.3 us a call), of which each of a few calls would carry a large part."""


@dataclass(frozen=True)
class Timing:
    """Microseconds a call over all rounds.

    Attributes:
        median: The median.
        p20: 20th percentile.
        p80: 80th percentile.
    """

    median: float
    p20: float
    p80: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """Summarize at least one sample, in any order."""
        ordered = sorted(samples)
        return cls(*(quantile(ordered, fraction) for fraction in (0.5, 0.2, 0.8)))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Value below which a fraction of the ascending samples lies, linear between two neighbours."""
    position = fraction * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


class Replay(Protocol):
    """Calls that were captured and can be timed again and again."""

    def replay_us(self) -> float:
        """Run all calls once; microseconds a call."""
        ...


class Engine(Protocol):
    """What runs the calls. The tests put one without CUDA in its place."""

    device: str
    """Device of the tensors."""

    def capture(self, calls: Sequence[Callable[[], object]]) -> Replay:
        """Run each call once, then record all of them."""
        ...

    def release(self) -> None:
        """Give unused memory back, so that one shape's does not weigh on the next."""
        ...


def interleave(replays: Mapping[str, Replay], rounds: int) -> dict[str, Timing]:
    """Replay all in turn, so that a change of clocks meets all of them.

    Args:
        replays: What to time, by name.
        rounds: Rounds that count; `WARM_UP` more run first. Each begins with another one of the replays.
    """
    names = list(replays)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(WARM_UP + rounds):
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            elapsed = replays[name].replay_us()
            if turn >= WARM_UP:
                samples[name].append(elapsed)
    return {name: Timing.of(values) for name, values in samples.items()}


class GraphReplay:
    """A captured CUDA graph."""

    def __init__(self, graph: Any, calls: int) -> None:  # noqa: ANN401 - torch is imported where it is used
        """Keep a `torch.cuda.CUDAGraph` of so many calls."""
        self._graph = graph
        self._calls = calls

    def replay_us(self) -> float:
        """Replay between two events; microseconds a call."""
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self._graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self._calls


class CudaEngine:
    """Runs on the current CUDA device."""

    device = "cuda"

    def capture(self, calls: Sequence[Callable[[], object]]) -> GraphReplay:
        """Run each call once on a side stream, then capture all of them in one graph."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        turns = -(-LEAST_CALLS // len(calls))
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(turns):
                for call in calls:
                    call()
        return GraphReplay(graph, turns * len(calls))

    def release(self) -> None:
        """Empty torch's cache of device memory."""
        import torch

        torch.cuda.empty_cache()
