"""The cluster kernels, from their own CUDA source, in the emulator and against float64; and broken."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_cluster import EmulatedCluster
from emulated_kernels import PACKAGE
from emulator.emulator import KernelError
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.launch_cluster import (
    CLUSTER_VARIANTS,
    Card,
    ClusterVariant,
    choose_cluster,
    plan_cluster,
)

if TYPE_CHECKING:
    from pathlib import Path

EACH_VARIANT = pytest.mark.parametrize("variant", CLUSTER_VARIANTS, ids=lambda variant: variant.kernel)
H200 = Card(132, 232448)


@pytest.fixture(scope="session")
def kernels(kernel_cache: Path) -> EmulatedCluster:
    return EmulatedCluster.build(kernel_cache)


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: EmulatedCluster, variant: ClusterVariant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels.run, variant, random_checkpoint(rng, 35, 128))


def test_every_code_under_every_scale(kernels: EmulatedCluster) -> None:
    check_one_hot(kernels.run, ClusterVariant(2, 16), every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize("overlapped", [True, False], ids=["overlapped", "alone"])
@pytest.mark.parametrize(("n", "k"), [(1, 128), (16, 256), (97, 640), (144, 2176), (300, 384)])
def test_dense_rows_match_the_oracle(
    kernels: EmulatedCluster,
    variant: ClusterVariant,
    n: int,
    k: int,
    rng: np.random.Generator,
    *,
    overlapped: bool,
) -> None:
    run = replace(kernels, overlapped=overlapped).run
    for m in (1, variant.rows - 3, variant.rows):
        check_dense(run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


FAULTS = {
    "the first column block is not waited for": (
        "if (i < share.blocks) tokens.wait_for_block(at.block);",
        "",
        "waited for|uninitialised",
    ),
    "the peer's sums are not waited for": (
        "    tokens.received().wait();\n    return",
        "    return",
        "uninitialised|waited for",
    ),
    "x is read before its kernel has ended": ("  wait_for_previous_kernel();\n", "", "previous kernel"),
    "the peer may not have started": (
        "  cluster_wait();  // the peer has started\n",
        "",
        "cluster",
    ),
    "no barrier before the sum": (
        "  finish.share_with_block(args);\n  __syncthreads();\n",
        "  finish.share_with_block(args);\n",
        "race|uninitialised",
    ),
    "no barrier before x is copied": (
        "  __syncthreads();  // the barriers are there\n",
        "",
        "race|before initialize|uninitialised",
    ),
    "factors not shared": ("  finish.share_with_block(args);\n", "", "uninitialised"),
    "one warp beyond the pairs": ("(warp < pairs ? 1 : 0)", "1", "outside|bounds|not in|race"),
    "sums of two warps in one place": ("partial, strip + warp, lane", "partial, strip, lane", "race"),
    "tokens not clamped": (
        "(token < args.m ? token : args.m - 1)",
        "token",
        "bounds|waited for|uninitialised",
    ),
    "padding of K not cleared": (
        "if (warp == kWarps - 1) tokens.clear_padding(args, share, lane_index);",
        "",
        "uninitialised",
    ),
    "columns beyond N written": (
        "    if (n + i < columns) store_global(y + i, results[i]);\n",
        "    store_global(y + i, results[i]);\n",
        "outside|bounds|not in|race",
    ),
}
FILES = {"columns beyond N written": "results.cuh"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_stopped(fault: str, tmp_path: Path) -> None:
    line, broken, text = FAULTS[fault]
    for folder in ("include", "csrc", "src"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "include" / "sm70" / "gemm" / FILES.get(fault, "cluster_nvfp4.cuh")
    source = file.read_text(encoding="utf-8")
    assert source.count(line) == 1, "the line to break has changed"
    file.write_text(source.replace(line, broken), encoding="utf-8")
    kernels = EmulatedCluster.build(tmp_path / "cache", root=tmp_path)

    rng = np.random.default_rng(70)
    weight = random_checkpoint(rng, 90, 640)
    x = rng.standard_normal((11, 640)).astype(np.float16)
    with pytest.raises(KernelError, match=text):
        kernels.run(ClusterVariant(2, 16), weight, x, None)


def test_plans_use_the_whole_card_and_fit_its_memory() -> None:
    plan = choose_cluster(1, 17408, 5120, H200)
    assert plan is not None
    assert plan.launch.grid == (264, 1)  # two blocks a multiprocessor
    assert plan.strips_each * 132 + plan.clusters_plus1 == 1088
    plan = choose_cluster(16, 5120, 8704, H200)
    assert plan is not None
    assert plan.launch.grid == (132, 1)
    assert plan.launch.shared_bytes <= H200.shared_bytes
    assert plan_cluster(ClusterVariant(2, 16), 16, 5120, 28672, H200) is None  # its activations do not fit
    assert choose_cluster(17, 17408, 5120, H200) is None


def test_the_choice_on_measured_shapes() -> None:
    """As measured on an H200: few weights want few warps, and few rows two blocks on a multiprocessor."""
    chosen = {
        (m, n, k): (plan.launch.kernel, plan.launch.grid[0])
        for m, n, k in [
            *((1, 4096, 4096), (8, 4096, 4096), (16, 2048, 2048)),
            *((3, 14336, 4096), (5, 14336, 4096)),
        ]
        if (plan := choose_cluster(m, n, k, H200)) is not None
    }
    assert chosen == {
        (1, 4096, 4096): ("cluster_nvfp4_t1_w8", 132),
        (8, 4096, 4096): ("cluster_nvfp4_t1_w16", 132),
        (3, 14336, 4096): ("cluster_nvfp4_t1_w8", 264),
        (5, 14336, 4096): ("cluster_nvfp4_t1_w16", 132),
        (16, 2048, 2048): ("cluster_nvfp4_t2_w8", 132),
    }


@pytest.mark.parametrize("n", [1, 16, 17, 2112, 2113, 17408])
def test_every_strip_is_given_out_once(n: int) -> None:
    plan = plan_cluster(ClusterVariant(1, 16), 3, n, 512, H200)
    assert plan is not None
    clusters = plan.launch.grid[0] // 2
    assert plan.strips_each * clusters + plan.clusters_plus1 == -(-n // 16)
    assert plan.clusters_plus1 < clusters
