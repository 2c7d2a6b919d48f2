"""What is made of predictions: the tuning table, and the project's targets beside them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sm70_kernels_cuda.launch import atom_of
from sm70_kernels_cuda.launch_general import choose_general
from sm70_kernels_cuda.tuning.table import Source, TuningRow, load
from sm70_tools.roofline import tune
from sm70_tools.roofline.cards import L2_SHARED_BYTES, find_figures
from sm70_tools.roofline.compare import MeasuredRow, read_rows
from sm70_tools.roofline.kernel import chosen_kernel, general_kernel, strip_kernel
from sm70_tools.roofline.model import predict
from sm70_tools.roofline.predictions import SHAPES
from sm70_tools.roofline.targets import TARGETS, judge
from sm70_tools.roofline.tune import LEAST_GAIN, RANGES, Stamp, build_table, measured_rows, predicted_rows

if TYPE_CHECKING:
    from sm70_tools.roofline.cards import Figures

REPOSITORY = Path(__file__).resolve().parents[3]
ROWS = read_rows(REPOSITORY / "benchmarks" / "results" / "h200" / "strip_kernels.csv")
V100 = find_figures("v100")
H200 = find_figures("h200")


def test_the_installed_table_is_up_to_date() -> None:
    installed, made = load(), build_table(ROWS, Stamp("2026-11-30", "-"))
    message = "stale: python -m sm70_tools.roofline tune benchmarks/results/h200 --date DAY --commit HASH"
    assert installed.rows == made.rows, message
    assert set(installed.sources) == set(made.sources), message


def test_sources_say_who_when_and_for_which_kernels() -> None:
    table = build_table(ROWS, Stamp("2026-12-01", "abc1234"))
    source = table.sources["predicted-v100"]
    assert source == Source("predicted", "Tesla V100-SXM2-16GB", tune.ORIGIN, "2026-12-01", "abc1234")


@pytest.mark.parametrize("key", tune.CARDS)
@pytest.mark.parametrize("l2_bytes", [64.0, L2_SHARED_BYTES])
def test_every_predicted_row_gains_at_both_ends_for_either_bandwidth_of_l2(key: str, l2_bytes: float) -> None:
    figures = find_figures(key)
    card = replace(figures, family=replace(figures.family, l2_bytes=l2_bytes))
    rows: list[TuningRow] = predicted_rows(figures)
    assert rows
    for row in rows:
        of_name = strip_kernel if row.family == "strip" else general_kernel
        kernel = of_name(figures.family.architecture, row.kernel)
        for m in (row.m_min, row.m_max):
            name = tune._untuned(figures, m, row.n, row.k)
            usual = (general_kernel if name.startswith("general") else strip_kernel)(
                figures.family.architecture, name
            )
            gained = predict(kernel, card, m, row.n, row.k).us
            assert gained <= (1 - LEAST_GAIN) * predict(usual, card, m, row.n, row.k).us


def test_ranges_are_without_gaps() -> None:
    assert RANGES[0][0] == 1
    assert all(left[1] + 1 == right[0] for left, right in pairwise(RANGES))


def test_ranges_of_one_choice_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    better = {(1, 1): "a", (2, 4): "a", (5, 8): "b", (17, 24): "b"}
    monkeypatch.setattr(tune, "SHAPES", ((64, 64),))
    monkeypatch.setattr(tune, "_better_kernel", lambda figures, n, k, ends: better.get(ends))
    rows = predicted_rows(V100)
    assert [(row.m_min, row.m_max, row.kernel) for row in rows] == [(1, 4, "a"), (5, 8, "b"), (17, 24, "b")]


@pytest.mark.parametrize(("us", "found"), [(9.4, True), (9.6, False)])
def test_a_measured_row_needs_the_same_gain(us: float, found: bool) -> None:
    usual, other = "qpn2_nvfp4_t2_w8", "qpn2_nvfp4_t2_w16"
    # So long rows of x that no cluster kernel has room for 16 of them.
    measured = [MeasuredRow(usual, 1536, 28672, 16, 10.0), MeasuredRow(other, 1536, 28672, 16, us)]
    rows: list[TuningRow] = measured_rows(H200, measured)
    assert [(row.kernel, row.m_min, row.m_max, row.source) for row in rows] == (
        [(other, 16, 16, "measured-h200")] if found else []
    )


def test_where_a_warpgroup_kernel_runs_no_row_is_made() -> None:
    usual, other = "qpn2_nvfp4_t4_w8", "qpn2_nvfp4_t2_w16"
    measured = [MeasuredRow(usual, 1536, 1536, 32, 10.0), MeasuredRow(other, 1536, 1536, 32, 5.0)]
    assert measured_rows(H200, measured) == []


def test_where_a_cluster_kernel_runs_no_row_is_made() -> None:
    usual, other = "qpn2_nvfp4_t1_w8", "qpn2_nvfp4_t1_w4"
    measured = [MeasuredRow(usual, 8704, 5120, 1, 10.0), MeasuredRow(other, 8704, 5120, 1, 5.0)]
    assert measured_rows(H200, measured) == []


def test_every_target_is_judged_by_the_prediction() -> None:
    judged = judge(V100)
    assert {(item.row.n, item.row.k) for item in judged} == set(TARGETS)
    assert len(judged) == sum(len(shares) for shares in TARGETS.values())
    for item in judged:
        prediction = item.row.prediction
        assert item.share == pytest.approx(prediction.gb_s / 879)
        assert item.is_met == (item.share >= item.target)
        assert (item.even_share is None) == (item.row.m <= 8)
        (_, first), (_, second) = item.largest_parts
        assert first >= second
        assert first == max(prediction.parts_us.values())


def test_an_even_spread_never_costs_much() -> None:
    """It is the same kernel without idle multiprocessors, by one of three variants."""
    for item in judge(V100):
        assert item.even_share is None or item.even_share > 0.95 * item.share


MORE_SHAPES = (
    *((2048, 2048), (6144, 4096), (28672, 4096), (4096, 14336), (4096, 11008)),
    *((1024, 4096), (12288, 4096), (18944, 3584), (3584, 18944), (62080, 2048)),
)


@pytest.mark.parametrize("key", tune.CARDS)
def test_the_arithmetic_comes_close_to_the_best_variant(key: str) -> None:
    """What launch_general.py says of its times: under 1 % more time on average by the model."""
    figures = find_figures(key)
    ratios = []
    atom = atom_of(int(figures.family.architecture))
    for m in (9, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64):
        for n, k in (*SHAPES, *MORE_SHAPES):
            kernel = choose_general(m, n, k, atom, tune._card(figures)).kernel
            ratios.append(tune._us(figures, kernel, m, n, k) / _best_time(figures, m, n, k, "general"))
    assert sum(ratios) / len(ratios) < 1.01


@pytest.mark.parametrize(
    ("key", "first", "most"), [("v100", 9, 1.015), ("rtx8000", 17, 1.08), ("t4", 17, 1.0)]
)
def test_where_the_general_kernels_begin_no_strip_kernel_is_clearly_faster(
    key: str, first: int, most: float
) -> None:
    """What launch.py says of its strip_rows, with the rows of the tuning table."""
    figures = find_figures(key)
    for m in (m for m in (9, 16, 17, 24, 25, 32) if m >= first):
        assert tune._untuned(figures, m, 4096, 4096).startswith("general")
        for n, k in SHAPES:
            assert _time_of_the_chosen(figures, m, n, k) < most * _best_time(figures, m, n, k, "qpn2")


@pytest.mark.parametrize("key", ["rtx8000", "t4"])
def test_up_to_16_rows_on_7_5_no_general_kernel_is_clearly_faster(key: str) -> None:
    figures = find_figures(key)
    for m in (9, 16):
        assert tune._untuned(figures, m, 4096, 4096).startswith("qpn2")
        for n, k in SHAPES:
            assert _time_of_the_chosen(figures, m, n, k) < 1.12 * _best_time(figures, m, n, k, "general")


def _time_of_the_chosen(figures: Figures, m: int, n: int, k: int) -> float:
    kernel = chosen_kernel(figures, m, n, k)
    assert kernel is not None
    return predict(kernel, figures, m, n, k).us


def _best_time(figures: Figures, m: int, n: int, k: int, family: str) -> float:
    names = [name for name in tune._candidates(figures, m) if name.startswith(family)]
    return min(tune._us(figures, name, m, n, k) for name in names)
