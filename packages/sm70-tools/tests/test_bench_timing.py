"""Statistics, the order of the replays, and wall times, with a fake clock."""

from __future__ import annotations

import random
from statistics import median

import numpy as np
import pytest

from sm70_tools.bench import host
from sm70_tools.bench.roof import Roofs, measure_roofs
from sm70_tools.bench.timing import WARM_UP, Timing, interleave, quantile
from tools_bench import FakeEngine, FakeReplay


@pytest.mark.parametrize("count", [1, 2, 5, 30, 31])
def test_percentiles_are_those_of_numpy(count: int) -> None:
    samples = [random.random() for _ in range(count)]
    timing = Timing.of(samples)
    expected = np.percentile(samples, [50, 20, 80])
    assert [timing.median, timing.p20, timing.p80] == pytest.approx(expected)


def test_a_quantile_between_two_samples() -> None:
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0


def test_replays_take_turns_and_begin_with_another_one_each_round() -> None:
    turns: list[str] = []
    interleave({name: FakeReplay(name, [1.0], turns) for name in "abc"}, 3)
    rounds = ["".join(turns[i : i + 3]) for i in range(0, len(turns), 3)]
    assert rounds == ["abc", "bca", "cab", "abc", "bca", "cab"]


def test_the_warm_up_does_not_count() -> None:
    slow_start = [100.0] * WARM_UP + [1.0, 2.0, 3.0]
    timings = interleave({"x": FakeReplay("x", slow_start, [])}, 3)
    assert list(timings) == ["x"]
    assert [timings["x"].median, timings["x"].p20, timings["x"].p80] == pytest.approx([2.0, 1.4, 2.6])


def test_nothing_to_replay() -> None:
    assert interleave({}, 5) == {}


def test_shares_of_the_roofs() -> None:
    roofs = Roofs(4000.0, 500.0)
    assert roofs.read_share(4_000_000, 2.0) == pytest.approx(0.5)  # 2000 GB/s
    assert roofs.matmul_share(500_000_000, 4.0) == pytest.approx(0.25)  # 125 TFLOP/s
    assert Roofs(4000.0).matmul_share(1, 1.0) is None


def test_roofs_from_times() -> None:
    engine = FakeEngine()
    roofs = measure_roofs(engine, matmul=True, read_bytes=8000, size=4)
    assert roofs.read_gbps == pytest.approx(8.0)  # 8000 bytes in 1 us
    assert roofs.matmul_tflops == pytest.approx(2 * 4**3 / 2 / 1e6)  # 2 us
    assert (engine.captured, engine.released) == ([1, 1], 1)
    assert measure_roofs(FakeEngine(), matmul=False, read_bytes=8000).matmul_tflops is None


class _FakeClock:
    """A clock that only calls move; waiting for the device costs much and must not count."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = {"quick": 0, "slow": 0}

    def quick(self) -> None:
        self.now += 2e-6
        self.calls["quick"] += 1

    def slow(self) -> None:
        # The chunks of the warm-up, and one of the four that count, take much longer.
        chunk = self.calls["slow"] // host.CHUNK_CALLS
        self.now += 900e-6 if chunk < 5 or chunk == 7 else 8e-6
        self.calls["slow"] += 1

    def synchronize(self) -> None:
        self.now += 1.0


def test_wall_times_are_medians_of_chunks_in_turn() -> None:
    clock = _FakeClock()
    found = host.interleaved_medians(
        {"ours": clock.slow, "plain": clock.quick}, 350, lambda: clock.now, clock.synchronize
    )
    assert found == {"ours": pytest.approx(8.0), "plain": pytest.approx(2.0)}
    assert clock.calls == {"quick": 900, "slow": 900}  # 4 chunks after 5 of warm-up


def test_the_ratio_is_ours_over_the_plain_operation() -> None:
    assert str(host.HostTimes(9.0, 3.0)).endswith(
        "9.00 us a call, torch.mul(out=) 3.00 us a call, ratio 3.00"
    )


def test_the_real_operator_on_the_cpu() -> None:
    ticks = iter(range(1_000_000))
    times = host.measure_host(FakeEngine(), 100, lambda: float(next(ticks)), lambda: None)
    assert median([times.ours, times.plain]) == pytest.approx(1e6 / host.CHUNK_CALLS)
