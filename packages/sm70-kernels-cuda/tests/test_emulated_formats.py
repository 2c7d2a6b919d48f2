"""MXFP4, and NVFP4 with FP16 factors: every kernel from its source, in the emulator and against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from emulated_formats import EmulatedFormat, Resident, resident
from mxfp4_oracle import every_code_and_exponent, random_mx
from nvfp4_checks import check_dense, check_one_hot
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.kernel_set import MXFP4_KERNELS, NVFP4_HALF_KERNELS, KernelSet
from sm70_kernels_cuda.launch import ATOMS as ALL_ATOMS
from sm70_kernels_cuda.launch import Atom, Variant
from sm70_kernels_cuda.launch_general import GeneralVariant

if TYPE_CHECKING:
    from pathlib import Path

    from sm70_kernels_cuda.layouts.fp4_block import Fp4Block


@dataclass(frozen=True)
class Format:
    """A layout, its checkpoints, and an atom."""

    kernel_set: KernelSet
    random: Callable[[np.random.Generator, int, int], Checkpoint]
    every: Callable[[], Checkpoint]
    largest_scale: int
    """Highest byte that a scale may consist of and still be a number."""


FORMATS = {
    "mxfp4": Format(MXFP4_KERNELS, random_mx, every_code_and_exponent, 30),
    "nvfp4_half": Format(NVFP4_HALF_KERNELS, random_checkpoint, every_code_and_scale, 0x7B),
}
ATOMS = {atom.name: atom for atom in ALL_ATOMS}
CASES = [(name, atom) for name in FORMATS for atom in ATOMS]
EACH = pytest.mark.parametrize(("name", "atom"), CASES, ids=["-".join(case) for case in CASES])


def _variants(kernel_set: KernelSet, atom: Atom) -> list[Variant | GeneralVariant]:
    return [*kernel_set.strip, *kernel_set.general_for(atom)]


KERNELS = [
    (name, atom, variant)
    for name, atom in CASES
    for variant in _variants(FORMATS[name].kernel_set, ATOMS[atom])
]
EACH_KERNEL = pytest.mark.parametrize(
    ("name", "atom", "variant"), KERNELS, ids=[f"{atom}-{variant.kernel}" for _, atom, variant in KERNELS]
)
Kernels = Callable[[str, str], EmulatedFormat]


@pytest.fixture(scope="session")
def kernels(kernel_cache: Path) -> Kernels:
    return lambda name, atom: EmulatedFormat.build(ATOMS[atom], FORMATS[name].kernel_set, kernel_cache)


@EACH_KERNEL
def test_one_hot_returns_the_decoded_weight(
    kernels: Kernels, name: str, atom: str, variant: Variant | GeneralVariant, rng: np.random.Generator
) -> None:
    k = 128 if isinstance(variant, Variant) else 352
    check_one_hot(kernels(name, atom).run, variant, FORMATS[name].random(rng, 35, k))


@EACH_KERNEL
def test_every_code_under_every_scale(
    kernels: Kernels, name: str, atom: str, variant: Variant | GeneralVariant
) -> None:
    check_one_hot(kernels(name, atom).run, variant, FORMATS[name].every())


@EACH_KERNEL
@pytest.mark.parametrize(("n", "k"), [(1, 128), (97, 640), (40, 2176)])
def test_dense_rows_match_the_oracle(
    kernels: Kernels,
    name: str,
    atom: str,
    variant: Variant | GeneralVariant,
    n: int,
    k: int,
    rng: np.random.Generator,
) -> None:
    rows = 8 * variant.token_tiles
    for m in {1, rows - 3, rows}:
        check_dense(
            kernels(name, atom).run, variant, FORMATS[name].random(rng, n, k), m, rng, with_bias=m != 1
        )


GENERAL = [case for case in KERNELS if isinstance(case[2], GeneralVariant)]


@pytest.mark.parametrize(
    ("name", "atom", "variant"), GENERAL, ids=[f"{atom}-{variant.kernel}" for _, atom, variant in GENERAL]
)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 32), (9, 17, 96), (67, 100, 608), (130, 17, 1312)])
def test_any_rows_and_whole_groups(
    kernels: Kernels, name: str, atom: str, variant: GeneralVariant, m: int, n: int, k: int
) -> None:
    rng = np.random.default_rng([m, n, k])
    check_dense(kernels(name, atom).run, variant, FORMATS[name].random(rng, n, k), m, rng, with_bias=m > 1)


@EACH
@pytest.mark.parametrize(("n", "k"), [(1, 32), (35, 224), (64, 512)])
def test_dequantize_rounds_once(
    kernels: Kernels, name: str, atom: str, n: int, k: int, rng: np.random.Generator
) -> None:
    weight = FORMATS[name].random(rng, n, k)
    dense = kernels(name, atom).dequantize(weight)
    assert np.array_equal(dense.view(np.uint16), weight.rounded().view(np.uint16))


@EACH_KERNEL
def test_padding_of_the_layout_is_never_used(
    kernels: Kernels, name: str, atom: str, variant: Variant | GeneralVariant, rng: np.random.Generator
) -> None:
    """Fill rows and columns beyond N and K with codes of ones and the largest scales: the output stays.

    The scales are those that a packer could write. Bytes that stand for no number are not promised to be
    harmless inside a chunk of 64 columns, where zeros of x meet them.
    """
    form = FORMATS[name]
    k = 128 if isinstance(variant, Variant) else 96
    weight = form.random(rng, 20, k)
    x = rng.standard_normal((5, k)).astype(np.float16)
    held = resident(form.kernel_set, weight)
    clean = kernels(name, atom).run_resident(variant, held, x, None)
    dirty = replace(held, packed=_with_dirty_padding(form, held, k))
    assert not np.array_equal(dirty.packed, held.packed)
    result = kernels(name, atom).run_resident(variant, dirty, x, None)
    assert np.array_equal(result.view(np.uint16), clean.view(np.uint16))


def _with_dirty_padding(form: Format, held: Resident, k: int) -> np.ndarray:
    layout: Fp4Block = form.kernel_set.layout(32, 256)
    ones = np.full_like(held.packed, 0xFF)
    ones[..., 2048:] = form.largest_scale
    used = layout.pack_stored(*_all_ones(layout, 20, k)).numpy().astype(bool)
    return np.where(used, held.packed, ones)


def _all_ones(layout: Fp4Block, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.zeros((32, 128), dtype=torch.uint8)
    codes[:n, : k // 2] = 0xFF
    dtype = torch.uint8 if layout.scale_bytes == 1 else torch.int16
    stored = torch.zeros((32, 256 // layout.group_columns), dtype=dtype)
    stored[:n, : k // layout.group_columns] = -1 if dtype is torch.int16 else 0xFF
    return codes, stored
