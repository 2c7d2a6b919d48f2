"""silu(gate) * up in the epilogue of the strip and general kernels, in the emulator and against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_formats import EmulatedFormat
from emulated_general import EmulatedGeneral
from emulated_kernels import EmulatedKernels
from gated_checks import (
    check_gated_dense,
    check_gated_one_hot,
    check_gated_range,
    saturating_checkpoint,
)
from mxfp4_oracle import random_mx
from nvfp4_oracle import random_checkpoint
from sm70_kernels_cuda.kernel_set import MXFP4_KERNELS, NVFP4_HALF_KERNELS, KernelSet
from sm70_kernels_cuda.launch import ATOMS, VARIANTS, Atom, Variant
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant

if TYPE_CHECKING:
    from pathlib import Path

    from nvfp4_oracle import Checkpoint

EACH_ATOM = pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
EACH_STRIP = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kernel)
EACH_GENERAL = pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)
SCALES = np.arange(0x38, 0x71, dtype=np.uint8)  # 1 to 128


@pytest.fixture(scope="session")
def strip(kernel_cache: Path) -> Callable[[Atom], EmulatedKernels]:
    return lambda atom: replace(EmulatedKernels.build(atom, kernel_cache), gated=True)


@pytest.fixture(scope="session")
def general(kernel_cache: Path) -> Callable[[Atom], EmulatedGeneral]:
    return lambda atom: replace(EmulatedGeneral.build(atom, kernel_cache), gated=True)


@EACH_ATOM
@EACH_STRIP
def test_strip_one_hot_is_exact(
    strip: Callable[[Atom], EmulatedKernels], atom: Atom, variant: Variant, rng: np.random.Generator
) -> None:
    check_gated_one_hot(strip(atom).run, variant, saturating_checkpoint(rng, 192, 128, SCALES))


@EACH_ATOM
@EACH_STRIP
@pytest.mark.parametrize(("n", "k"), [(64, 128), (128, 256), (192, 640), (320, 2176)])
def test_strip_dense_rows_match_the_oracle(
    strip: Callable[[Atom], EmulatedKernels],
    atom: Atom,
    variant: Variant,
    n: int,
    k: int,
    rng: np.random.Generator,
) -> None:
    rows = 8 * variant.token_tiles
    for m in {1, rows - 1, rows}:
        check_gated_dense(strip(atom).run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m != 1)


@EACH_ATOM
@EACH_GENERAL
def test_general_one_hot_is_exact(
    general: Callable[[Atom], EmulatedGeneral], atom: Atom, variant: GeneralVariant, rng: np.random.Generator
) -> None:
    check_gated_one_hot(general(atom).run, variant, saturating_checkpoint(rng, 192, 48, SCALES))


@EACH_ATOM
@EACH_GENERAL
@pytest.mark.parametrize("m", [1, 7, 8, 9, 16, 33, 70])
@pytest.mark.parametrize(("n", "k"), [(64, 128), (128, 400), (192, 256)])
def test_general_dense_rows_match_the_oracle(
    general: Callable[[Atom], EmulatedGeneral], atom: Atom, variant: GeneralVariant, m: int, n: int, k: int
) -> None:
    rng = np.random.default_rng([m, n, k])
    check_gated_dense(general(atom).run, variant, random_checkpoint(rng, n, k), m, rng, with_bias=m % 2 == 1)


@EACH_ATOM
def test_the_whole_range_of_the_gate(
    strip: Callable[[Atom], EmulatedKernels], general: Callable[[Atom], EmulatedGeneral], atom: Atom
) -> None:
    check_gated_range(strip(atom).run, Variant(1, 8))
    check_gated_range(general(atom).run, GeneralVariant(4, 2, 4))


FORMATS: dict[str, tuple[KernelSet, Callable[[np.random.Generator, int, int], Checkpoint]]] = {
    "mxfp4": (MXFP4_KERNELS, random_mx),
    "nvfp4_half": (NVFP4_HALF_KERNELS, random_checkpoint),
}


@EACH_ATOM
@pytest.mark.parametrize("name", FORMATS)
def test_the_other_layouts(kernel_cache: Path, name: str, atom: Atom, rng: np.random.Generator) -> None:
    kernel_set, random = FORMATS[name]
    kernels = replace(EmulatedFormat.build(atom, kernel_set, kernel_cache), gated=True)
    variants: list[Variant | GeneralVariant] = [*kernel_set.strip, *kernel_set.general_for(atom)]
    for variant in variants:
        for n, k, m in ((64, 128, 1), (192, 640, 8 * variant.token_tiles - 1)):
            check_gated_dense(kernels.run, variant, random(rng, n, k), m, rng, with_bias=m > 1)
