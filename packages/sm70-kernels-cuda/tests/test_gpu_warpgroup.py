"""The warpgroup kernels on a card of capability 9.0, against float64; runs with `nox -s gpu`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpu_kernels import PackedWeight, guarded_output
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_warpgroup import (
    MOST_SPLIT,
    WARPGROUP_VARIANTS,
    WarpgroupVariant,
    plan_warpgroup,
)
from sm70_kernels_cuda.nvfp4_warpgroup import WarpgroupKernels, with_clusters

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.gpu

EACH_VARIANT = pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)


@dataclass(frozen=True)
class GpuWarpgroupKernels:
    """The warpgroup kernels, run like the other ones.

    Attributes:
        kernels: Those of the package's binary.
        card: The device.
        split: Blocks of a cluster, at most as many as K has blocks.
    """

    kernels: WarpgroupKernels
    card: Card
    split: int = 1

    def run(
        self,
        variant: WarpgroupVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        packed = PackedWeight.of(weight)
        (n, k), m = weight.shape, x.shape[0]
        plan = plan_warpgroup(variant, min(self.split, -(-k // 256)), m, n, k, self.card)
        assert plan is not None
        rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
        device_bias = None if bias is None else torch.from_numpy(bias).cuda()
        with guarded_output(m, n) as y:
            self.kernels.run(plan, rows, packed.weight, packed.row_factor, device_bias, y)
        return np.asarray(y.cpu().numpy())


@pytest.fixture(scope="module")
def kernels() -> GpuWarpgroupKernels:
    properties = torch.cuda.get_device_properties(0)
    if (properties.major, properties.minor) != (9, 0):
        pytest.skip("needs compute capability 9.0")
    card = Card(properties.multi_processor_count, properties.shared_memory_per_block_optin)
    card = with_clusters(card, binary.module(), 0)
    return GpuWarpgroupKernels(WarpgroupKernels(binary.module(), card), card)


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: GpuWarpgroupKernels, variant: WarpgroupVariant, rng: np.random.Generator
) -> None:
    check_one_hot(replace(kernels, split=2).run, variant, random_checkpoint(rng, 75, 400))


@EACH_VARIANT
def test_every_code_under_every_scale(kernels: GpuWarpgroupKernels, variant: WarpgroupVariant) -> None:
    check_one_hot(kernels.run, variant, every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize(("n", "k"), [(1, 16), (97, 656), (1000, 1536), (5120, 528), (200, 8704)])
def test_dense_rows_match_the_oracle(
    kernels: GpuWarpgroupKernels, variant: WarpgroupVariant, n: int, k: int, rng: np.random.Generator
) -> None:
    weight = random_checkpoint(rng, n, k)
    for split in (1, 2, MOST_SPLIT):
        for m in (1, variant.tokens - 3, variant.tokens + 5):
            if plan_warpgroup(variant, min(split, -(-k // 256)), m, n, k, kernels.card) is not None:
                check_dense(replace(kernels, split=split).run, variant, weight, m, rng, with_bias=m != 1)


def test_the_driver_counts_clusters(kernels: GpuWarpgroupKernels) -> None:
    for (depth, split), count in kernels.card.clusters.items():
        assert 0 < count * split <= depth * kernels.card.multiprocessors
