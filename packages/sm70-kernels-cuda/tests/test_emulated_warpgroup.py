"""The warpgroup kernels, from their own CUDA source, in the emulator and against float64; and broken."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_kernels import PACKAGE
from emulated_warpgroup import CARD, EmulatedWarpgroup
from emulator.emulator import KernelError
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.launch_warpgroup import WARPGROUP_VARIANTS, WarpgroupVariant, plan_warpgroup

if TYPE_CHECKING:
    from pathlib import Path

EACH_VARIANT = pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)
SMALL = WARPGROUP_VARIANTS[0]
SHARED_K = next(variant for variant in WARPGROUP_VARIANTS if variant.split > 1)


@pytest.fixture(scope="session")
def kernels(kernel_cache: Path) -> EmulatedWarpgroup:
    return EmulatedWarpgroup.build(kernel_cache)


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: EmulatedWarpgroup, variant: WarpgroupVariant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels.run, variant, random_checkpoint(rng, 35, 272))


@pytest.mark.parametrize("variant", [SMALL, SHARED_K], ids=lambda variant: variant.kernel)
def test_every_code_under_every_scale(kernels: EmulatedWarpgroup, variant: WarpgroupVariant) -> None:
    check_one_hot(kernels.run, variant, every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize("split", [1, 2, 3])
@pytest.mark.parametrize(("n", "k"), [(1, 16), (16, 256), (97, 656), (388, 1296)])
def test_dense_rows_match_the_oracle(
    kernels: EmulatedWarpgroup,
    variant: WarpgroupVariant,
    split: int,
    n: int,
    k: int,
    rng: np.random.Generator,
) -> None:
    weight = random_checkpoint(rng, n, k)
    for m in (1, variant.tokens - 3, variant.tokens + 5):
        if plan_warpgroup(variant, min(split, -(-k // 256)), m, n, k, CARD) is not None:
            check_dense(replace(kernels, split=split).run, variant, weight, m, rng, with_bias=m != 1)


@pytest.mark.parametrize("blocks", [4, 11, 23])
def test_the_ring_goes_round(kernels: EmulatedWarpgroup, blocks: int, rng: np.random.Generator) -> None:
    """More stages than the ring has, also for the variants whose warps share chunks."""
    for variant in (SMALL, SHARED_K):
        check_dense(
            kernels.run, variant, random_checkpoint(rng, 40, 256 * blocks - 112), 9, rng, with_bias=False
        )


def test_a_cluster_of_six(kernels: EmulatedWarpgroup, rng: np.random.Generator) -> None:
    """The ranks do not finish equally many rows, and do not have equally much of K."""
    weight = random_checkpoint(rng, 130, 256 * 7)
    check_dense(replace(kernels, split=6).run, SMALL, weight, 32, rng, with_bias=True)


def test_packed_tokens_have_zeros_beyond_x(kernels: EmulatedWarpgroup, rng: np.random.Generator) -> None:
    """Row 2 i + h of a chunk, values 2 t and 2 t + 1: columns 16 t + 4 i + 2 h and the next one."""
    m, k = 5, 272
    x = rng.standard_normal((m, k)).astype(np.float16)
    plan = plan_warpgroup(SMALL, 1, m, 16, k, CARD)
    assert plan is not None
    padded = np.zeros((SMALL.tokens, 512), np.float16)
    padded[:m, :k] = x
    # [token, chunk, t, i, h, pair] to [chunk, i, h, token, t, pair]
    expected = padded.reshape(SMALL.tokens, 8, 4, 4, 2, 2).transpose(1, 3, 4, 0, 2, 5)
    np.testing.assert_array_equal(kernels.pack(plan, x), expected.reshape(-1))


FAULTS = {
    "x is read before it is packed": ("  wait_for_previous_kernel();\n", "", "previous kernel"),
    "a stage is not waited for": (
        "ring.full(at.stage).wait(at.parity);",
        "ring.full(at.stage);",
        "waited for|uninitialised",
    ),
    "the wrong time around the ring": ("wait(at.parity)", "wait(0)", "phase|waited for|race"),
    "refilled before it was left": ("    empty(place.stage).wait(place.parity);\n", "", "race"),
    "left before the products are done": (
        "warpgroup_wait<kLoads - 1>();",
        "warpgroup_wait<kLoads + 3>();",
        "wrote A|race",
    ),
    "sums read before the products are done": (
        "  warpgroup_wait();\n  warpgroup::finish",
        "  warpgroup::finish",
        "without warpgroup_wait|NaN|wrong|wrote D",
    ),
    "the peers may not have started": ("    cluster_wait();  // the peers have started\n", "", "cluster"),
    "the peers' sums are not waited for": (
        "    ring.received().wait();\n",
        "",
        "waited for|uninitialised",
    ),
    "no barrier before the sums": (
        "  __syncthreads();  // all warps have left the ring\n",
        "",
        "race|waited for",
    ),
    "no barrier after the sums": (
        "  __syncthreads();\n  if (place.ranks > 1) {",
        "  if (place.ranks > 1) {",
        "race|uninitialised",
    ),
    "tiles beyond N are read": ("weight_tile(args, wanted)", "wanted", "outside|not in|bounds"),
    "tokens beyond M are written": (
        "tokens = args.m - token < Shape::kTokens ? args.m - token : Shape::kTokens;",
        "tokens = Shape::kTokens;",
        "outside|not in|bounds|dynamic shared memory",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_stopped(fault: str, tmp_path: Path) -> None:
    line, broken, text = FAULTS[fault]
    for folder in ("include", "csrc", "src"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "include" / "sm70" / "gemm" / "warpgroup_nvfp4.cuh"
    source = file.read_text(encoding="utf-8")
    assert source.count(line) == 1, "the line to break has changed"
    file.write_text(source.replace(line, broken), encoding="utf-8")
    built = EmulatedWarpgroup.build(tmp_path / "cache", root=tmp_path, host="warpgroup_one_host.cpp")
    kernels = replace(built, split=2)

    rng = np.random.default_rng(70)
    weight = random_checkpoint(rng, 90, 256 * 40)
    x = rng.standard_normal((11, weight.shape[1])).astype(np.float16)
    with pytest.raises(KernelError, match=text):
        kernels.run(SMALL, weight, x, None)
