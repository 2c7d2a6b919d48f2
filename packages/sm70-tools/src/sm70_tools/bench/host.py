"""Wall time of one operator call on the host, against a plain torch operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sm70_tools.bench.timing import Engine

CHUNK_CALLS = 100
"""Calls that are timed together: far fewer than a stream queues before a call has to wait."""

SIZE = 256
"""N and K of the weight: so small that the device keeps up with the host."""

_WARM_UP_CHUNKS = 5


@dataclass(frozen=True)
class HostTimes:
    """Median wall time of a call, in microseconds.

    Attributes:
        ours: `sm70::nvfp4_linear` with one row.
        plain: `torch.mul(out=)`.
    """

    ours: float
    plain: float

    def __str__(self) -> str:
        ratio = self.ours / self.plain
        return (
            f"sm70::nvfp4_linear {self.ours:.2f} us a call, "
            f"torch.mul(out=) {self.plain:.2f} us a call, ratio {ratio:.2f}"
        )


def interleaved_medians(
    calls: Mapping[str, Callable[[], object]],
    count: int,
    clock: Callable[[], float],
    synchronize: Callable[[], None],
) -> dict[str, float]:
    """Call each function `count` times, in chunks that take turns.

    Args:
        calls: Functions by name.
        count: Calls of each; rounded up to whole chunks.
        clock: Seconds.
        synchronize: Waits for the device; runs before each chunk, outside of its time.

    Returns:
        Median over the chunks of microseconds a call.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for chunk in range(_WARM_UP_CHUNKS - (-count // CHUNK_CALLS)):
        for name, call in calls.items():
            synchronize()
            began = clock()
            for _ in range(CHUNK_CALLS):
                call()
            elapsed = clock() - began
            if chunk >= _WARM_UP_CHUNKS:
                samples[name].append(elapsed * 1e6 / CHUNK_CALLS)
    synchronize()
    return {name: median(values) for name, values in samples.items()}


def measure_host(
    engine: Engine, count: int, clock: Callable[[], float], synchronize: Callable[[], None]
) -> HostTimes:
    """Measure both calls in one run.

    Args:
        engine: Names the device.
        count: Calls of each.
        clock: Seconds.
        synchronize: Waits for the device.
    """
    import torch

    from sm70_kernels_cuda import ops  # noqa: F401 - registers the operator
    from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block

    device = engine.device
    codes = torch.randint(0, 256, (SIZE, SIZE // 2), dtype=torch.uint8, device=device)
    scales = torch.ones((SIZE, SIZE // 16), device=device).to(torch.float8_e4m3fn)
    weight = Nvfp4Block(SIZE, SIZE).pack(codes, scales)
    factor = torch.full((SIZE,), 0.01, device=device)
    x = torch.randn((1, SIZE), dtype=torch.float16, device=device)
    out = torch.empty_like(x)
    operator = torch.ops.sm70.nvfp4_linear
    calls = {
        "ours": lambda: operator(x, weight, factor, None, SIZE),
        "plain": lambda: torch.mul(x, x, out=out),
    }
    return HostTimes(**interleaved_medians(calls, count, clock, synchronize))
