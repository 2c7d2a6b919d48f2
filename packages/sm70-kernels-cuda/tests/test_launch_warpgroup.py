"""Plans of the warpgroup kernels: pure arithmetic."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import pytest

from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_warpgroup import (
    MOST_SPLIT,
    WARPGROUP_VARIANTS,
    WarpgroupVariant,
    choose_warpgroup,
    plan_warpgroup,
)

MEASURED = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "h200" / "warpgroup_kernels.csv"
# Read from the driver of an H200.
CLUSTERS = {(1, 2): 66, (1, 3): 39, (1, 4): 30, (1, 5): 22, (1, 6): 17} | {
    (2, 2): 132,
    (2, 3): 79,
    (2, 4): 62,
    (2, 5): 47,
    (2, 6): 39,
}
H200 = Card(132, 232448, CLUSTERS)
SHAPES = [
    (5120, 1536),
    (8704, 5120),
    (5120, 4352),
    (4096, 5120),
    (17408, 5120),
    (5120, 8704),
    (4096, 4096),
    (14336, 4096),
]


@pytest.mark.parametrize("m", [1, 17, 32, 33, 64, 65, 512, 4000])
@pytest.mark.parametrize(("n", "k"), [*SHAPES, (1, 16), (16, 256), (100000, 272), (48, 65536)])
def test_a_plan_exists_for_every_size_and_fits(m: int, n: int, k: int) -> None:
    plan = choose_warpgroup(m, n, k, H200)
    assert plan.launch.shared_bytes <= H200.shared_bytes
    assert plan.launch.cluster <= -(-k // 256)
    strip = plan.launch.grid[0] // plan.launch.cluster // plan.token_blocks
    assert plan.token_blocks * plan.block_tokens >= m
    assert strip * plan.launch.cluster * plan.token_blocks == plan.launch.grid[0]
    assert plan.packed_bytes >= m * k * 2


def test_all_rows_share_one_decoded_weight_up_to_64() -> None:
    for n, k in SHAPES:
        assert choose_warpgroup(32, n, k, H200).block_tokens == 32
        assert choose_warpgroup(33, n, k, H200).block_tokens == 64
        assert choose_warpgroup(64, n, k, H200).token_blocks == 1


def test_the_choice_on_measured_shapes() -> None:
    """As measured on an H200: small weights split K, a wide one takes strips that make one wave."""
    small = choose_warpgroup(32, 4096, 5120, H200)
    assert (small.launch.kernel, small.launch.cluster) == ("warpgroup_nvfp4_t32_g2_s1", 5)
    wide = choose_warpgroup(64, 17408, 5120, H200)
    assert (wide.launch.kernel, wide.launch.grid) == ("warpgroup_nvfp4_t64_g5_s1", (110, 1))


def test_the_choice_is_close_to_the_best_of_the_measured_plans() -> None:
    times: dict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
    with MEASURED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            n, k = map(int, row["shape"].split("x"))
            times[int(row["m"]), n, k][row["variant"]] = float(row["us_median"])
    assert len(times) == 3 * len(SHAPES)
    losses = {}
    for (m, n, k), measured in times.items():
        del measured["ours"]  # what was chosen then
        plan = choose_warpgroup(m, n, k, H200)
        losses[m, n, k] = measured[f"{plan.launch.kernel}_k{plan.launch.cluster}"] / min(measured.values())
    assert max(losses.values()) < 1.05, losses
    assert math.prod(losses.values()) ** (1 / len(losses)) < 1.01, losses


def test_a_card_without_clusters_gets_none() -> None:
    for n, k in SHAPES:
        assert choose_warpgroup(32, n, k, Card(132, 232448)).launch.cluster == 1


@pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)
@pytest.mark.parametrize("split", range(1, MOST_SPLIT + 1))
def test_parts_of_shared_memory_do_not_overlap(variant: WarpgroupVariant, split: int) -> None:
    plan = plan_warpgroup(variant, split, variant.tokens, 4096, 4096, H200)
    if plan is None:  # more than a block may have
        assert split > 1
        return
    assert plan.received_offset >= max(plan.stages * variant.stage_bytes, variant.sum_bytes)
    rows = -(-variant.strip // 8 // split) * 8
    assert plan.barriers_offset >= plan.received_offset + (split - 1) * variant.tokens * rows * 4
    assert plan.launch.shared_bytes >= plan.barriers_offset + 8 * (2 * plan.stages + 1)
