"""What the package declares: its provider, the verdicts of its kernels, launches, and the binary's build."""

from __future__ import annotations

import subprocess
import sys

import pytest

from build_support.fatbin import ARCHITECTURES, PTX_ARCHITECTURE, build_fatbin, include_folders
from build_support.libraries import BuildError
from build_support.nvrtc import compile_source
from emulated_kernels import PACKAGE
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.block_layout_kernel import CAPABILITIES
from sm70_kernels_cuda.launch import (
    AMPERE_ATOM,
    ATOMS,
    TURING_ATOM,
    VARIANTS,
    VOLTA_ATOM,
    Atom,
    Variant,
    atom_of,
    choose_variant,
    launch_dequantize,
    launch_variant,
)
from sm70_kernels_cuda.launch_cluster import has_clusters
from sm70_kernels_cuda.provider import PROVIDER
from sm70_kernels_cuda.qpn2 import Qpn2NvFp4LinearKernel, TuringQpn2NvFp4LinearKernel
from sm70_kernels_cuda.reference import CpuReferenceNvFp4LinearKernel
from sm70_policy import registry
from sm70_policy.capability import Device, Sm, find_card
from sm70_policy.formats import NVFP4, WeightFormat
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import LinearKernel
from sm70_policy.route import Policy, choose_installed
from sm70_policy.settings import Settings
from sm70_policy.verdict import SUPPORTED, Rejection

V100, T4 = find_card("v100").device, find_card("t4").device
OTHER_FORMAT = WeightFormat("int4", "u4", 4, 128, "fp16", 2, global_scale=False)


def _problem(
    n: int = 100,
    k: int = 1536,
    activation: ActivationDtype = ActivationDtype.FLOAT16,
    weight_format: WeightFormat = NVFP4,
) -> LinearProblem:
    return LinearProblem("layer", weight_format, n, k, activation)


def test_the_entry_point_brings_this_provider() -> None:
    assert PROVIDER in registry.discover().providers
    assert all(isinstance(kernel, LinearKernel) for kernel in PROVIDER.linear_kernels)


def test_loading_the_provider_costs_no_torch() -> None:
    code = "import sm70_kernels_cuda.provider, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("n", [1, 33, 17408])
@pytest.mark.parametrize("k", [128, 1536, 17408])
@pytest.mark.parametrize("sm", sorted(CAPABILITIES), ids=str)
def test_one_qpn2_takes_any_n_and_multiples_of_128(n: int, k: int, sm: Sm) -> None:
    turing, other = TuringQpn2NvFp4LinearKernel(), Qpn2NvFp4LinearKernel()
    serves, stands_back = (turing, other) if sm == Sm(7, 5) else (other, turing)
    assert serves.supports(_problem(n, k), Device.cuda(sm)) == SUPPORTED
    verdict = stands_back.supports(_problem(n, k), Device.cuda(sm))
    assert isinstance(verdict, Rejection)
    assert (verdict.code, f"(compute capability {sm})" in verdict.message) == ("capability", True)
    assert serves.name in verdict.fix


@pytest.mark.parametrize(
    ("problem", "device", "code", "words"),
    [
        (_problem(k=576), V100, "k-not-multiple", ["128", "K=576"]),
        (_problem(activation=ActivationDtype.BFLOAT16), V100, "activation-dtype", ["--dtype float16"]),
        (_problem(weight_format=OTHER_FORMAT), V100, "format", ["nvfp4", "int4"]),
        (_problem(), Device.cpu(), "capability", ["7.0", "CPU"]),
        (_problem(), Device.cuda(Sm(6, 1)), "capability", ["6.1"]),
        (_problem(), T4, "capability", ["Tesla T4", "TuringQpn2NvFp4LinearKernel"]),
    ],
)
def test_qpn2_says_why_not(problem: LinearProblem, device: Device, code: str, words: list[str]) -> None:
    verdict = Qpn2NvFp4LinearKernel().supports(problem, device)
    assert isinstance(verdict, Rejection)
    assert verdict.code == code
    assert all(word in str(verdict) for word in words)


@pytest.mark.parametrize(
    ("problem", "device", "code", "words"),
    [
        (_problem(k=576), T4, "k-not-multiple", ["128", "K=576"]),
        (_problem(activation=ActivationDtype.BFLOAT16), T4, "activation-dtype", ["--dtype float16"]),
        (_problem(weight_format=OTHER_FORMAT), T4, "format", ["nvfp4", "int4"]),
        (_problem(), V100, "capability", ["needs compute capability 7.5;", "V100", "Qpn2NvFp4LinearKernel"]),
        (_problem(), Device.cuda(Sm(8, 0)), "capability", ["needs compute capability 7.5;", "8.0"]),
        (_problem(), Device.cuda(Sm(6, 1)), "capability", ["6.1", "use another card"]),
    ],
)
def test_qpn2_of_turing_says_why_not(
    problem: LinearProblem, device: Device, code: str, words: list[str]
) -> None:
    verdict = TuringQpn2NvFp4LinearKernel().supports(problem, device)
    assert isinstance(verdict, Rejection)
    assert verdict.code == code
    assert all(word in str(verdict) for word in words)


