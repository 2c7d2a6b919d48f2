"""The tuning table: what it may hold, and that the choice asks it first."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from fake_driver import FakeDriver
from sm70_kernels_cuda import nvfp4, nvfp4_general
from sm70_kernels_cuda.choice import choose_linear
from sm70_kernels_cuda.kernel_set import KERNEL_SETS, KernelSet
from sm70_kernels_cuda.launch import (
    AMPERE_ATOM,
    TURING_ATOM,
    VOLTA_ATOM,
    Atom,
    Variant,
    atom_of,
    choose_variant,
)
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_general import GeneralVariant, choose_general
from sm70_kernels_cuda.tuning.table import (
    KINDS,
    NO_TUNING,
    TABLE,
    Source,
    TuningRow,
    TuningTable,
    load,
    parse,
    to_text,
)
from sm70_policy.errors import SettingsError

V100 = Card(80, 96 * 1024)
T4 = Card(40, 64 * 1024)
NO_ROWS = NO_TUNING
SOURCE = Source("measured", "a card", "benchmarks/results/card/linear.csv", "2026-11-30", "abc1234")
STRIP = TuningRow(70, 80, 4096, 4096, 1, 4, "strip", "qpn2_nvfp4_t1_w4", "here")
GENERAL = TuningRow(70, 80, 4096, 4096, 5, 12, "general", "general_nvfp4_t4_n1_k8", "here")
TWO_ROWS = TuningTable({"here": SOURCE}, (STRIP, GENERAL))


def document(**changes: Any) -> dict[str, Any]:
    """A valid table with other values in its first row, or elsewhere by the path's parts."""
    valid: dict[str, Any] = json.loads(to_text(TWO_ROWS))
    for path, value in changes.items():
        place: Any = valid
        *steps, last = path.split("__")
        for step in steps:
            place = place[int(step) if step.isdecimal() else step]
        place[int(last) if last.isdecimal() else last] = value
    return valid


def choose(m: int, tuning: TuningTable, *, qpn2: bool = True, card: Card = V100) -> Variant | GeneralVariant:
    return choose_linear(m, 4096, 4096, qpn2, sm_number=70, atom=VOLTA_ATOM, card=card, tuning=tuning)


def test_the_installed_table_is_valid() -> None:
    table = load()
    assert table == parse(TABLE.read_text(encoding="utf-8"), TABLE.name)
    assert {source.kind for source in table.sources.values()} <= set(KINDS)
    assert {row.source for row in table.rows} == set(table.sources)


def test_no_row_of_the_installed_table_repeats_what_the_arithmetic_says() -> None:
    for row in load().rows:
        atom = atom_of(row.capability)
        card = Card(row.multiprocessors, (96 if row.capability == 70 else 64) * 1024)
        chosen = [
            choose_linear(m, row.n, row.k, True, sm_number=row.capability, atom=atom, card=card, tuning=table)
            for table in (load(), NO_ROWS)
            for m in (row.m_min, row.m_max)
        ]
        assert chosen[:2] == [row.variant] * 2
        assert row.variant not in chosen[2:]


def test_reading_gives_what_was_written() -> None:
    for table in (NO_ROWS, TWO_ROWS):
        assert parse(to_text(table), "t") == table


@pytest.mark.parametrize(
    ("m", "kernel"), [(1, STRIP.kernel), (4, STRIP.kernel), (5, GENERAL.kernel), (12, GENERAL.kernel)]
)
def test_a_row_comes_before_the_arithmetic(m: int, kernel: str) -> None:
    assert choose(m, TWO_ROWS).kernel == kernel
    assert choose(m, NO_ROWS).kernel != kernel


def test_other_problems_are_left_to_the_arithmetic() -> None:
    for m in (13, 64):
        assert choose(m, TWO_ROWS) == choose(m, NO_ROWS)
    find = TWO_ROWS.find
    assert find(70, 80, 1, 4096, 4096) == Variant(1, 4)
    for capability, multiprocessors, n, k in (
        (75, 80, 4096, 4096),
        (70, 72, 4096, 4096),
        (70, 80, 4096, 5120),
        (70, 80, 5120, 4096),
    ):
        assert find(capability, multiprocessors, 1, n, k) is None


def test_a_row_that_cannot_run_is_left_out() -> None:
    assert choose(1, TWO_ROWS, qpn2=False) == choose_general(1, 4096, 4096, VOLTA_ATOM, V100)
    small = Card(80, 64 * 1024)  # the row's kernel needs 65 KiB
    assert choose(8, TWO_ROWS, card=small) == choose(8, NO_ROWS, card=small)


@pytest.mark.parametrize(
    ("sm_number", "atom", "card", "rows"), [(70, VOLTA_ATOM, V100, 8), (75, TURING_ATOM, T4, 16)]
)
@pytest.mark.parametrize(("n", "k"), [(64, 128), (4096, 4096), (17408, 5120)])
def test_the_strip_kernels_end_at_few_rows_on_7_x(
    sm_number: int, atom: Atom, card: Card, rows: int, n: int, k: int
) -> None:
    for m in range(1, 65):
        got = choose_linear(m, n, k, True, sm_number=sm_number, atom=atom, card=card, tuning=NO_ROWS)
        if m <= rows:
            assert got == choose_variant(m, k, atom)
        else:
            assert got == choose_general(m, n, k, atom, card)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS, ids=lambda item: item.layout.name)
