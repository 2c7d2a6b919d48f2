"""silu(gate) * up on a card, by every kernel that it has, against float64; runs with `nox -s gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from atom_binary import OLDER_ATOMS, atom_binary
from gated_checks import (
    assert_gated,
    check_gated_dense,
    check_gated_one_hot,
    check_gated_range,
    saturating_checkpoint,
)
from gpu_kernels import PackedWeight, guarded_output
from nvfp4_oracle import Checkpoint, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.driver import Module
from sm70_kernels_cuda.launch import VARIANTS, Atom, Variant, atom_of, choose_variant
from sm70_kernels_cuda.launch_cluster import (
    CLUSTER_VARIANTS,
    Card,
    ClusterVariant,
    has_clusters,
    plan_cluster,
)
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant
from sm70_kernels_cuda.launch_warpgroup import (
    MOST_SPLIT,
    WARPGROUP_VARIANTS,
    WarpgroupVariant,
    plan_warpgroup,
)
from sm70_kernels_cuda.modules import PackedLinear
from sm70_kernels_cuda.nvfp4 import Nvfp4Kernels
from sm70_kernels_cuda.nvfp4_cluster import ClusterKernels
from sm70_kernels_cuda.nvfp4_general import GeneralKernels
from sm70_kernels_cuda.nvfp4_warpgroup import WarpgroupKernels, with_clusters

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    Enqueue = Callable[[Tensor, PackedWeight, Tensor | None, Tensor], None]

pytestmark = pytest.mark.gpu

SCALES = np.arange(0x38, 0x71, dtype=np.uint8)  # 1 to 128
SIZES = [(64, 128), (192, 640), (1088, 1536)]


def _guarded(
    enqueue: Enqueue, weight: Checkpoint, x: NDArray[np.float16], bias: NDArray[np.float16] | None
) -> NDArray[np.float16]:
    """Enqueue one call on a NaN-poisoned output between two guards, which must survive."""
    rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
    device_bias = None if bias is None else torch.from_numpy(bias).cuda()
    packed = PackedWeight.of(weight)
    with guarded_output(x.shape[0], weight.shape[0] // 2) as y:
        enqueue(rows, packed, device_bias, y)
    return np.asarray(y.cpu().numpy())


def _card() -> Card:
    properties = torch.cuda.get_device_properties(0)
    return Card(properties.multi_processor_count, properties.shared_memory_per_block_optin)


@pytest.fixture(scope="module", params=["own-atom", *OLDER_ATOMS])
def portable(request: pytest.FixtureRequest) -> Nvfp4Kernels:
    if request.param == "own-atom":
        major, minor = torch.cuda.get_device_capability()
        module, atom = binary.module(), atom_of(10 * major + minor)
    else:
        atom = OLDER_ATOMS[request.param]
        module = Module(atom_binary(request.config, atom))
    return _portable(module, atom)


def _portable(module: Module, atom: Atom) -> Nvfp4Kernels:
    def choose(m: int, n: int, k: int, qpn2: bool) -> Variant:
        return choose_variant(m, k, atom)

    return Nvfp4Kernels(module, atom, GeneralKernels(module, atom), choose)


def test_strip_and_general_kernels(portable: Nvfp4Kernels, rng: np.random.Generator) -> None:
    def run(
        variant: Variant | GeneralVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        def enqueue(rows: Tensor, packed: PackedWeight, device_bias: Tensor | None, y: Tensor) -> None:
            operands = (rows, packed.weight, packed.row_factor, device_bias, y)
            if isinstance(variant, Variant):
                portable.run(variant, *operands)
            else:
                portable.general.run(variant, *operands)

        return _guarded(enqueue, weight, x, bias)

    variants: list[Variant | GeneralVariant] = [*VARIANTS, *GENERAL_VARIANTS]
    for variant in variants:
        check_gated_one_hot(run, variant, saturating_checkpoint(rng, 192, 128, SCALES))
        check_gated_range(run, variant)
        for n, k in SIZES:
            for m in (1, 8 * variant.token_tiles - 1):
                check_gated_dense(run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


@pytest.mark.parametrize("variant", CLUSTER_VARIANTS, ids=lambda variant: variant.kernel)
def test_cluster_kernels(variant: ClusterVariant, rng: np.random.Generator) -> None:
    if not has_clusters(torch.cuda.get_device_capability()[0]):
        pytest.skip("needs compute capability 9.x or 10.x")
    card = _card()
    kernels = ClusterKernels(binary.module(), card)

    def run(
        variant: ClusterVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        def enqueue(rows: Tensor, packed: PackedWeight, device_bias: Tensor | None, y: Tensor) -> None:
            plan = plan_cluster(variant, x.shape[0], *weight.shape, card, gated=True)
            assert plan is not None
            kernels.run(plan, rows, packed.weight, packed.row_factor, device_bias, y)

        return _guarded(enqueue, weight, x, bias)

    check_gated_one_hot(run, variant, saturating_checkpoint(rng, 192, 128, SCALES))
    check_gated_range(run, variant)
    for n, k in (*SIZES, (9216, 640)):
        for m in (1, variant.rows - 1, variant.rows):
            check_gated_dense(run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


@pytest.mark.parametrize("variant", WARPGROUP_VARIANTS, ids=lambda variant: variant.kernel)
def test_warpgroup_kernels(variant: WarpgroupVariant, rng: np.random.Generator) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs compute capability 9.0")
    card = with_clusters(_card(), binary.module(), 0)
    kernels = WarpgroupKernels(binary.module(), card)

    for split in (1, 2, 3, MOST_SPLIT):

        def run(
            variant: WarpgroupVariant,
            weight: Checkpoint,
            x: NDArray[np.float16],
            bias: NDArray[np.float16] | None,
            split: int = split,
        ) -> NDArray[np.float16]:
            def enqueue(rows: Tensor, packed: PackedWeight, device_bias: Tensor | None, y: Tensor) -> None:
                plan = plan_warpgroup(variant, split, x.shape[0], *weight.shape, card)
                assert plan is not None
                kernels.run(plan, rows, packed.weight, packed.row_factor, device_bias, y)

            return _guarded(enqueue, weight, x, bias)

        k = 256 * split + 144
        if plan_warpgroup(variant, split, variant.tokens, 192, k, card) is None:
            continue
        check_gated_one_hot(run, variant, saturating_checkpoint(rng, 192, k, SCALES))
        for n in (64, 1088):
            for m in (1, variant.tokens + 5):
                check_gated_dense(run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


@pytest.mark.parametrize(("k", "qpn2"), [(640, True), (400, False)])
def test_every_row_count_of_the_operator(k: int, qpn2: bool, rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 192, k)
    packed = PackedWeight.of(checkpoint)
    layer = PackedLinear(packed.weight, packed.row_factor, k, qpn2=qpn2)
    bias = rng.standard_normal(192).astype(np.float16)
    for m in (*range(1, 35), 64, 100, 513, 1024, 1100):
        x = rng.standard_normal((m, k)).astype(np.float16)
        result = layer.gated(torch.from_numpy(x).cuda(), torch.from_numpy(bias).cuda()).cpu().numpy()
        assert_gated(result, checkpoint, x, bias, f"M={m}")


@pytest.mark.parametrize("m", [1, 8, 16, 20, 40, 1100])
def test_graph_replay_equals_eager(m: int, rng: np.random.Generator) -> None:
    packed = PackedWeight.of(random_checkpoint(rng, 192, 640))
    layer = PackedLinear(packed.weight, packed.row_factor, 640, qpn2=True)
    x = torch.randn(m, 640, device="cuda").half()
    layer.gated(x)  # loads the kernel outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer.gated(x)
    x.copy_(torch.randn(m, 640, device="cuda").half())
    y.fill_(float("nan"))
    graph.replay()
    assert torch.equal(y, layer.gated(x))


def test_opcheck(rng: np.random.Generator) -> None:
    packed = PackedWeight.of(random_checkpoint(rng, 192, 640))
    operator = torch.ops.sm70.nvfp4_gated_linear.default
    for m in (4, 40):
        x = torch.randn(m, 640, device="cuda").half()
        torch.library.opcheck(operator, (x, packed.weight, packed.row_factor, None, 640))
