"""The measurement itself, on the CPU: what is checked, reported and left out. Only the times are made up."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from sm70_tools.bench import cases, contenders, linear
from sm70_tools.bench.cases import Shape
from sm70_tools.bench.contenders import Contender, load_ours
from sm70_tools.bench.errors import WrongResultError
from sm70_tools.bench.gated import GATED, TWO_STEPS, load_gated
from sm70_tools.bench.linear import LinearRun, Outcome, Request
from sm70_tools.bench.peers import PEERS, Peer
from sm70_tools.bench.weights import Nvfp4Weight, relative_error
from tools_bench import ODD, PROVENANCE, SMALL, FakeEngine, absent_peer, request

TORCH = PEERS["torch"]


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CACHE_BYTES", 100_000)


def _run(
    asked: Request, engine: FakeEngine | None = None, clock: Callable[[], float] = lambda: 0.0
) -> Outcome:
    return LinearRun(asked, engine or FakeEngine(), clock, lambda _: None).run()


def _weight(shape: Shape, seed: int = 1) -> Nvfp4Weight:
    return Nvfp4Weight.random(shape, torch.Generator("cpu").manual_seed(seed))


def _keys(outcome: Outcome) -> list[tuple[str, int, str]]:
    return [(str(item.shape), item.m, item.variant) for item in outcome.measurements]


def test_the_oracle_decodes_by_the_specification_of_the_formats() -> None:
    weight = _weight(ODD)
    nibbles = np.empty((33, 128), dtype=np.int64)
    nibbles[:, 0::2], nibbles[:, 1::2] = weight.codes.numpy() & 15, weight.codes.numpy() >> 4
    exponent, mantissa = (nibbles >> 1) & 3, nibbles & 1
    magnitude = np.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2.0 ** (exponent - 1))
    scale_bytes = weight.scales.view(torch.uint8).numpy().astype(np.int64)
    scales = (1 + (scale_bytes & 7) / 8) * 2.0 ** ((scale_bytes >> 3) - 7.0)  # none is subnormal or negative
    expected = np.where(nibbles & 8, -magnitude, magnitude) * np.repeat(scales, 16, axis=1) * weight.factor
    assert (weight.decode_rows(slice(0, 33)).numpy() == expected).all()
    assert (weight.decode_rows(slice(5, 9)).numpy() == expected[5:9]).all()
    assert set(np.unique(nibbles)) == set(range(16))


def test_the_relative_error_counts_every_slab_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sm70_tools.bench.weights._SLAB_ROWS", 10)
    w = torch.randn(33, 16, dtype=torch.float64)
    x = torch.randn(4, 16, dtype=torch.float64)
    y = x @ w.t()
    assert relative_error(x, y, lambda rows: w[rows]) < 1e-15
    y[3, 32] += y.norm() / 100
    assert relative_error(x, y, lambda rows: w[rows]) == pytest.approx(0.01, rel=1e-3)
    y[0, 0] = torch.nan
    assert not relative_error(x, y, lambda rows: w[rows]) < 1e9


@pytest.mark.parametrize("m", [1, 5, 70])
@pytest.mark.parametrize("shape", [SMALL, ODD], ids=str)
def test_the_suites_operator_passes_its_check(shape: Shape, m: int) -> None:
    (ours,) = load_ours([_weight(shape)], shape, every_variant=False)
    x = torch.randn(m, shape.k, dtype=torch.float16)
    assert 0 < ours.check(x, shape.n) < 3e-4


def test_the_gated_operator_and_its_two_steps_pass_the_check() -> None:
    shape = Shape(128, 256)
    (ours,), two_steps = load_gated([_weight(shape)], shape), TWO_STEPS.load([_weight(shape)], shape)
    x = torch.randn(5, shape.k, dtype=torch.float16)
    assert 0 < ours.check(x, shape.n) < 3e-4
    assert ours.check(x, shape.n) < two_steps.check(x, shape.n)
    exchanged = replace(ours, calls=(lambda x: ours.calls[0](x).flip(-1),))
    with pytest.raises(WrongResultError, match="ours at 128x256, M=5"):
        exchanged.check(x, shape.n)


def test_a_gated_run_says_so_in_its_rows() -> None:
    asked = replace(request(shapes=(Shape(64, 256),), rows=(1, 3), peers=(TWO_STEPS,)), op=GATED)
    outcome = _run(asked, FakeEngine())
    assert not outcome.failures
    assert [(item.op, item.m, item.variant) for item in outcome.measurements] == [
        (GATED, m, variant) for m in (1, 3) for variant in ("ours", "two_steps")
    ]
    assert {item.row(PROVENANCE, 4000.0)["op"] for item in outcome.measurements} == {"gated_linear"}


@pytest.mark.parametrize("writes_into", [False, True])
def test_a_wrong_result_is_refused(writes_into: bool) -> None:
    (ours,) = load_ours([_weight(SMALL)], SMALL, every_variant=False)

    def into(x: torch.Tensor, y: torch.Tensor) -> None:
        y[:, 1:] = ours.calls[0](x)[:, 1:]  # leaves a column unwritten

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return ours.calls[0](x) * 1.001

    wrong = replace(ours, into=into) if writes_into else replace(ours, calls=(doubled,))
    x = torch.randn(2, SMALL.k, dtype=torch.float16)
    with pytest.raises(
        WrongResultError, match=r"ours at 48x256, M=2: relative error .*Allowed: less than 4e-04"
    ):
        wrong.check(x, SMALL.n)


def test_every_number_is_checked_and_every_weight_is_called() -> None:
    engine = FakeEngine()
    outcome = _run(request(shapes=(SMALL, ODD), rows=(1, 40), peers=(TORCH,)), engine)
    assert _keys(outcome) == [
        (shape, m, variant)
        for shape in ("48x256", "33x128")
        for m in (1, 40)
        for variant in ("ours", "torch")
    ]
    assert all(0 < item.error < 1e-3 for item in outcome.measurements)
    assert not outcome.failures
    # 100 kB hold 14 weights of 6912 bytes and 4 of 24576; 42 of 2376 and 11 of 8448
    assert engine.captured == [15, 5, 15, 5, 43, 12, 43, 12]
    assert engine.released == 2
    assert [item.timing.median for item in outcome.measurements[:2]] == [1.0, 2.0]


def test_an_absent_peer_is_named_once_and_the_rest_goes_on() -> None:
    outcome = _run(request(shapes=(SMALL, ODD), peers=(absent_peer(), TORCH)))
    assert [(item.variant, item.shape, item.reason) for item in outcome.failures] == [
        ("humming", None, "no-such-package is not installed")
    ]
    assert len(outcome.measurements) == 4


def test_a_peer_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        message = f"{name}: undefined symbol\nmore"
        raise OSError(message)

    monkeypatch.setattr(importlib, "import_module", broken)
    assert TORCH.absence() == "torch cannot be imported: OSError: torch: undefined symbol"


def _peer(load: Callable[[Sequence[Nvfp4Weight], Shape], Contender]) -> Peer:
    return Peer("humming", "torch", "humming-kernels", load)


def test_a_peer_that_cannot_load_a_shape_is_reported_and_the_rest_goes_on() -> None:
    def load(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
        if shape == SMALL:
            message = "no kernel for N=48"
            raise NotImplementedError(message)
        return replace(TORCH.load(weights, shape), name="humming")

    outcome = _run(request(shapes=(SMALL, ODD), peers=(_peer(load), TORCH)))
    assert [(item.shape, item.m, item.reason, item.of_peer) for item in outcome.failures] == [
        (SMALL, None, "NotImplementedError: no kernel for N=48", True)
    ]
    assert [variant for _, _, variant in _keys(outcome)] == ["ours", "torch", "ours", "humming", "torch"]


def test_a_peer_with_a_wrong_result_gets_no_number() -> None:
    def load(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
        right = TORCH.load(weights, shape)
        return replace(right, name="humming", calls=(right.calls[1], *right.calls[1:]))

    outcome = _run(request(peers=(_peer(load),)))
    assert [variant for _, _, variant in _keys(outcome)] == ["ours"]
    assert outcome.failures[0].reason.startswith(
        "WrongResultError: humming at 48x256, M=1: relative error 1."
    )


def test_a_wrong_result_of_the_suite_gets_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(weights: Sequence[Nvfp4Weight], shape: Shape, *, every_variant: bool) -> list[Contender]:
        (right,) = load_ours(weights, shape, every_variant=every_variant)
        return [replace(right, calls=(lambda x: right.calls[0](x) * 2, *right.calls[1:]))]

    monkeypatch.setattr(linear, "load_ours", load)
    outcome = _run(request(peers=(TORCH,), rows=(1, 2)))
    assert [variant for _, _, variant in _keys(outcome)] == ["torch", "torch"]
    assert [(item.variant, item.m, item.of_peer) for item in outcome.failures] == [
        ("ours", 1, False),
        ("ours", 2, False),
    ]


def test_a_bug_of_the_suite_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(weights: Sequence[Nvfp4Weight], shape: Shape, *, every_variant: bool) -> list[Contender]:
        (right,) = load_ours(weights, shape, every_variant=every_variant)
        return [replace(right, calls=(lambda x: right.calls[0](x, 1),))]  # type: ignore[call-arg]

    monkeypatch.setattr(linear, "load_ours", load)
    with pytest.raises(TypeError):
        _run(request())


def test_the_time_limit_begins_no_new_shape() -> None:
    shapes = (SMALL, ODD, Shape(16, 128))
    ticks = iter([0.0, 9.9, 10.0])
    outcome = _run(request(shapes=shapes, rows=(1, 2), time_limit=10.0), clock=lambda: next(ticks))
    assert _keys(outcome) == [("48x256", 1, "ours"), ("48x256", 2, "ours")]
    assert outcome.missing == (ODD, Shape(16, 128))


def test_without_a_limit_the_clock_does_not_matter() -> None:
    assert _run(request(shapes=(SMALL, ODD)), clock=lambda: 1e9).missing == ()


def test_the_report_grows_with_every_row_count() -> None:
    seen: list[int] = []
    asked = request(shapes=(SMALL, ODD), rows=(1, 2))
    LinearRun(asked, FakeEngine(), lambda: 0.0, lambda outcome: seen.append(len(outcome.measurements))).run()
    assert seen == [1, 2, 3, 4]


def test_a_seed_draws_the_same_weights_and_another_one_does_not() -> None:
    codes = [_weight(SMALL, seed).codes for seed in (1, 1, 2)]
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])


class _FakeVariant:
    kernel = "qpn2_nvfp4_t2_w8"
    token_tiles = 2


def test_a_compiled_kernel_takes_the_rows_of_its_tiles_and_writes_into_the_poisoned_output() -> None:
    weights = [_weight(SMALL, seed) for seed in (1, 2)]
    (ours,) = load_ours(weights, SMALL, every_variant=False)
    packed = [call.args[:2] for call in ours.calls]  # type: ignore[attr-defined]
    given: list[bool] = []

    def run(
        variant: object,
        x: torch.Tensor,
        blocks: torch.Tensor,
        factors: torch.Tensor,
        bias: None,
        y: torch.Tensor,
    ) -> None:
        given.append(bool(y.isnan().all()))
        y.copy_(torch.ops.sm70.nvfp4_linear(x, blocks, factors, bias, SMALL.k))

    chosen = contenders._in_rows(_FakeVariant(), contenders._strip_rows(_FakeVariant()))
    variant = contenders._variant("qpn2_nvfp4_t2_w8", run, chosen, packed, ours)
    assert [m for m in range(1, 40) if variant.takes(m)] == list(range(5, 17))
    x = torch.randn(9, SMALL.k, dtype=torch.float16)
    assert variant.check(x, SMALL.n) < 4e-4
    assert given == [True]
    assert all(
        torch.equal(mine(x), theirs(x)) for mine, theirs in zip(variant.calls, ours.calls, strict=True)
    )
