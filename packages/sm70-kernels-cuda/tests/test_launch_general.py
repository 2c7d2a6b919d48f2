"""Launches of the general kernel and its class's verdicts: arithmetic, without a card."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sm70_kernels_cuda import binary
from sm70_kernels_cuda.block_layout_kernel import CAPABILITIES
from sm70_kernels_cuda.launch import AMPERE_ATOM, ATOMS, TURING_ATOM, VOLTA_ATOM, Atom
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_general import (
    GENERAL_VARIANTS,
    GeneralVariant,
    choose_general,
    launch_general,
    warp_shape,
)
from sm70_kernels_cuda.qpn2 import Qpn2NvFp4LinearKernel
from sm70_kernels_cuda.turbomind import TurboMindNvFp4LinearKernel
from sm70_policy.capability import Device, Sm, find_card
from sm70_policy.formats import NVFP4, WeightFormat
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import LinearKernel
from sm70_policy.verdict import SUPPORTED, Rejection

V100 = find_card("v100").device
CARDS = {
    "v100": (VOLTA_ATOM, Card(80, 96 * 1024)),
    "t4": (TURING_ATOM, Card(40, 64 * 1024)),
    "rtx2080ti": (TURING_ATOM, Card(68, 64 * 1024)),
    "rtx8000": (TURING_ATOM, Card(72, 64 * 1024)),
    "h200": (AMPERE_ATOM, Card(132, 227 * 1024)),
}
EACH_CARD = pytest.mark.parametrize(("atom", "card"), CARDS.values(), ids=CARDS)
EACH_ATOM = pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
EACH_VARIANT = pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)


def _problem(
    n: int = 100,
    k: int = 1536,
    activation: ActivationDtype = ActivationDtype.FLOAT16,
    weight_format: WeightFormat = NVFP4,
) -> LinearProblem:
    return LinearProblem("layer", weight_format, n, k, activation)


@EACH_CARD
@pytest.mark.parametrize("m", [1, 33, 64, 512, 5000])
@pytest.mark.parametrize(("n", "k"), [(1, 16), (4096, 4096), (17408, 5120), (5120, 17408)])
def test_the_chosen_launch_covers_y_and_fits_the_card(atom: Atom, card: Card, m: int, n: int, k: int) -> None:
    variant = choose_general(m, n, k, atom, card)
    plan = launch_general(variant, m, n, atom)
    token_blocks, strips = -(-m // variant.rows), -(-n // variant.strip(atom))
    assert plan.grid == (token_blocks * strips, 1)
    assert (token_blocks - 1) * variant.rows < m <= token_blocks * variant.rows
    assert (strips - 1) * variant.strip(atom) < n <= strips * variant.strip(atom)
    assert plan.shared_bytes <= card.shared_bytes
    assert plan.threads == 32 * variant.warps_n * variant.warps_k
    assert plan.kernel == variant.kernel


def test_the_sizes_that_the_kernel_is_for() -> None:
    volta, v100 = CARDS["v100"]
    turing, t4 = CARDS["t4"]
    assert choose_general(1024, 17408, 5120, turing, t4) == GeneralVariant(8, 4, 2)
    # Many rows and columns: the largest tile, every weight decoded once for 64 rows.
    assert choose_general(1024, 17408, 5120, volta, v100) == GeneralVariant(8, 4, 2)
    # On the newer atom larger blocks were measured to be slower.
    assert choose_general(64, 17408, 5120, AMPERE_ATOM, CARDS["h200"][1]) == GeneralVariant(4, 2, 4)
    # Few columns: warps share K instead, so that more multiprocessors work.
    assert choose_general(64, 1024, 4096, volta, v100).warps_k >= 4
    # A card of 64 KiB never gets the variant that needs more.
    for m in range(1, 300, 7):
        for n in (64, 1024, 4096, 17408):
            for atom in (volta, turing):
                assert choose_general(m, n, 4096, atom, t4) != GeneralVariant(8, 2, 4)
    # With the newer atom, up to 32 rows share one block of threads. One row needs one token tile.
    for m in range(1, 33):
        assert choose_general(m, 4096, 4096, AMPERE_ATOM, CARDS["h200"][1]).rows >= m
    assert choose_general(1, 4096, 4096, volta, v100).token_tiles == 1
    # 64 strips of 64 columns keep more of a V100 busy than 32 of 128, and 24 rows are three token tiles.
    assert choose_general(24, 4096, 4096, volta, v100) == GeneralVariant(3, 1, 8)
    assert choose_general(16, 5120, 8704, volta, v100) == GeneralVariant(2, 1, 8)


def test_shared_memory_and_strips() -> None:
    assert GeneralVariant(8, 4, 2).shared_bytes(VOLTA_ATOM) == 2 * 64 * (2 * 128 + 16)
    assert GeneralVariant(8, 2, 4).shared_bytes(VOLTA_ATOM) == 2 * 64 * (4 * 128 + 16)
    assert GeneralVariant(4, 2, 4).shared_bytes(AMPERE_ATOM) == 8 * 32 * 36 * 4
    assert GeneralVariant(8, 4, 2).strip(VOLTA_ATOM) == 256
    assert GeneralVariant(4, 2, 4).shared_bytes(TURING_ATOM) == 2 * 32 * (4 * 128 + 16)
    assert GeneralVariant(4, 4, 2).shared_bytes(TURING_ATOM) == 8 * 16 * 36 * 4
    assert {GeneralVariant(8, 4, 2).strip(atom) for atom in (TURING_ATOM, AMPERE_ATOM)} == {128}
    assert launch_general(GeneralVariant(2, 2, 4), 17, 129, VOLTA_ATOM).grid == (4, 1)
    for atom in ATOMS:
        large = [item for item in GENERAL_VARIANTS if item.shared_bytes(atom) > 48 * 1024]
        assert large == [
            GeneralVariant(3, 1, 8),
            GeneralVariant(4, 1, 8),
            GeneralVariant(6, 2, 4),
            GeneralVariant(8, 2, 4),
        ]


def test_variants_that_nobody_measured_are_for_7_x_alone() -> None:
    new = {GeneralVariant(2, 1, 4), GeneralVariant(3, 1, 8), GeneralVariant(3, 2, 4), GeneralVariant(4, 1, 8)}
    atom, card = CARDS["h200"]
    chosen = {
        choose_general(m, n, k, atom, card)
        for m in range(1, 200)
        for n, k in ((1024, 4096), (4096, 4096), (17408, 5120))
    }
    assert not chosen & new
    for older in (VOLTA_ATOM, TURING_ATOM):
        assert new < set(warp_shape(older).variants)


def test_registers_are_kept_for_no_more_blocks_than_the_shared_memory_of_7_5_holds() -> None:
    resident = {item: item.resident_blocks(TURING_ATOM) for item in GENERAL_VARIANTS}
    # 64 KiB: two of 16 KiB and a little; one of 33 KiB; three of four warps.
    assert resident[GeneralVariant(1, 1, 8)] == resident[GeneralVariant(3, 2, 4)] == 2
    assert resident[GeneralVariant(2, 1, 8)] == 1
    assert resident[GeneralVariant(2, 1, 4)] == 3
    # More than 3 tiles leave no registers for two blocks; one is always kept, also where it does not fit.
    assert {blocks for item, blocks in resident.items() if item.token_tiles > 3} == {1}


@EACH_ATOM
@EACH_VARIANT
def test_a_quarter_warps_reads_of_x_are_on_different_banks(atom: Atom, variant: GeneralVariant) -> None:
    """16-byte reads are served eight lanes at a time; lanes that read the same address share it."""
    pitch = variant.warps_k * 128 + 16
    for first in range(0, 32, 8):
        addresses = set()
        for lane in range(first, first + 8):
            if atom is VOLTA_ATOM:  # quadpairs read the same tokens; PTX ISA, fragments of m8n8k4
                row, group = (lane % 4) + 4 * (lane // 16), 0
            else:  # PTX ISA, fragments of m16n8k8 and m16n8k16
                row, group = lane // 4, lane % 4
            addresses.add(row * pitch + group * 32)
        banks = [address // 16 % 8 for address in addresses]
        assert len(set(banks)) == len(banks)


@pytest.mark.parametrize("n", [1, 33, 17408])
@pytest.mark.parametrize("k", [16, 48, 576, 17408])
@pytest.mark.parametrize("sm", sorted(CAPABILITIES), ids=str)
def test_any_n_and_multiples_of_16(n: int, k: int, sm: Sm) -> None:
    assert TurboMindNvFp4LinearKernel().supports(_problem(n, k), Device.cuda(sm)) == SUPPORTED


@pytest.mark.parametrize(
    ("problem", "device", "code", "words"),
    [
        (_problem(k=40), V100, "k-not-multiple", ["16", "K=40", "tensor-parallel"]),
        (_problem(activation=ActivationDtype.BFLOAT16), V100, "activation-dtype", ["--dtype float16"]),
        (
            _problem(weight_format=WeightFormat("int4", "u4", 4, 128, "fp16", 2, global_scale=False)),
            V100,
            "format",
            ["nvfp4", "int4"],
        ),
        (_problem(), Device.cpu(), "capability", ["7.0", "CPU"]),
        (_problem(), Device.cuda(Sm(6, 1)), "capability", ["6.1"]),
    ],
)
def test_it_says_why_not(problem: LinearProblem, device: Device, code: str, words: list[str]) -> None:
    verdict = TurboMindNvFp4LinearKernel().supports(problem, device)
    assert isinstance(verdict, Rejection)
    assert verdict.code == code
    assert all(word in str(verdict) for word in words)


def test_without_the_binary_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "is_present", lambda: False)
    verdict = TurboMindNvFp4LinearKernel().supports(_problem(), V100)
    assert isinstance(verdict, Rejection)
    assert verdict.code == "binary-missing"


def test_it_follows_qpn2_and_keeps_the_same_bytes() -> None:
    kernel, qpn2 = TurboMindNvFp4LinearKernel(), Qpn2NvFp4LinearKernel()
    assert isinstance(kernel, LinearKernel)
    assert (kernel.name, kernel.priority, kernel.setting) == ("TurboMindNvFp4LinearKernel", 150, None)
    assert kernel.priority < qpn2.priority
    assert kernel.resident_bytes(_problem()) == qpn2.resident_bytes(_problem())


def test_loading_the_class_costs_no_torch() -> None:
    code = "import sm70_kernels_cuda.turbomind, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
