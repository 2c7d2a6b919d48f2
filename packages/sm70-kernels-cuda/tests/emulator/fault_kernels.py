"""The kernels of the faults folder: how each is launched, what it leaves, and what is said of each fault."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.emulator import DeviceBuffer, EmulatedLibrary, build

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parent
RANDOM = np.random.default_rng(7)
X64 = RANDOM.integers(-1000, 1000, 64).astype(np.int32)
X32 = X64[:32]
BYTES = RANDOM.integers(0, 256, 1024).astype(np.uint8)
F64 = RANDOM.integers(-50, 50, 64).astype(np.float32)
ROWS = RANDOM.integers(0, 100, (5, 64)).astype(np.int32)


@dataclass(frozen=True)
class Kernel:
    """One kernel of the faults folder: how to launch it and what it should leave in its buffers."""

    name: str
    buffers: tuple[NDArray[Any], ...]
    expected: dict[int, NDArray[Any]]
    block: tuple[int, int, int] = (64, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    shared: int = 256
    read_only: frozenset[int] = field(default_factory=lambda: frozenset({0}))
    from_previous: frozenset[int] = frozenset()
    cluster: int = 0  # blocks of a cluster; 0 launches without one

    def run(self, library: EmulatedLibrary, fault: str = "") -> list[NDArray[Any]]:
        """Launch once with one thing broken, or nothing; return the buffers."""
        buffers = [
            DeviceBuffer(
                f"buffer {index}",
                array,
                writable=index not in self.read_only,
                from_previous_kernel=index in self.from_previous,
            )
            for index, array in enumerate(self.buffers)
        ]
        names = (ctypes.c_char_p(self.name.encode()), ctypes.c_char_p(fault.encode()))
        sizes = (*self.grid, *self.block, self.shared, self.cluster)
        library.call("run_fault_kernel", *names, *sizes, registered=buffers)
        return [buffer.array for buffer in buffers]


def zeros(count: int, dtype: type[np.generic] = np.int32) -> NDArray[Any]:
    """Return an empty result buffer."""
    return np.zeros(count, dtype)


T32 = np.arange(32)
HALF = T32 & 16
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("exchange_in_block", (X64, zeros(64)), {1: X64[::-1] + X64[np.arange(64) ^ 1]}),
        Kernel(
            "exchange_in_half_warps",
            (X32, zeros(32)),
            {1: X32[HALF | ((T32 + 1) & 15)] + X32[HALF | ((T32 - 1) & 15)]},
            block=(32, 1, 1),
        ),
        Kernel(
            "staggered_readers", (zeros(32),), {0: np.full(32, 7)}, block=(32, 1, 1), read_only=frozenset()
        ),
        Kernel("mixed_widths", (BYTES[:64], zeros(64, np.uint8)), {1: BYTES[:64]}),
        Kernel("copy_vectors", (BYTES, zeros(1024, np.uint8)), {1: BYTES}, block=(32, 1, 1), grid=(2, 1, 1)),
        Kernel(
            "sum_by_last_block",
            (ROWS, zeros(5), zeros(1, np.uint32), zeros(1)),
            {1: ROWS.sum(1), 2: zeros(1), 3: ROWS.sum().reshape(1)},
            grid=(5, 1, 1),
            shared=16 + 256,
        ),
        Kernel(
            "read_back",
            (zeros(64), zeros(64)),
            {1: np.arange(64) + (np.arange(64) ^ 1)},
            read_only=frozenset(),
        ),
        Kernel(
            "count_values",
            (ROWS, zeros(4), zeros(1, np.float32)),
            {1: np.bincount(ROWS.ravel() % 4, minlength=4), 2: np.array([160.0])},
            grid=(5, 1, 1),
        ),
        Kernel("wait_for_flag", (zeros(1, np.uint32),), {0: zeros(1)}, read_only=frozenset()),
        Kernel("sum_half_warps", (F64, zeros(64, np.float32)), {1: np.repeat(F64.reshape(4, 16).sum(1), 16)}),
        Kernel(
            "nested_masks",
            (zeros(64, np.uint32),),
            {0: np.tile(np.where(T32 < 16, 7, 7 + 0xAAAA0000), 2)},
            read_only=frozenset(),
        ),
        Kernel(
            "early_exit",
            (zeros(1),),
            {0: np.array([255 * 128])},
            block=(256, 1, 1),
            shared=1024,
            read_only=frozenset(),
        ),
        Kernel("only_barriers", (), {}),
        Kernel(
            "deep_stack",
            (zeros(64),),
            {0: np.full(64, sum((4096 * k) & 255 for k in range(1, 33)))},
            read_only=frozenset(),
        ),
    )
}

# Kernel, fault, and what the error must say.
FAULTS = [
    (
        "exchange_in_block",
        "first barrier removed",
        r"shared load of 4 bytes at byte \d+: uninitialised read.*\(shared_faults\.cuh:\d+\)",
    ),
    ("exchange_in_block", "block barrier made a warp barrier", "uninitialised read|read-after-write race"),
    (
        "exchange_in_block",
        "second barrier removed",
        r"shared load .*read-after-write race: thread \(\d+,0,0\) wrote it",
    ),
    (
        "exchange_in_block",
        "third barrier removed",
        r"shared store .*write-after-read race: thread \(\d+,0,0\) read it",
    ),
    ("exchange_in_block", "one store removed", "at byte 20: uninitialised read"),
    ("exchange_in_block", "two threads store to one word", "write-after-write race: thread .* wrote it"),
    (
        "exchange_in_block",
        "shared index off by one",
        "shared load out of bounds: elements 64 to 64 of a span of 64",
    ),
    ("exchange_in_block", "shared index far out", r"out of bounds: elements 1\d\d to 1\d\d of a span of 64"),
    (
        "exchange_in_block",
        "span longer than the launch's bytes",
        "span of 260 bytes at byte 0 .* gave 256 bytes",
    ),
    (
        "exchange_in_block",
        "exit before the barrier",
        r"divergent barrier: (__syncthreads, but 1 of|this thread exits)",
    ),
    ("exchange_in_block", "barrier under a divergent if", "read-after-write race"),
    ("exchange_in_block", "barrier in both branches of a divergent if", "divergent barrier: .*another one"),
    ("exchange_in_half_warps", "warp barrier removed", "uninitialised read|read-after-write race"),
    ("exchange_in_half_warps", "shuffle in place of the barrier", "read-after-write race"),
    ("exchange_in_half_warps", "reads the other half", "uninitialised read|read-after-write race"),
    (
        "exchange_in_half_warps",
        "second warp barrier removed",
        r"write-after-read race: thread \(\d+,0,0\) read it",
    ),
    ("staggered_readers", "lane 1 not waited for", r"write-after-read race: thread \(1,0,0\) read it"),
    ("staggered_readers", "lane 31 not waited for", r"write-after-read race: thread \(31,0,0\) read it"),
    (
        "mixed_widths",
        "byte stored twice",
        r"shared store of 1 bytes at byte 8: write-after-write race: thread \(8,0,0\)",
    ),
    (
        "mixed_widths",
        "barrier before narrow loads removed",
        r"shared load of 1 bytes .*: (uninit|read-after)",
    ),
    ("mixed_widths", "barrier removed", "uninitialised read|read-after-write race"),
    (
        "mixed_widths",
        "vector index not a multiple",
        "shared load out of bounds: elements 4 to 11 of a span of 8",
    ),
    ("mixed_widths", "vector over the end", "shared load out of bounds: elements 60 to 67 of a span of 64"),
    ("mixed_widths", "misaligned vector", "misaligned shared load of 8 bytes at byte 4"),
    (
        "copy_vectors",
        "load index off by one",
        "global load .*out of bounds.*'buffer 0' of 1024 bytes.* byte 1024 of it",
    ),
    ("copy_vectors", "misaligned load", "at byte 8 of 'buffer 0': misaligned: .* multiple of 16"),
    ("copy_vectors", "misaligned store", "at byte 4 of 'buffer 1': misaligned"),
    ("copy_vectors", "store before the start", "global store .*out of bounds"),
    ("copy_vectors", "store to the input", "'buffer 0': the buffer is registered as read-only"),
    (
        "copy_vectors",
        "two threads store to one address",
        r"write-write race: block \(0,0,0\) thread \(0,0,0\) wrote it",
    ),
    (
        "copy_vectors",
        "two blocks store to one address",
        r"block \(1,0,0\) .*write-write race: block \(0,0,0\)",
    ),
    ("copy_vectors", "load from a shared address", "out of bounds: no registered buffer holds it"),
    (
        "sum_by_last_block",
        "fence removed",
        r"block \(0,0,0\) thread \(0,0,0\) wrote it without a __threadfence after",
    ),
    ("sum_by_last_block", "atomic removed", "wrote it and no atomic in both blocks orders the two"),
    ("read_back", "barrier removed", "read-after-write race: .* no __syncthreads orders the two"),
    ("count_values", "atomic out of bounds", "global atomicAdd of 4 bytes: out of bounds"),
    ("wait_for_flag", "flag never set", "a loop that waits for another thread does not end here"),
    ("sum_half_warps", "mask leaves out the caller", "mask 0xffff0000, which leaves out the calling lane 0"),
    (
        "sum_half_warps",
        "one lane has another mask",
        "lane . waits for this lane at __shfl_xor_sync with mask",
    ),
    (
        "sum_half_warps",
        "mask names an exited lane",
        "this lane exits, but lane 0 waits|names lanes 7, which have exited",
    ),
    (
        "sum_half_warps",
        "one lane waits elsewhere",
        "deadlock: .*lanes 7 of that mask never arrive|divergent barrier",
    ),
    (
        "sum_half_warps",
        "one lane calls another operation",
        "__ballot_sync with mask .* waits for this lane at __shfl_xor_sync",
    ),
    ("sum_half_warps", "one lane moves eight bytes", "8-byte operands, but lane 0 .* 4-byte operands"),
    ("sum_half_warps", "source outside the mask", "lane 0 reads lane 16, which the mask leaves out"),
    ("sum_half_warps", "width not a power of two", "__shfl_xor_sync with width 24"),
    (
        "sum_half_warps",
        "lane exits while others wait",
        "lane 0 waits for it at __syncwarp with mask 0xffffffff",
    ),
    ("early_exit", "warps exit before the last barrier", "divergent barrier: .* of the block's 256 threads"),
    ("early_exit", "barrier after warps exited", "divergent barrier: .* of the block's 256 threads"),
    (
        "only_barriers",
        "barrier under a divergent if",
        "divergent barrier: this thread is at __syncthreads .*another one",
    ),
    (
        "only_barriers",
        "one lane waits for its warp",
        "deadlock: 63 of 64 threads .*; warp 0: lanes 3 wait at __syncwarp .* lanes 0-2,4-31 of that mask",
    ),
    ("only_barriers", "standard exception", "thrown by the kernel"),
    ("only_barriers", "other exception", r"thread \(3,0,0\): an exception of unknown type"),
    ("deep_stack", "stack overflow", "the fiber's stack overflowed"),
]


def build_fault_kernels(cache_dir: Path, *, ucontext: bool = False) -> EmulatedLibrary:
    """Compile the kernels, with the default way of switching fibers or with ucontext."""
    defines = {"SM70_EMULATOR_UCONTEXT": "1"} if ucontext else {}
    return build(FOLDER / "faults" / "fault_host.cpp", cache_dir=cache_dir, defines=defines)
