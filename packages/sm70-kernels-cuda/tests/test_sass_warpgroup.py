"""The machine code of the warpgroup kernels, which only a build for sm_90a holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sass
from build_support.fatbin import ARCHITECTURES, include_folders
from build_support.nvrtc import compile_source
from emulated_kernels import PACKAGE
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_warpgroup import (
    PACK_KERNEL,
    WARPGROUP_VARIANTS,
    WarpgroupVariant,
    plan_warpgroup,
)

if TYPE_CHECKING:
    from collections import Counter

EACH_VARIANT = pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)
CHUNK_PRODUCTS = 4
ARCHITECTURE = "90a"


@pytest.fixture(scope="module")
def code(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, sass.Resources], dict[str, Counter[str]]]:
    cubin = tmp_path_factory.mktemp("cubin") / "sm_90a.cubin"
    source = PACKAGE / "csrc" / "sm70_kernels.cu"
    cubin.write_bytes(compile_source(source, f"sm_{ARCHITECTURE}", include_folders(PACKAGE)))
    return sass.resources(cubin), sass.instructions(cubin)


def test_the_wheel_is_built_for_it() -> None:
    assert ARCHITECTURE in ARCHITECTURES


def test_the_binary_holds_exactly_the_kernels_that_are_launched(
    code: tuple[dict[str, sass.Resources], dict[str, Counter[str]]],
) -> None:
    wanted = {PACK_KERNEL} | {variant.kernel for variant in WARPGROUP_VARIANTS}
    assert {name for name in code[0] if "warpgroup" in name or "pack" in name} == wanted


@EACH_VARIANT
def test_registers_fit_and_nothing_is_spilled(
    code: tuple[dict[str, sass.Resources], dict[str, Counter[str]]], variant: WarpgroupVariant
) -> None:
    used = code[0][variant.kernel]
    assert (used.stack, used.local) == (0, 0)
    assert not any(op.startswith(("STL", "LDL")) for op in code[1][variant.kernel])
    assert used.registers * variant.threads * variant.resident <= 65536


@EACH_VARIANT
def test_products_are_not_serialised(
    code: tuple[dict[str, sass.Resources], dict[str, Counter[str]]], variant: WarpgroupVariant
) -> None:
    """Where the compiler cannot follow a product's registers it waits after each product, silently."""
    counts = code[1][variant.kernel]
    products = counts[f"HGMMA.64x{variant.tokens}x16.F32"]
    assert products % (CHUNK_PRODUCTS * 4 // variant.split) == 0
    assert products > 0
    waits = counts["WARPGROUP.DEPBAR.LE"]
    assert waits == products // CHUNK_PRODUCTS + 1  # and one after the last chunk


@EACH_VARIANT
def test_as_many_blocks_as_the_registers_allow_fit_the_shared_memory(variant: WarpgroupVariant) -> None:
    card = Card(132, 232448)
    plan = plan_warpgroup(variant, 1, variant.tokens, 4096, 4096, card)
    assert plan is not None
    assert (plan.launch.shared_bytes + 1024) * variant.resident <= 233472
