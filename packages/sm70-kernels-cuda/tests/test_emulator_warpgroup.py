"""Warpgroup products of the emulator against numpy, with element maps written anew from the PTX ISA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.fault_kernels import Kernel, build_fault_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.emulator import EmulatedLibrary

STEPS = 2  # of 16 values of k, as in warpgroup_faults.cuh


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> EmulatedLibrary:
    """Return the fault kernels."""
    return build_fault_kernels(tmp_path_factory.mktemp("emulator"))


def a_places(warpgroups: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return row and k of each half of A: [thread, step, register, half]."""
    thread, step, register, half = np.ogrid[: 128 * warpgroups, :STEPS, :4, :2]
    row = 16 * (thread // 32) + thread % 32 // 4 + np.where(register % 2 == 1, 8, 0)
    k = 16 * step + 2 * (thread % 4) + np.where(register >= 2, 8, 0) + half
    return np.broadcast_arrays(row, k)


def d_places(warpgroups: int, tokens: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return row and token of each float of D: [thread, element]."""
    thread, element = np.ogrid[: 128 * warpgroups, : tokens // 2]
    row = 16 * (thread // 32) + thread % 32 // 4 + np.where(element % 4 >= 2, 8, 0)
    token = 8 * (element // 4) + 2 * (thread % 4) + element % 2
    return np.broadcast_arrays(row, token)


def run_product(
    library: EmulatedLibrary, tokens: int, warpgroups: int, rng: np.random.Generator, fault: str = ""
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return D from the emulator and from numpy, both as fragments."""
    a = (rng.integers(-8, 9, (64 * warpgroups, 16 * STEPS)) / 4).astype(np.float16)
    b = (rng.integers(-8, 9, (16 * STEPS, tokens)) / 8).astype(np.float16)
    c = rng.integers(-8, 9, (64 * warpgroups, tokens)).astype(np.float32)
    fragments = (
        np.ascontiguousarray(a[a_places(warpgroups)]).view(np.uint32),
        np.ascontiguousarray(b.reshape(2 * STEPS, 8, tokens).transpose(0, 2, 1)),
        c[d_places(warpgroups, tokens)],
    )
    kernel = Kernel(
        f"multiply_{tokens}_tokens",
        fragments,
        {},
        block=(128 * warpgroups, 1, 1),
        shared=16 + fragments[1].nbytes,
        read_only=frozenset({0, 1}),
        cluster=1,
    )
    expected = c + (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    return kernel.run(library, fault)[2], expected[d_places(warpgroups, tokens)]


@pytest.mark.parametrize("tokens", [8, 24, 128, 256])
@pytest.mark.parametrize("warpgroups", [1, 3])
def test_product(library: EmulatedLibrary, tokens: int, warpgroups: int, rng: np.random.Generator) -> None:
    """Small multiples of 1/32 have exact products and sums, so D equals numpy's to the last bit."""
    result, expected = run_product(library, tokens, warpgroups, rng)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("fault", ["A registers swapped", "halves of k swapped"])
def test_wrong_element_map_gives_another_result(
    library: EmulatedLibrary, fault: str, rng: np.random.Generator
) -> None:
    """The comparison above notices a wrong element map."""
    result, expected = run_product(library, 24, 1, rng, fault)
    assert not np.array_equal(result, expected)
