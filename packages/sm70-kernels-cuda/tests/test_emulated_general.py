"""Every variant of the general NVFP4 kernel, from its CUDA source, in the emulator and against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_general import EmulatedGeneral
from emulated_kernels import pack
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.launch import ATOMS, Atom
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant, choose_general

if TYPE_CHECKING:
    from pathlib import Path

EACH_ATOM = pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
EACH_VARIANT = pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)


@pytest.fixture(scope="session")
def kernels(kernel_cache: Path) -> dict[str, EmulatedGeneral]:
    return {atom.name: EmulatedGeneral.build(atom, kernel_cache) for atom in ATOMS}


@EACH_ATOM
@EACH_VARIANT
@pytest.mark.parametrize("k", [48, 320])
def test_one_hot_returns_the_decoded_weight(
    kernels: dict[str, EmulatedGeneral], atom: Atom, variant: GeneralVariant, k: int, rng: np.random.Generator
) -> None:
    check_one_hot(kernels[atom.name].run, variant, random_checkpoint(rng, 35, k))


@EACH_ATOM
def test_every_code_under_every_scale(kernels: dict[str, EmulatedGeneral], atom: Atom) -> None:
    check_one_hot(kernels[atom.name].run, GeneralVariant(8, 4, 2), every_code_and_scale())


@EACH_ATOM
@EACH_VARIANT
@pytest.mark.parametrize("m", [1, 7, 8, 9, 33, 64, 65, 130])
@pytest.mark.parametrize(("n", "k"), [(1, 16), (17, 48), (64, 64), (100, 576), (17, 640)])
def test_dense_rows_match_the_oracle(
    kernels: dict[str, EmulatedGeneral], atom: Atom, variant: GeneralVariant, m: int, n: int, k: int
) -> None:
    rng = np.random.default_rng([m, n, k])
    check_dense(kernels[atom.name].run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m % 2 == 1)


@EACH_ATOM
@EACH_VARIANT
def test_several_rounds_of_k(
    kernels: dict[str, EmulatedGeneral], atom: Atom, variant: GeneralVariant, rng: np.random.Generator
) -> None:
    """2304 columns are nine layout blocks: more than the warps of any variant take at once."""
    for n, k in ((100, 1536), (300, 2304)):
        check_dense(kernels[atom.name].run, variant, random_checkpoint(rng, n, k), 33, rng, with_bias=True)


@EACH_ATOM
def test_longest_k(kernels: dict[str, EmulatedGeneral], atom: Atom, rng: np.random.Generator) -> None:
    weight = random_checkpoint(rng, 17, 17408)
    variant = choose_general(9, 17, 17408, atom, Card(80, 64 * 1024))
    check_dense(kernels[atom.name].run, variant, weight, 9, rng, with_bias=True)


@EACH_ATOM
@EACH_VARIANT
def test_padding_of_the_layout_is_never_used(
    kernels: dict[str, EmulatedGeneral], atom: Atom, variant: GeneralVariant, rng: np.random.Generator
) -> None:
    """Fill the rows and columns beyond N and K with 0xFF: the output must keep its bits."""
    weight = random_checkpoint(rng, 20, 80)
    x = rng.standard_normal((5, 80)).astype(np.float16)
    clean = kernels[atom.name].run(variant, weight, x, None)
    full = random_checkpoint(rng, 32, 256)
    full.codes[:], full.scales[:] = 0xFF, 0xFF
    full.codes[:20, :40], full.scales[:20, :5] = weight.codes, weight.scales
    result = kernels[atom.name].run_packed(variant, weight, pack(full), x, None)
    assert np.array_equal(result.view(np.uint16), clean.view(np.uint16))


@EACH_ATOM
def test_nothing_of_x_spreads_to_other_rows(
    kernels: dict[str, EmulatedGeneral], atom: Atom, rng: np.random.Generator
) -> None:
    """A NaN in one row of x makes that row of y NaN, and no other."""
    x = rng.standard_normal((67, 192)).astype(np.float16)
    x[40, 100] = np.nan
    result = kernels[atom.name].run(GeneralVariant(4, 2, 4), random_checkpoint(rng, 40, 192), x, None)
    assert np.isnan(result).any(axis=1).tolist() == [row == 40 for row in range(67)]
    assert np.isnan(result[40]).all()
