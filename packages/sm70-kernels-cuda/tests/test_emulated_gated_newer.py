"""silu(gate) * up by the cluster and warpgroup kernels, in the emulator and against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_cluster import EmulatedCluster
from emulated_warpgroup import CARD, EmulatedWarpgroup
from gated_checks import (
    check_gated_dense,
    check_gated_one_hot,
    check_gated_range,
    saturating_checkpoint,
)
from nvfp4_oracle import random_checkpoint
from sm70_kernels_cuda.launch_cluster import (
    CLUSTER_VARIANTS,
    Card,
    ClusterVariant,
    choose_cluster,
    plan_cluster,
)
from sm70_kernels_cuda.launch_warpgroup import WARPGROUP_VARIANTS, WarpgroupVariant, plan_warpgroup

if TYPE_CHECKING:
    from pathlib import Path

EACH_CLUSTER = pytest.mark.parametrize("variant", CLUSTER_VARIANTS, ids=lambda variant: variant.kernel)
EACH_WARPGROUP = pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)
SCALES = np.arange(0x38, 0x71, dtype=np.uint8)  # 1 to 128


@pytest.fixture(scope="session")
def clusters(kernel_cache: Path) -> EmulatedCluster:
    return replace(EmulatedCluster.build(kernel_cache), gated=True)


@pytest.fixture(scope="session")
def warpgroups(kernel_cache: Path) -> EmulatedWarpgroup:
    return replace(EmulatedWarpgroup.build(kernel_cache), gated=True)


@EACH_CLUSTER
def test_cluster_one_hot_is_exact(
    clusters: EmulatedCluster, variant: ClusterVariant, rng: np.random.Generator
) -> None:
    check_gated_one_hot(clusters.run, variant, saturating_checkpoint(rng, 320, 128, SCALES))


@EACH_CLUSTER
@pytest.mark.parametrize("overlapped", [True, False], ids=["overlapped", "alone"])
@pytest.mark.parametrize(("n", "k"), [(64, 128), (192, 640), (448, 2176), (1088, 256)])
def test_cluster_dense_rows_match_the_oracle(
    clusters: EmulatedCluster,
    variant: ClusterVariant,
    n: int,
    k: int,
    rng: np.random.Generator,
    *,
    overlapped: bool,
) -> None:
    run = replace(clusters, overlapped=overlapped).run
    for m in (1, variant.rows - 1, variant.rows):
        check_gated_dense(run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


def test_cluster_takes_the_whole_range_of_the_gate(clusters: EmulatedCluster) -> None:
    check_gated_range(clusters.run, ClusterVariant(1, 8))


@pytest.mark.parametrize("n", [64, 2112, 2176, 34816])
def test_every_pair_of_strips_is_given_out_once(n: int) -> None:
    plan = plan_cluster(ClusterVariant(1, 16), 3, n, 512, Card(132, 232448), gated=True)
    assert plan is not None
    clusters = plan.launch.grid[0] // 2
    assert plan.strips_each * clusters + plan.clusters_plus1 == n // 32
    assert plan.clusters_plus1 < clusters


def test_the_choice_plans_pairs() -> None:
    plan = choose_cluster(1, 34816, 5120, Card(132, 232448), gated=True)
    assert plan is not None
    assert plan.strips_each * plan.launch.grid[0] // 2 + plan.clusters_plus1 == 34816 // 32


@EACH_WARPGROUP
@pytest.mark.parametrize("split", [1, 3])
def test_warpgroup_one_hot_is_exact(
    warpgroups: EmulatedWarpgroup, variant: WarpgroupVariant, split: int, rng: np.random.Generator
) -> None:
    weight = saturating_checkpoint(rng, 192, 528, SCALES)
    if plan_warpgroup(variant, split, variant.tokens, *weight.shape, CARD) is not None:
        check_gated_one_hot(replace(warpgroups, split=split).run, variant, weight)


@EACH_WARPGROUP
@pytest.mark.parametrize(
    ("n", "k", "split"), [(64, 128, 1), (192, 256, 1), (128, 400, 2), (448, 784, 3), (320, 1552, 6)]
)
def test_warpgroup_dense_rows_match_the_oracle(
    warpgroups: EmulatedWarpgroup,
    variant: WarpgroupVariant,
    n: int,
    k: int,
    split: int,
    rng: np.random.Generator,
) -> None:
    weight = random_checkpoint(rng, n, k)
    for m in (1, variant.tokens + 5):
        if plan_warpgroup(variant, split, m, n, k, CARD) is not None:
            run = replace(warpgroups, split=split).run
            check_gated_dense(run, variant, weight, m, rng, with_bias=m != 1)


def test_warpgroup_takes_the_whole_range_of_the_gate(warpgroups: EmulatedWarpgroup) -> None:
    check_gated_range(warpgroups.run, WARPGROUP_VARIANTS[0])
