"""The CUDA emulator runs right kernels rightly, and says what is wrong with kernels that have a fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.emulator import KernelError
from emulator.fault_kernels import FAULTS, KERNELS, RANDOM, Kernel, build_fault_kernels, zeros
from emulator.sm90_fault_kernels import SM90_FAULTS, SM90_KERNELS
from emulator.warpgroup_fault_kernels import WARPGROUP_FAULTS, WARPGROUP_KERNELS

if TYPE_CHECKING:
    from emulator.emulator import EmulatedLibrary

ALL_KERNELS = {**KERNELS, **SM90_KERNELS, **WARPGROUP_KERNELS}
ALL_FAULTS = [*FAULTS, *SM90_FAULTS, *WARPGROUP_FAULTS]


@pytest.fixture(scope="module", params=[False, True], ids=["default switch", "ucontext"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EmulatedLibrary:
    """Return the fault kernels, built with each way of switching fibers."""
    return build_fault_kernels(tmp_path_factory.mktemp("emulator"), ucontext=request.param)


@pytest.mark.parametrize("name", ALL_KERNELS)
def test_right_kernel_passes(library: EmulatedLibrary, name: str) -> None:
    """Without a fault every kernel leaves what numpy expects."""
    buffers = ALL_KERNELS[name].run(library)
    for index, expected in ALL_KERNELS[name].expected.items():
        np.testing.assert_array_equal(buffers[index], expected)


@pytest.mark.parametrize(
    ("name", "fault", "text"), ALL_FAULTS, ids=[f"{name}: {fault}" for name, fault, _ in ALL_FAULTS]
)
def test_broken_kernel_is_named(library: EmulatedLibrary, name: str, fault: str, text: str) -> None:
    """Each fault stops the kernel with a text that tells what is wrong and where."""
    with pytest.raises(KernelError, match=text) as caught:
        ALL_KERNELS[name].run(library, fault)
    if fault not in {"standard exception", "stack overflow", "other exception"}:
        assert re.match(rf"kernel '{name}': block \(\d,0,0\)", str(caught.value))


def test_kernel_runs_after_a_failed_one(library: EmulatedLibrary) -> None:
    """A stopped launch leaves nothing behind that changes the next one."""
    test_broken_kernel_is_named(library, "exchange_in_block", "exit before the barrier", "divergent barrier")
    test_right_kernel_passes(library, "exchange_in_block")
    test_broken_kernel_is_named(
        library, "exchange_in_cluster", "one block exits", "divergent cluster barrier"
    )
    test_right_kernel_passes(library, "exchange_in_block")
    test_right_kernel_passes(library, "exchange_in_cluster")


@pytest.mark.parametrize("threads", [1, 40, 1024])
@pytest.mark.parametrize("cluster", [1, 2, 3, 8])
def test_cluster_of_any_size(library: EmulatedLibrary, cluster: int, threads: int) -> None:
    """Clusters of 1 to 8 blocks, two of them in the grid, add up what all their blocks have."""
    x = RANDOM.integers(-50, 50, (2, cluster, threads)).astype(np.float32)
    kernel = Kernel(
        "sum_over_cluster",
        (x, np.zeros_like(x)),
        {},
        block=(threads, 1, 1),
        grid=(2 * cluster, 1, 1),
        shared=4 * cluster * threads,
        cluster=cluster,
    )
    expected = np.broadcast_to(x.sum(1, keepdims=True), x.shape)
    np.testing.assert_array_equal(kernel.run(library)[1], expected)


@pytest.mark.parametrize(
    ("grid", "cluster", "shared", "text"),
    [
        (3, 2, 0, "a grid of 3 blocks along x, which is no multiple of the cluster's 2 blocks"),
        (9, 9, 0, "a cluster of 9 blocks; 1 to 8 are allowed"),
        (2, -1, 0, "a cluster of 4294967295 blocks"),
        (2, 2, 232452, "232452 bytes of dynamic shared memory; sm_90 has at most 232448"),
    ],
)
def test_impossible_cluster_is_refused(
    library: EmulatedLibrary, grid: int, cluster: int, shared: int, text: str
) -> None:
    """Cluster launches that the hardware refuses are refused."""
    with pytest.raises(KernelError, match=text):
        Kernel("only_barriers", (), {}, grid=(grid, 1, 1), shared=shared, cluster=cluster).run(library)


def test_cluster_launch_gives_the_shared_memory_of_sm90(library: EmulatedLibrary) -> None:
    """227 KiB of shared memory are there in a launch with a cluster size."""
    Kernel("only_barriers", (), {}, shared=232448, cluster=1).run(library)


@pytest.mark.parametrize("block", [(1, 1, 1), (31, 1, 1), (33, 1, 1), (8, 4, 3), (16, 1, 64), (1024, 1, 1)])
def test_block_of_any_size(library: EmulatedLibrary, block: tuple[int, int, int]) -> None:
    """Blocks of 1 to 1024 threads in three dimensions, on a three-dimensional grid."""
    threads = int(np.prod(block))
    kernel = Kernel(
        "count_threads",
        (zeros(12 * threads),),
        {},
        block=block,
        grid=(2, 3, 2),
        shared=4 * threads,
        read_only=frozenset(),
    )
    np.testing.assert_array_equal(kernel.run(library)[0], np.full(12 * threads, threads))


@pytest.mark.parametrize(
    ("block", "grid", "shared", "text"),
    [
        ((1025, 1, 1), (1, 1, 1), 0, "a block of 1025x1x1 threads; 1 to 1024"),
        ((0, 1, 1), (1, 1, 1), 0, "a block of 0x1x1 threads"),
        ((1, 1, 1), (1, 70000, 1), 0, "a grid of 1x70000x1 blocks"),
        ((1, 1, 1), (0, 1, 1), 0, "a grid of 0x1x1 blocks"),
        ((1, 1, 1), (1, 1, 1), 98308, "98308 bytes of dynamic shared memory; sm_70 has at most 98304"),
    ],
)
def test_impossible_launch_is_refused(
    library: EmulatedLibrary, block: tuple[int, int, int], grid: tuple[int, int, int], shared: int, text: str
) -> None:
    """Launch configurations that the hardware refuses are refused."""
    with pytest.raises(KernelError, match=text):
        Kernel("only_barriers", (), {}, block=block, grid=grid, shared=shared).run(library)


def test_all_shuffles(library: EmulatedLibrary) -> None:
    """Each kind of shuffle, with and without segments, against its definition in the programming guide."""
    x = RANDOM.integers(0, 1 << 30, 32).astype(np.int32)
    result = Kernel("all_shuffles", (x, zeros(192)), {}, block=(32, 1, 1)).run(library)[1].reshape(6, 32)
    lanes = np.arange(32)
    segment8, segment16 = lanes - lanes % 8, lanes - lanes % 16
    sources = [
        np.full(32, 5),
        segment8 + 2,
        lanes ^ 5,
        np.where((lanes ^ 8) < segment8 + 8, lanes ^ 8, lanes),
        np.where(lanes + 3 < segment16 + 16, lanes + 3, lanes),
        np.where(lanes - 3 >= segment16, lanes - 3, lanes),
    ]
    for row, source in zip(result, sources, strict=True):
        np.testing.assert_array_equal(row, x[source])


def test_intrinsics(library: EmulatedLibrary) -> None:
    """lop3 against its bitwise meaning; byte selection and half products against values worked by hand."""
    a, b, c = 0xA3B2C17F, 0x80E6D5F4, 0x1234FEDC
    buffers = (np.array([a, b, c], np.uint32), zeros(5, np.uint32))
    result = Kernel("intrinsics", buffers, {}, block=(1, 1, 1)).run(library)[1]
    assert int(result[0]) == (a & b) | (c & ~b)
    assert int(result[1]) == (a & b) ^ c
    assert int(result[2]) == 0x80E6C17F
    assert int(result[3]) == 0xFFA3FF00
    assert result[4:].view(np.float16).tolist() == [0.375, -0.5]
