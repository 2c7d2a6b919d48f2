"""Every variant of the NVFP4 kernels, from its own CUDA source, in the emulator and against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_kernels import EmulatedKernels
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.launch import ATOMS, NATIVE_ROWS, VARIANTS, VOLTA_ATOM, Atom, Variant

if TYPE_CHECKING:
    from pathlib import Path

EACH_ATOM = pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kernel)


@pytest.fixture(scope="session")
def kernels(kernel_cache: Path) -> dict[str, EmulatedKernels]:
    return {atom.name: EmulatedKernels.build(atom, kernel_cache) for atom in ATOMS}


@EACH_ATOM
@EACH_VARIANT
def test_one_hot_returns_the_decoded_weight(
    kernels: dict[str, EmulatedKernels], atom: Atom, variant: Variant, rng: np.random.Generator
) -> None:
    check_one_hot(kernels[atom.name].run, variant, random_checkpoint(rng, 35, 128))


@EACH_ATOM
def test_every_code_under_every_scale(kernels: dict[str, EmulatedKernels], atom: Atom) -> None:
    check_one_hot(kernels[atom.name].run, Variant(4, 8), every_code_and_scale())


@EACH_ATOM
@EACH_VARIANT
@pytest.mark.parametrize(("n", "k"), [(1, 128), (64, 256), (97, 640), (144, 2176)])
def test_dense_rows_match_the_oracle(
    kernels: dict[str, EmulatedKernels],
    atom: Atom,
    variant: Variant,
    n: int,
    k: int,
    rng: np.random.Generator,
) -> None:
    rows = 8 * variant.token_tiles
    for m in {1, rows - 3, rows}:
        check_dense(kernels[atom.name].run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


@EACH_ATOM
def test_every_row_count(kernels: dict[str, EmulatedKernels], atom: Atom, rng: np.random.Generator) -> None:
    weight = random_checkpoint(rng, 33, 256)
    for m in range(1, NATIVE_ROWS + 1):
        variant = next(item for item in VARIANTS if 8 * item.token_tiles >= m)
        check_dense(kernels[atom.name].run, variant, weight, m, rng, with_bias=False)


@EACH_ATOM
def test_longest_k(kernels: dict[str, EmulatedKernels], atom: Atom, rng: np.random.Generator) -> None:
    weight = random_checkpoint(rng, 16, 17408)
    check_dense(kernels[atom.name].run, Variant(1, 16), weight, 3, rng, with_bias=True)


@EACH_ATOM
def test_padding_of_the_layout_is_never_used(
    kernels: dict[str, EmulatedKernels],
    atom: Atom,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fill the rows and columns beyond N and K with 0xFF: the output must keep its bits."""
    import emulated_kernels

    weight = random_checkpoint(rng, 20, 128)
    x = rng.standard_normal((5, 128)).astype(np.float16)
    clean = kernels[atom.name].run(Variant(1, 4), weight, x, None)
    full = random_checkpoint(rng, 32, 256)
    full.codes[:], full.scales[:] = 0xFF, 0xFF
    full.codes[:20, :64], full.scales[:20, :8] = weight.codes, weight.scales
    dirty = emulated_kernels.pack(full)
    monkeypatch.setattr(emulated_kernels, "pack", lambda _: dirty)
    result = kernels[atom.name].run(Variant(1, 4), weight, x, None)
    assert np.array_equal(result.view(np.uint16), clean.view(np.uint16))


@pytest.mark.parametrize(("n", "k"), [(1, 128), (35, 192), (64, 512)])
def test_dequantize_rounds_once(
    kernels: dict[str, EmulatedKernels], n: int, k: int, rng: np.random.Generator
) -> None:
    weight = random_checkpoint(rng, n, k)
    dense = kernels[VOLTA_ATOM.name].dequantize(weight)
    assert np.array_equal(dense.view(np.uint16), weight.rounded().view(np.uint16))
