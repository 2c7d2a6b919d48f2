"""Every built variant of the general NVFP4 kernel on a card, against float64; runs with `nox -s gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from atom_binary import OLDER_ATOMS, atom_binary
from gpu_kernels import PackedWeight, guarded_output
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.driver import Module
from sm70_kernels_cuda.launch import Atom, atom_of
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant, choose_general
from sm70_kernels_cuda.nvfp4_general import GeneralKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.gpu

EACH_VARIANT = pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)


@dataclass(frozen=True)
class GpuGeneralKernels:
    """The general kernels of one binary, run like the emulated ones."""

    kernels: GeneralKernels
    atom: Atom
    card: Card

    def run(
        self,
        variant: GeneralVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one variant on a NaN-poisoned output between two guards, which must survive."""
        if variant.shared_bytes(self.atom) > self.card.shared_bytes:
            pytest.skip(f"{variant.kernel} needs more shared memory than this card has")
        packed = PackedWeight.of(weight)
        rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
        device_bias = None if bias is None else torch.from_numpy(bias).cuda()
        with guarded_output(x.shape[0], weight.shape[0]) as y:
            self.kernels.run(variant, rows, packed.weight, packed.row_factor, device_bias, y)
        return np.asarray(y.cpu().numpy())


@pytest.fixture(scope="module", params=["own-atom", *OLDER_ATOMS])
def kernels(request: pytest.FixtureRequest) -> GpuGeneralKernels:
    properties = torch.cuda.get_device_properties(0)
    card = Card(properties.multi_processor_count, properties.shared_memory_per_block_optin)
    if request.param == "own-atom":
        module, atom = binary.module(), atom_of(properties.major * 10 + properties.minor)
    else:
        atom = OLDER_ATOMS[request.param]
        module = Module(atom_binary(request.config, atom))
    return GpuGeneralKernels(GeneralKernels(module, atom), atom, card)


@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: GpuGeneralKernels, variant: GeneralVariant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels.run, variant, random_checkpoint(rng, 75, 336))


def test_every_code_under_every_scale(kernels: GpuGeneralKernels) -> None:
    check_one_hot(kernels.run, GeneralVariant(8, 4, 2), every_code_and_scale())


@EACH_VARIANT
@pytest.mark.parametrize(("n", "k"), [(1, 16), (17, 48), (64, 64), (100, 576), (1000, 1536), (200, 17408)])
def test_dense_rows_match_the_oracle(
    kernels: GpuGeneralKernels, variant: GeneralVariant, n: int, k: int, rng: np.random.Generator
) -> None:
    weight = random_checkpoint(rng, n, k)
    for m in (1, 7, 8, 9, 33, 64, 65, 130):
        check_dense(kernels.run, variant, weight, m, rng, with_bias=m % 2 == 1)


@pytest.mark.parametrize("m", [1, 40, 64, 200, 513])
def test_the_chosen_variant_matches_the_oracle(
    kernels: GpuGeneralKernels, m: int, rng: np.random.Generator
) -> None:
    n, k = 1111, 2000
    variant = choose_general(m, n, k, kernels.atom, kernels.card)
    check_dense(kernels.run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=True)
