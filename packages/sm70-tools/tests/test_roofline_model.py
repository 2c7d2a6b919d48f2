"""The model, by cases that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sm70_tools.errors import ArgumentError
from sm70_tools.roofline.cards import (
    FIGURES,
    HOPPER,
    LAUNCH_US,
    TURING,
    VOLTA,
    VOLTA_TENSOR_EFFICIENCY,
    Figures,
    find_figures,
)
from sm70_tools.roofline.kernel import (
    MODELLED_ROWS,
    PACKED_ROWS,
    QUAD_ROWS,
    QUADPAIR_ROWS,
    Kernel,
    chosen_kernel,
    general_kernel,
    strip_kernel,
)
from sm70_tools.roofline.model import (
    Terms,
    bound_many_rows,
    busiest_pipe,
    l1_bytes,
    pipe_cycles,
    predict,
    resident_blocks,
    wave_terms,
)

KERNEL = Kernel(
    name="k",
    strip=64,
    warps=8,
    warps_k=8,
    token_tiles=1,
    registers=80,
    shared_bytes=8 * 8 * 66 * 4,
    k_of_unit=64,
    k_padding=256,
    instructions=400,
    tensor=128,
    hmma_fmas=256,
    half=72,
    integer=137,
    multiply=81,
    x_loads=8,
    quarters=QUADPAIR_ROWS,
    shared_wavefronts=0,
    weight_lines=18,
    cover_cycles=700,
    serial_points=((0, 800), (100, 1000), (200, 1500)),
)
V100 = find_figures("v100")


@pytest.mark.parametrize(
    ("registers", "warps", "shared", "family", "blocks"),
    [
        (80, 8, 16896, VOLTA, 3),  # 65536 // (80 * 32) = 25 warps
        (78, 8, 16896, VOLTA, 3),  # registers come in eights
        (81, 8, 16896, VOLTA, 2),  # 88: 23 warps
        (32, 8, 16896, VOLTA, 5),  # 96 KiB of shared memory
        (32, 8, 1024, VOLTA, 8),  # 64 warps
        (32, 8, 1024, TURING, 4),  # 32 warps
        (80, 16, 33792, TURING, 1),
    ],
)
def test_blocks_that_fit(registers: int, warps: int, shared: int, family: object, blocks: int) -> None:
    assert family in {VOLTA, TURING}
    kernel = replace(KERNEL, registers=registers, warps=warps, shared_bytes=shared)
    assert resident_blocks(kernel, VOLTA if family is VOLTA else TURING) == blocks


def test_the_tensor_port_is_shared_below_8_0() -> None:
    full = replace(VOLTA, tensor_efficiency=1.0)
    assert pipe_cycles(KERNEL, full) == max(400, 128 * 2 + 72 * 2) / 4
    assert pipe_cycles(replace(KERNEL, tensor=256), full) == (256 * 2 + 72 * 2) / 4
    assert pipe_cycles(replace(KERNEL, tensor=256, hmma_fmas=2048), HOPPER) == 256 * 4 / 4


def test_the_tensor_port_of_7_5_takes_eight_cycles_for_16_rows_8_columns_and_8_of_k() -> None:
    turing, volta = (replace(family, tensor_efficiency=1.0) for family in (TURING, VOLTA))
    assert pipe_cycles(replace(KERNEL, tensor=64, hmma_fmas=1024), turing) == (64 * 8 + 72 * 2) / 4
    # The same products as four steps each on 7.0: the same time.
    assert pipe_cycles(replace(KERNEL, tensor=4 * 64), volta) == (64 * 8 + 72 * 2) / 4


def test_the_tensor_port_of_7_x_delivers_65_percent() -> None:
    for family in (VOLTA, TURING):
        assert family.tensor_efficiency == VOLTA_TENSOR_EFFICIENCY == 0.65
        pipe, cycles = busiest_pipe(KERNEL, family)
        assert pipe == "tensor port"
        assert cycles == pytest.approx((128 * 2 / 0.65 + 72 * 2) / 4)
    assert busiest_pipe(replace(KERNEL, instructions=600), VOLTA) == ("issue", 150)


@pytest.mark.parametrize(
    ("quarters", "tiles", "m", "lines"),
    [
        (QUADPAIR_ROWS, 1, 1, 4),
        (QUADPAIR_ROWS, 1, 4, 4 + 4 + 1 + 1),
        (QUADPAIR_ROWS, 1, 6, 4 + 4 + 2 + 2),
        (QUADPAIR_ROWS, 1, 8, 16),
        (QUADPAIR_ROWS, 2, 8, 16 + 4),
        (QUADPAIR_ROWS, 2, 16, 32),
        (QUAD_ROWS, 1, 1, 4),
        (QUAD_ROWS, 1, 8, 8),
        (PACKED_ROWS, 1, 8, 4),
    ],
)
def test_lines_follow_the_rows_that_a_quarter_touches(
    quarters: tuple[tuple[int, int], ...], tiles: int, m: int, lines: int
) -> None:
    kernel = replace(KERNEL, quarters=quarters, token_tiles=tiles)
    assert kernel.lines(m) == 8 * lines + 18


@pytest.mark.parametrize(("k", "units"), [(256, 4), (1536, 24), (4352, 68), (64, 4), (320, 8)])
def test_k_is_padded_to_blocks(k: int, units: int) -> None:
    assert KERNEL.units(k) == units


@pytest.mark.parametrize(("latency", "cycles"), [(0, 800), (50, 900), (100, 1000), (150, 1250), (300, 2000)])
def test_the_duration_is_linear(latency: float, cycles: float) -> None:
    assert KERNEL.serial_cycles(latency) == cycles


def test_one_wave_by_hand() -> None:
    family = replace(
        VOLTA,
        l1_latency=0.0,
        l2_latency=100.0,
        memory_latency=750.0,
        line_cycles=0.5,
        tensor_efficiency=1.0,
    )
    card = Figures("v100", family, 80, 1.5, "", 900.0, "")  # 600 bytes a cycle
    terms = wave_terms(KERNEL, card, m=8, k=1536, blocks=100, missing=1.0)
    assert terms.memory == pytest.approx(100 * 24 * 2304 / 600)
    # 24 units over 8 warps; 750 of latency are hidden by 700 and by nothing in the other 800 - 700 cycles.
    assert terms.latency == pytest.approx(3 * max(1000, 750 + 800 - 700) + 2 * 750)
    slow = replace(card, family=replace(family, memory_latency=1500.0))
    assert wave_terms(KERNEL, slow, 8, 1536, 100, 1.0).latency == pytest.approx(3 * 1600 + 2 * 1500)
    assert terms.pipes == pytest.approx(2 * 24 * 100)
    assert terms.l1 == pytest.approx(2 * 24 * (8 * 16 + 18) * 0.5)
    assert terms.l2 == pytest.approx(8 * 1536 * 2 / 64)


def test_terms_overlap_in_part() -> None:
    assert Terms(3, 4, 0, 0, 0).combined == pytest.approx(5)
    assert Terms(0, 0, 7, 0, 0).combined == pytest.approx(7)


def test_a_second_wave_costs_its_own_latency() -> None:
    # Three blocks of this kernel fit on an SM: 240 of them on a V100.
    one = predict(KERNEL, V100, 1, 240 * 64, 4096)
    two = predict(KERNEL, V100, 1, 241 * 64, 4096)
    assert two.parts_us["memory"] == pytest.approx(one.parts_us["memory"] * 241 / 240)
    assert two.parts_us["latency"] > 1.5 * one.parts_us["latency"]
    assert two.us - one.us > 0.5


def test_x_beyond_l1_comes_from_l2_in_every_wave() -> None:
    capacity = l1_bytes(KERNEL, VOLTA, 3)
    assert capacity == (128 - 64) * 1024  # three blocks use 49.5 KiB, so shared memory is set to 64
    fits = predict(KERNEL, V100, 8, 480 * 64, 4096)
    exceeds = predict(KERNEL, V100, 8, 480 * 64, 8192)
    assert fits.parts_us["L2"] == pytest.approx(8 * 4096 * 2 / 64 / 1530)
    assert exceeds.parts_us["L2"] == pytest.approx(8 * 8192 * 2 / 64 * (1 + 0.5) / 1530)


@pytest.mark.parametrize("figures", FIGURES, ids=lambda figures: figures.key)
def test_no_prediction_beats_the_card(figures: Figures) -> None:
    for m in (1, 8, 16, 32, 64):
        for n, k in ((5120, 1536), (17408, 5120)):
            kernel = chosen_kernel(figures, m, n, k)
            assert kernel is not None
            prediction = predict(kernel, figures, m, n, k)
            assert prediction.gb_s < figures.read_gb_s < figures.card.bandwidth_gb_s
            assert prediction.us > LAUNCH_US
            assert prediction.limit in {prediction.title_of(part) for part in prediction.parts_us}


def test_more_rows_than_the_kernel_takes_are_a_bound() -> None:
    assert chosen_kernel(V100, MODELLED_ROWS + 1, 4096, 4096) is None
    assert chosen_kernel(V100, MODELLED_ROWS, 4096, 4096) is not None
    bound = bound_many_rows(V100, 4096, 4096)
    assert bound.us == pytest.approx(4096 * 4096 * 0.5625 / 879e3 + LAUNCH_US)


def test_kernels_come_from_the_table_of_loops() -> None:
    volta, turing, hopper = (strip_kernel(sm, "qpn2_nvfp4_t2_w8") for sm in ("70", "75", "90"))
    assert (volta.strip, volta.k_of_unit, volta.warps, volta.token_tiles) == (64, 64, 8, 2)
    assert (turing.strip, turing.k_of_unit) == (hopper.strip, hopper.k_of_unit) == (16, 256)
    assert volta.lines(16) == 8 * 32 + 18
    assert turing.lines(16) == hopper.lines(16) == 8 * 16 + 18
    assert [kernel.hmma_fmas for kernel in (volta, turing, hopper)] == [8 * 8 * 4, 16 * 8 * 8, 16 * 8 * 16]


# Two warps along N and two along K: a strip of 128 columns, slabs of 64 columns of K.
GENERAL = replace(
    KERNEL,
    strip=128,
    warps=4,
    warps_k=2,
    token_tiles=2,
    k_of_unit=64,
    k_padding=64,
    x_loads=2,
    quarters=PACKED_ROWS,
    shared_wavefronts=72,
)


def test_the_work_of_a_general_kernel() -> None:
    assert (KERNEL.is_general, GENERAL.is_general) == (False, True)
    assert [GENERAL.token_blocks(m) for m in (1, 16, 17, 64)] == [1, 1, 2, 4]
    # 600 columns are 10 slabs of 64 for each warp along N, two rounds of two layout blocks of 4 slabs each.
    assert GENERAL.units(600) == 2 * 10
    assert GENERAL.iterations(600) == 2 * 4
    assert KERNEL.iterations(600) == 2  # 12 units of a strip kernel over 8 warps
    assert GENERAL.lines(1) == GENERAL.lines(64) == 2 * 4 + 18


def test_one_wave_of_a_general_kernel_by_hand() -> None:
    family = replace(
        VOLTA,
        l2_latency=150.0,
        memory_latency=750.0,
        line_cycles=0.5,
        tensor_efficiency=1.0,
        l2_bytes=32.0,
    )
    card = Figures("v100", family, 80, 1.5, "", 900.0, "")  # 600 bytes a cycle
    terms = wave_terms(GENERAL, card, m=64, k=1024, blocks=200, missing=1.0)
    # 200 blocks are 50 strips, each for four blocks of 16 rows; y is written as well.
    assert terms.memory == pytest.approx(50 * (128 * 1024 * 0.5625 + 64 * 128 * 2) / 600)
    # 8 slabs after one another, whose x takes 1250 cycles with a latency of 150.
    assert terms.latency == pytest.approx(8 * 1250 + 2 * 750)
    assert terms.pipes == pytest.approx(3 * 32 * 100)
    assert terms.l1 == pytest.approx(3 * 32 * (26 * 0.5 + 72))
    # Each of the three blocks of an SM reads its rows of x, and three of four read the strip from L2.
    assert terms.l2 == pytest.approx(3 * (16 * 1024 * 2 + 128 * 1024 * 0.5625 * 0.75) / 32)
    # x comes through L2 in every wave: nothing of it stays in L1.
    assert wave_terms(GENERAL, card, 64, 1024, 200, 0.0) == terms


def test_general_kernels_come_from_the_table_of_loops() -> None:
    kernel = general_kernel("70", "general_nvfp4_t4_n2_k4")
    assert (kernel.strip, kernel.warps, kernel.warps_k, kernel.rows) == (128, 8, 4, 32)
    # One slab of four tiles: 64 columns x 64 of K in steps of 256 products, 32 reads of x and 4 copies.
    assert (kernel.tensor, kernel.shared_wavefronts, kernel.weight_lines) == (512, 4 * (32 + 4), 18)
    assert kernel.cover_cycles > 0.85 * kernel.serial_cycles(0)
    assert kernel.units(4096) == 2 * 64
    assert kernel.iterations(4096) == 16


def test_the_chosen_kernel_is_the_one_that_the_suite_launches() -> None:
    few, many = chosen_kernel(V100, 8, 4096, 4096), chosen_kernel(V100, 9, 4096, 4096)
    assert few is not None
    assert many is not None
    assert (few.is_general, many.is_general) == (False, True)
    # K of a strip kernel is a multiple of 128.
    odd = chosen_kernel(V100, 8, 4096, 4096 + 64)
    assert odd is not None
    assert odd.is_general


@pytest.mark.parametrize(("m", "k"), [(0, 4096), (1, 4), (1, 100)])
def test_impossible_problems_are_refused(m: int, k: int) -> None:
    with pytest.raises(ArgumentError, match="multiple of 64"):
        chosen_kernel(V100, m, 4096, k)
