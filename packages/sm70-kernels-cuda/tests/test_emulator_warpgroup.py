"""Warpgroup products of the emulator against numpy, and values sent around a cluster in two phases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.emulator import KernelError
from emulator.fault_kernels import Kernel, build_fault_kernels
from emulator.warpgroup_fault_kernels import product_kernel

if TYPE_CHECKING:
    from emulator.emulator import EmulatedLibrary


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> EmulatedLibrary:
    """Return the fault kernels."""
    return build_fault_kernels(tmp_path_factory.mktemp("emulator"))


@pytest.mark.parametrize("tokens", [8, 24, 128, 256])
@pytest.mark.parametrize("warpgroups", [1, 3])
def test_product(library: EmulatedLibrary, tokens: int, warpgroups: int, rng: np.random.Generator) -> None:
    """Small multiples of 1/32 have exact products and sums, so D equals numpy's to the last bit."""
    kernel, expected = product_kernel(rng, tokens, warpgroups)
    np.testing.assert_array_equal(kernel.run(library)[2], expected)


@pytest.mark.parametrize("fault", ["A registers swapped", "halves of k swapped"])
def test_wrong_element_map_gives_another_result(
    library: EmulatedLibrary, fault: str, rng: np.random.Generator
) -> None:
    """The comparison above notices a wrong element map."""
    kernel, expected = product_kernel(rng, 24, 1)
    assert not np.array_equal(kernel.run(library, fault)[2], expected)


def test_result_is_poisoned_before_the_wait(library: EmulatedLibrary, rng: np.random.Generator) -> None:
    """D that is used before warpgroup_wait is NaN, every float of it."""
    kernel, _ = product_kernel(rng, 24, 1)
    assert np.isnan(kernel.run(library, "wait removed")[2]).all()


def test_peer_must_not_store_to_an_operand(library: EmulatedLibrary, rng: np.random.Generator) -> None:
    """A product reads B until its warpgroup_wait; a peer's store in between is a race."""
    kernel = replace(product_kernel(rng, 8, 1)[0], grid=(2, 1, 1), cluster=2)
    text = (
        r"shared store_peer .*race: block \(\d,0,0\) thread .* reads by warpgroup_multiply .* has not called"
    )
    with pytest.raises(KernelError, match=text):
        kernel.run(library, "B overwritten by a peer")


@pytest.mark.parametrize("threads", [1, 40, 256])
@pytest.mark.parametrize("cluster", [0, 1, 2, 4, 8])
def test_send_to_every_rank(
    library: EmulatedLibrary, cluster: int, threads: int, rng: np.random.Generator
) -> None:
    """Blocks add up in two phases what all ranks of their cluster have sent; 0: a launch without clusters."""
    blocks = max(cluster, 1)
    x = rng.integers(-50, 50, (2, blocks, threads)).astype(np.float32)
    kernel = Kernel(
        "send_to_all",
        (x, np.zeros_like(x)),
        {},
        block=(threads, 1, 1),
        grid=(2 * blocks, 1, 1),
        shared=8 + 2 * 4 * blocks * threads,
        cluster=cluster,
    )
    expected = np.broadcast_to((2 * x + 1).sum(1, keepdims=True), x.shape)
    np.testing.assert_array_equal(kernel.run(library)[1], expected)
