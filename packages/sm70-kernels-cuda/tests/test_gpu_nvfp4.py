"""Every built variant of the NVFP4 kernels on a card, against float64; runs with `nox -s gpu`."""

from __future__ import annotations

import numpy as np
import pytest

from atom_binary import OLDER_ATOMS, atom_binary
from gpu_kernels import GpuKernels, PackedWeight
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.driver import Module
from sm70_kernels_cuda.launch import VARIANTS, Variant, choose_variant
from sm70_kernels_cuda.nvfp4 import Nvfp4Kernels, kernels_for
from sm70_kernels_cuda.nvfp4_general import GeneralKernels

pytestmark = pytest.mark.gpu

EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kernel)


@pytest.fixture(scope="module", params=["own-atom", *OLDER_ATOMS])
def kernels(request: pytest.FixtureRequest) -> GpuKernels:
    if request.param == "own-atom":
        return GpuKernels(kernels_for(0))
    atom = OLDER_ATOMS[request.param]
    module = Module(atom_binary(request.config, atom))

    def strip(m: int, n: int, k: int, qpn2: bool) -> Variant:
        return choose_variant(m, k, atom)

    return GpuKernels(Nvfp4Kernels(module, atom, GeneralKernels(module, atom), strip))


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: GpuKernels, variant: Variant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels.run, variant, random_checkpoint(rng, 75, 384))


def test_every_code_under_every_scale(kernels: GpuKernels) -> None:
    check_one_hot(kernels.run, Variant(4, 8), every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize(("n", "k"), [(1, 128), (97, 640), (1000, 1536), (200, 17408)])
def test_dense_rows_match_the_oracle(
    kernels: GpuKernels, variant: Variant, n: int, k: int, rng: np.random.Generator
) -> None:
    rows = 8 * variant.token_tiles
    weight = random_checkpoint(rng, n, k)
    for m in (1, rows - 3, rows):
        check_dense(kernels.run, variant, weight, m, rng, with_bias=m != 1)


def test_dequantize_rounds_once(rng: np.random.Generator) -> None:
    weight = random_checkpoint(rng, 75, 640)
    packed = PackedWeight.of(weight)
    dense = kernels_for(0).dequantize(packed.weight, packed.row_factor, 640)
    assert np.array_equal(dense.cpu().numpy().view(np.uint16), weight.rounded().view(np.uint16))
