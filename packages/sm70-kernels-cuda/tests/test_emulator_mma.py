"""Tensor-core products of the emulator against numpy, with element maps written anew from the PTX ISA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emulator.emulator import KernelError
from emulator.fault_kernels import RANDOM, Kernel, build_fault_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.emulator import EmulatedLibrary


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> EmulatedLibrary:
    """Return the fault kernels."""
    return build_fault_kernels(tmp_path_factory.mktemp("emulator"))


@dataclass(frozen=True)
class Product:
    """Random matrices of one mma shape and the place of each fragment element, by lane and element."""

    a: NDArray[np.float16]  # [part, rows, k]
    b: NDArray[np.float16]  # [part, k, 8]
    c: NDArray[np.float32]  # [part, rows, 8]
    a_index: tuple[NDArray[np.intp], ...]
    b_index: tuple[NDArray[np.intp], ...]
    c_index: tuple[NDArray[np.intp], ...]


def product(name: str) -> Product:
    """Build the fragments of a shape as the PTX ISA lays them out: [lane, element] index arrays."""
    lane, i = np.arange(32)[:, None], np.arange(8)[None, :]
    parts, rows, inner = {"m8n8k4": (4, 8, 4), "m16n8k8": (1, 16, 8), "m16n8k16": (1, 16, 16)}[name]
    matrices = (
        RANDOM.integers(-8, 8, (parts, rows, inner)).astype(np.float16) / np.float16(4),
        RANDOM.integers(-8, 8, (parts, inner, 8)).astype(np.float16) / np.float16(8),
        RANDOM.integers(-8, 8, (parts, rows, 8)).astype(np.float32),
    )
    if name == "m8n8k4":
        quad_pair, four = lane % 16 // 4, i[:, :4]
        vector = np.where(lane < 16, lane % 4, lane % 4 + 4)
        c_row = np.where(lane < 16, 0, 4) + (lane & 1) + (i & 2)
        a, b, c = (
            (quad_pair, vector, four),
            (quad_pair, four, vector),
            (quad_pair, c_row, (i & 4) + (lane & 2) + (i & 1)),
        )
    else:
        group, member, zero = lane // 4, lane % 4, lane * 0
        a_i, b_i, c_i = i[:, : inner // 2], i[:, : inner // 4], i[:, :4]
        upper = np.isin(a_i, (2, 3, 6, 7))
        a = (zero, np.where(upper, group + 8, group), member * 2 + a_i % 2 + np.where(a_i >= 4, 8, 0))
        b = (zero, member * 2 + b_i % 2 + np.where(b_i >= 2, 8, 0), group)
        c = (zero, np.where(c_i < 2, group, group + 8), member * 2 + c_i % 2)
    return Product(*matrices, np.broadcast_arrays(*a), np.broadcast_arrays(*b), np.broadcast_arrays(*c))


def run_product(library: EmulatedLibrary, name: str, fault: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return C from the emulator and from numpy, both as fragments."""
    given = product(name)
    fragments = (
        given.a[given.a_index].view(np.uint32),
        given.b[given.b_index].view(np.uint32),
        given.c[given.c_index],
    )
    expected = given.c + given.a.astype(np.float32) @ given.b.astype(np.float32)
    kernel = Kernel(name, fragments, {}, block=(32, 1, 1), read_only=frozenset({0, 1}))
    return kernel.run(library, fault)[2], expected[given.c_index]


@pytest.mark.parametrize("name", ["m8n8k4", "m16n8k8", "m16n8k16"])
def test_mma(library: EmulatedLibrary, name: str) -> None:
    """Small integers have exact products and sums, so C equals numpy's to the last bit."""
    result, expected = run_product(library, name, "")
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["m8n8k4", "m16n8k8", "m16n8k16"])
@pytest.mark.parametrize("fault", ["A registers swapped", "two rows of C swapped"])
def test_permuted_fragments_give_another_result(library: EmulatedLibrary, name: str, fault: str) -> None:
    """The comparison above notices a wrong element map."""
    result, expected = run_product(library, name, fault)
    assert not np.array_equal(result, expected)


@pytest.mark.parametrize("name", ["m8n8k4", "m16n8k8", "m16n8k16"])
def test_mma_needs_all_lanes(library: EmulatedLibrary, name: str) -> None:
    """A lane that skips the product meets the others at another operation."""
    with pytest.raises(KernelError, match=rf"lane \d+ waits for this lane at mma.{name}|waits .* __syncwarp"):
        run_product(library, name, "one lane skips the product")


@pytest.mark.parametrize(
    "bits", [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00]
)
def test_mma_reads_special_halves(library: EmulatedLibrary, bits: int) -> None:
    """Zeros, subnormals, the largest values and infinities of A reach the product unchanged."""
    a = np.full((32, 2), bits | bits << 16, np.uint32)
    b = np.zeros((32, 4), np.float16)
    b[:, 0] = 1.0
    b[:, 1:] = 0.0 if np.isfinite(np.array(bits, np.uint16).view(np.float16)) else 1.0
    buffers = (a, b.view(np.uint32), np.zeros((32, 8), np.float32))
    result = Kernel("m8n8k4", buffers, {}, block=(32, 1, 1), read_only=frozenset({0, 1})).run(library)[2]
    np.testing.assert_array_equal(
        result, np.full((32, 8), np.array(bits, np.uint16).view(np.float16), np.float32)
    )
