"""The cluster kernels on a card of capability 9.x or 10.x, against float64; runs with `nox -s gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpu_kernels import PackedWeight, guarded_output
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.launch_cluster import (
    CLUSTER_VARIANTS,
    Card,
    ClusterVariant,
    has_clusters,
    plan_cluster,
)
from sm70_kernels_cuda.nvfp4_cluster import ClusterKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.gpu

EACH_VARIANT = pytest.mark.parametrize("variant", CLUSTER_VARIANTS, ids=lambda variant: variant.kernel)


@dataclass(frozen=True)
class GpuClusterKernels:
    """The cluster kernels, run like the other ones."""

    kernels: ClusterKernels
    card: Card

    def run(
        self,
        variant: ClusterVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        packed = PackedWeight.of(weight)
        (n, k), m = weight.shape, x.shape[0]
        plan = plan_cluster(variant, m, n, k, self.card)
        assert plan is not None
        rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
        device_bias = None if bias is None else torch.from_numpy(bias).cuda()
        with guarded_output(m, n) as y:
            self.kernels.run(plan, rows, packed.weight, packed.row_factor, device_bias, y)
        return np.asarray(y.cpu().numpy())


@pytest.fixture(scope="module", params=["whole-card", "few-clusters"])
def kernels(request: pytest.FixtureRequest) -> GpuClusterKernels:
    properties = torch.cuda.get_device_properties(0)
    if not has_clusters(properties.major):
        pytest.skip("needs compute capability 9.x or 10.x")
    multiprocessors = properties.multi_processor_count if request.param == "whole-card" else 6
    card = Card(multiprocessors, properties.shared_memory_per_block_optin)
    return GpuClusterKernels(ClusterKernels(binary.module(), card), card)


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: GpuClusterKernels, variant: ClusterVariant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels.run, variant, random_checkpoint(rng, 75, 384))


@EACH_VARIANT
def test_every_code_under_every_scale(kernels: GpuClusterKernels, variant: ClusterVariant) -> None:
    check_one_hot(kernels.run, variant, every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize(("n", "k"), [(1, 128), (97, 640), (1000, 1536), (5120, 512), (200, 8704)])
def test_dense_rows_match_the_oracle(
    kernels: GpuClusterKernels, variant: ClusterVariant, n: int, k: int, rng: np.random.Generator
) -> None:
    weight = random_checkpoint(rng, n, k)
    for m in (1, variant.rows - 3, variant.rows):
        check_dense(kernels.run, variant, weight, m, rng, with_bias=m != 1)