@pytest.mark.parametrize("card", ["t4", "rtx2080ti", "rtx8000"])
@pytest.mark.parametrize(
    ("policy", "expected", "code"),
    [
        (Policy(), "TuringQpn2NvFp4LinearKernel", "ok"),
        (
            Policy(disabled=frozenset({"TuringQpn2NvFp4LinearKernel"})),
            "TurboMindNvFp4LinearKernel",
            "disabled-by-name",
        ),
        (Policy(disabled=frozenset({"Qpn2NvFp4LinearKernel"})), "TuringQpn2NvFp4LinearKernel", "ok"),
        (
            Policy(Settings.from_mapping({"sm70_nvfp4": {"qpn2": False}})),
            "TurboMindNvFp4LinearKernel",
            "disabled-by-setting",
        ),
    ],
)
def test_the_choice_on_turing(card: str, policy: Policy, expected: str, code: str) -> None:
    route = choose_installed(_problem(), find_card(card).device, registry.discover(), policy)
    assert route.require().name == expected
    verdicts = {item.kernel: getattr(item.verdict, "code", "ok") for item in route.verdicts}
    assert verdicts["TuringQpn2NvFp4LinearKernel"] == code
    assert verdicts["TurboMindNvFp4LinearKernel"] == "ok"
    assert verdicts["Qpn2NvFp4LinearKernel"] != "ok"


@pytest.mark.parametrize(
    ("device", "settings"), [(V100, {}), (Device.cuda(Sm(8, 0)), {"enabled": True})], ids=["7.0", "8.0"]
)
def test_other_cards_pass_the_turing_class_over(device: Device, settings: dict[str, bool]) -> None:
    policy = Policy(Settings.from_mapping({"sm70_nvfp4": settings}))
    route = choose_installed(_problem(), device, registry.discover(), policy)
    assert route.require().name == "Qpn2NvFp4LinearKernel"
    passed = {item.kernel: item.verdict for item in route.passed_over}
    verdict = passed["TuringQpn2NvFp4LinearKernel"]
    assert isinstance(verdict, Rejection)
    assert verdict.code == "capability"


def test_qpn2_without_its_binary_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "is_present", lambda: False)
    for kernel, device in ((Qpn2NvFp4LinearKernel(), V100), (TuringQpn2NvFp4LinearKernel(), T4)):
        verdict = kernel.supports(_problem(), device)
        assert isinstance(verdict, Rejection)
        assert verdict.code == "binary-missing"


def test_the_reference_takes_the_cpu_only() -> None:
    kernel = CpuReferenceNvFp4LinearKernel()
    assert kernel.supports(_problem(k=576), Device.cpu()) == SUPPORTED
    for problem, device, code in (
        (_problem(), V100, "device-kind"),
        (_problem(k=40), Device.cpu(), "k-not-multiple"),
        (_problem(weight_format=OTHER_FORMAT), Device.cpu(), "format"),
    ):
        verdict = kernel.supports(problem, device)
        assert isinstance(verdict, Rejection)
        assert verdict.code == code


@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
@pytest.mark.parametrize("k", [128, 256, 1536, 5120, 17408])
def test_the_chosen_variant_takes_all_rows_and_keeps_most_warps_busy(atom: Atom, k: int) -> None:
    for m in range(1, 33):
        variant = choose_variant(m, k, atom)
        assert variant in VARIANTS
        assert 8 * variant.token_tiles >= m > 4 * variant.token_tiles - 8
        smallest = min(item.warps for item in VARIANTS if item.token_tiles == variant.token_tiles)
        assert variant.warps == smallest or variant.warps < 2 * -(-k // 256) * atom.units_per_block


def test_atoms_and_launches() -> None:
    assert {atom_of(number) for number in (70, 72)} == {VOLTA_ATOM}
    assert {atom_of(number) for number in (80, 90, 120)} == {AMPERE_ATOM}
    assert atom_of(75) is TURING_ATOM
    assert launch_variant(Variant(1, 8), 5121, TURING_ATOM).grid == (321, 1)
    assert launch_variant(Variant(1, 16), 5121, VOLTA_ATOM).grid == (81, 1)
    assert launch_variant(Variant(1, 8), 5121, AMPERE_ATOM).grid == (321, 1)
    assert launch_dequantize(17, 1025).grid == (2, 2)


@pytest.mark.parametrize("sm", sorted(CAPABILITIES), ids=str)
def test_cluster_kernels_are_used_exactly_where_the_binary_has_them(sm: Sm) -> None:
    cubins = [number for code in ARCHITECTURES if (number := int(code.rstrip("a"))) // 10 == sm.major]
    code = max((c for c in cubins if c % 10 <= sm.minor), default=int(PTX_ARCHITECTURE))
    assert has_clusters(sm.major) == (code >= 90)  # csrc/cluster_nvfp4.cuh compiles them from there on


def test_a_rejected_source_shows_the_compilers_words(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    source = tmp_path / "broken.cu"
    source.write_text("int f( {", encoding="utf-8")
    with pytest.raises(BuildError, match=r"broken\.cu for sm_70"):
        compile_source(source, "sm_70", include_folders(PACKAGE))


def test_the_build_is_reproducible_and_holds_every_architecture() -> None:
    first = build_fatbin(PACKAGE)
    assert first == build_fatbin(PACKAGE)
    assert set(ARCHITECTURES) == {"70", "75", "80", "90a", "100"}
    assert binary._resource().read_bytes() == first, "the installed binary is older than its sources"