@pytest.mark.parametrize(
    ("sm_number", "card"), [(70, V100), (75, T4), (90, Card(132, 227 * 1024))], ids=["v100", "t4", "h200"]
)
def test_each_layout_gets_kernels_of_its_own(sm_number: int, card: Card, kernel_set: KernelSet) -> None:
    atom = atom_of(sm_number)
    for m in (1, 8, 9, 16, 17, 32, 33, 64, 1000):
        for qpn2 in (False, True):
            got = choose_linear(
                *(m, 4096, 4096, qpn2),
                sm_number=sm_number,
                atom=atom,
                card=card,
                tuning=NO_ROWS,
                kernel_set=kernel_set,
            )
            assert got.kernel in kernel_set.kernels(atom)
            assert got.shared_bytes(atom) <= card.shared_bytes
            assert isinstance(got, Variant) == (qpn2 and m <= kernel_set.strip_rows(atom))


def test_where_general_kernels_are_few_the_strip_kernels_go_on() -> None:
    rows = {
        item.layout.name: [item.strip_rows(atom) for atom in (VOLTA_ATOM, TURING_ATOM, AMPERE_ATOM)]
        for item in KERNEL_SETS
    }
    assert rows == {"nvfp4_block": [8, 16, 32], "mxfp4_block": [16, 16, 32], "nvfp4_half_block": [8, 8, 8]}


def test_the_strip_kernels_end_at_32_rows_from_8_0_on() -> None:
    h200 = Card(132, 227 * 1024)
    for m in (1, 32, 33):
        got = choose_linear(m, 4096, 4096, True, sm_number=90, atom=AMPERE_ATOM, card=h200, tuning=NO_ROWS)
        assert isinstance(got, Variant if m <= 32 else GeneralVariant)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "sm70-tuning/0"}, "sm70-tuning/1"),
        ({"notes": "x"}, "keys .*notes"),
        ({"rows": {}}, "a list of rows"),
        ({"sources": []}, "an object of sources"),
        ({"sources__here__kind": "guessed"}, "source here: kind 'guessed'.*measured or predicted"),
        ({"sources__here__date": "30.11.2026"}, "2026-11-30"),
        ({"sources__here__commit": ""}, "commit = ''"),
        ({"sources__here__host": "x"}, "keys .*host"),
        ({"rows__0": 1}, "row 0: keys int"),
        ({"rows__0__n": "4096"}, "row 0: n = '4096'.*int"),
        ({"rows__0__n": True}, "n = True"),
        ({"rows__0__k": 0}, "positive numbers"),
        ({"rows__0__m_min": 5}, "m_min up to m_max"),
        ({"rows__0__family": "cluster"}, "family 'cluster'.*strip or general"),
        ({"rows__0__kernel": "qpn2_nvfp4_t1_w5"}, "qpn2_nvfp4_t1_w5'.*qpn2_nvfp4_t1_w4"),
        ({"rows__0__kernel": GENERAL.kernel}, "strip kernel 'general_nvfp4_t4_n1_k8'"),
        ({"rows__0__m_max": 9}, "9 rows on qpn2_nvfp4_t1_w4.*at most 8"),
        ({"rows__0__source": "there"}, "source 'there'.*here"),
        ({"rows__1__m_min": 4}, "row 1: rows of x 4 to 12.*one row each"),
        ({"rows__1__extra": 1}, "keys .*extra"),
    ],
)
def test_a_malformed_table_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        parse(json.dumps(document(**changes)), "nvfp4.json")
    assert str(caught.value).startswith("nvfp4.json")
    assert "reinstall" in str(caught.value)


def test_missing_keys_and_text_that_is_no_json_are_refused() -> None:
    for path in ("rows", "sources"):
        broken = document()
        del broken[path]
        with pytest.raises(SettingsError, match="keys"):
            parse(json.dumps(broken), "t")
    broken = copy.deepcopy(document())
    del broken["rows"][0]["m_max"]
    with pytest.raises(SettingsError, match="row 0: keys"):
        parse(json.dumps(broken), "t")
    with pytest.raises(SettingsError, match="no JSON"):
        parse("{", "t")


@pytest.mark.parametrize(
    ("m", "qpn2", "kernel"), [(8, True, "qpn2_nvfp4_t1_w16"), (8, False, "general"), (9, True, "general")]
)
def test_the_operators_kernels_launch_what_is_chosen(
    m: int, qpn2: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeDriver()
    module = fake.install(monkeypatch)
    kernels = nvfp4.Nvfp4Kernels(
        module,
        VOLTA_ATOM,
        nvfp4_general.GeneralKernels(module, VOLTA_ATOM),
        lambda m, n, k, qpn2: choose_linear(
            m, n, k, qpn2, sm_number=70, atom=VOLTA_ATOM, card=V100, tuning=NO_ROWS
        ),
    )
    kernels.prepare_linear(m, 4096, 4096, 0, qpn2=qpn2)(0, 1, 2, 3, 4, 5)
    assert len(fake.launched) == 1
    assert fake.launched[0].kernel.startswith(kernel)
