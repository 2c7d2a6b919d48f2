"""The kernels of the faults folder that need warpgroups, with the element maps of their products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.fault_kernels import Kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 2  # products of 16 values of k, as in warpgroup_faults.cuh
TILES = 7


def a_places(warpgroups: int, steps: int) -> tuple[NDArray[np.intp], ...]:
    """Return row and k of each half of A: [thread, step, register, half]."""
    thread, step, register, half = np.ogrid[: 128 * warpgroups, :steps, :4, :2]
    row = 16 * (thread // 32) + thread % 32 // 4 + np.where(register % 2 == 1, 8, 0)
    k = 16 * step + 2 * (thread % 4) + np.where(register >= 2, 8, 0) + half
    return np.broadcast_arrays(row, k)


def d_places(warpgroups: int, tokens: int) -> tuple[NDArray[np.intp], ...]:
    """Return row and token of each float of D: [thread, element]."""
    thread, element = np.ogrid[: 128 * warpgroups, : tokens // 2]
    row = 16 * (thread // 32) + thread % 32 // 4 + np.where(element % 4 >= 2, 8, 0)
    token = 8 * (element // 4) + 2 * (thread % 4) + element % 2
    return np.broadcast_arrays(row, token)


def a_fragments(a: NDArray[np.float16]) -> NDArray[np.uint32]:
    """Return A [rows, k] as registers: [thread, step, 4]."""
    places = a_places(a.shape[0] // 64, a.shape[1] // 16)
    return np.ascontiguousarray(a[places]).view(np.uint32)[..., 0]


def b_words(b: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return B [k, tokens] in words of 8 values of k: [k / 8, tokens, 8]."""
    return np.ascontiguousarray(b.reshape(-1, 8, b.shape[1]).transpose(0, 2, 1))


def random_factors(
    rng: np.random.Generator, rows: int, k: int, tokens: int
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Return A and B of small multiples of 1/4 and 1/8: products and sums are exact in float32."""
    a = (rng.integers(-8, 9, (rows, k)) / 4).astype(np.float16)
    return a, (rng.integers(-8, 9, (k, tokens)) / 8).astype(np.float16)


def product(a: NDArray[np.float16], b: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return A * B, rounded once."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def product_kernel(
    rng: np.random.Generator, tokens: int, warpgroups: int
) -> tuple[Kernel, NDArray[np.float32]]:
    """Return a kernel of one product on random factors and the D that it should leave, as fragments."""
    a, b = random_factors(rng, 64 * warpgroups, 16 * STEPS, tokens)
    c = rng.integers(-8, 9, (64 * warpgroups, tokens)).astype(np.float32)
    places = d_places(warpgroups, tokens)
    kernel = Kernel(
        f"multiply_{tokens}_tokens",
        (a_fragments(a), b_words(b), c[places]),
        {2: (c + product(a, b))[places]},
        block=(128 * warpgroups, 1, 1),
        shared=16 + b.nbytes,
        read_only=frozenset({0, 1}),
        cluster=1,
    )
    return kernel, kernel.expected[2]


def ring_kernel(name: str, threads: int, first: int) -> Kernel:
    """Return the ring of two stages, with the multiplying threads from `first` on."""
    a, b = random_factors(np.random.default_rng(5), 128, 16 * TILES, 8)
    sums = product(a, b)[d_places(2, 8)]
    thread, group = np.arange(256), np.arange(256) // 128 * 128
    y = sums.copy()
    y[:, 1] += 2 * sums[thread ^ 127, 0] + sums[group, 0]
    tiles = np.ascontiguousarray(a_fragments(a).transpose(1, 0, 2))
    return Kernel(
        name,
        (tiles, b_words(b), np.zeros_like(y), np.array([TILES, first], np.uint32)),
        {2: y},
        block=(threads, 1, 1),
        shared=32 + 8192 + 512 + 1024,
        read_only=frozenset({0, 1, 3}),
        cluster=1,
    )


WARPGROUP_KERNELS = {
    kernel.name: kernel
    for kernel in (
        product_kernel(np.random.default_rng(6), 24, 2)[0],
        ring_kernel("multiply_ring", 288, 0),
        ring_kernel("multiply_ring_behind_copies", 384, 128),
    )
}

PRODUCT_FAULTS = {
    "B never copied": "shared warpgroup_multiply of 384 bytes at byte 16: uninitialised read",
    "B stored by threads": r"warpgroup_multiply .*: thread \(\d+,0,0\) stored it; .* needs a proxy fence",
    "B sent by threads": r"warpgroup_multiply .*: thread \(\d+,0,0\) stored it; .* needs a proxy fence",
    "one thread does not wait for the copy": (
        r"shared warpgroup_multiply .*read before the copy was waited for: .* and thread \(77,0,0\) has not"
    ),
    "fence removed": r"warpgroup_multiply without warpgroup_fence.*\(warpgroup_faults\.cuh:\d+\)",
    "no fence after the wait": "warpgroup_multiply without warpgroup_fence",
    "one warp reads elsewhere": (
        r"\[warp 2 lane .*warps of a warpgroup must make the same calls: call 2 .* of 24 tokens at byte 16"
    ),
    "one lane reads elsewhere": r"lane 0 gives B at byte 784 with 384 bytes .*, but lane 8 gives byte 16",
    "B out of bounds": "shared warpgroup_multiply out of bounds: elements 73 to 96 of a span of 96",
    "one warp skips a product": (
        r"call 2 of this warp is warpgroup_commit .*, but that of another one is warpgroup_multiply of 24 tok"
    ),
    "one lane skips a product": r"warpgroup_commit .* but lane \d+ waits for this lane at warpgroup_multiply",
    "D written before the wait": "lane 9 wrote D of a warpgroup_multiply before warpgroup_wait",
    "A written before the wait": "lane 10 wrote A of a warpgroup_multiply before warpgroup_wait",
    "B overwritten before the wait": (
        r"shared store .*write-after-read race: thread \(\d+,0,0\) reads by warpgroup_multiply .* phase 0 of "
        r"the TransactionBarrier at byte 0, and has not called warpgroup_wait"
    ),
    "exit without wait": "exits after warpgroup_multiply without warpgroup_wait: 2 products are pending",
    "exit after commit without wait": "exits after warpgroup_multiply without warpgroup_wait",
    "commit removed": "warpgroup_wait with 2 products that no warpgroup_commit follows",
}

NOT_WAITED = "shared bulk copy .*written before the copy was waited for: nobody has waited for phase 0 of the"
READ_LATE = r"shared bulk copy .*write-after-read race: thread \(\d+,0,0\) read what came with phase 0 of the"
MULTIPLIED_LATE = (
    r"bulk copy .*race: thread .* read by warpgroup_multiply, until warpgroup_wait, what came with"
)
RING_FAULTS = {
    "no arrivals": "TransactionBarrier::initialize at byte 16: 0 arrivals; 1 to 1048575 are allowed",
    "empty after one arrival": "wait at byte 16: phase 1 was over before this thread, which waits for",
    "every warp arrives": "wait at byte 24: phase 1 was over before this thread, which waits for",
    "empty after three arrivals": "deadlock: .*TransactionBarrier at byte",
    "consumer does not arrive": "deadlock: .*TransactionBarrier at byte",
    "full after two arrivals": "deadlock: .*TransactionBarrier at byte",
    "too many bytes expected": "deadlock: .*TransactionBarrier at byte",
    "one arrival too many": "expect at byte 0: one arrival too many: phase 0 has had its 1 and waits",
    "producer does not wait": NOT_WAITED,
    "producer waits after the copy": NOT_WAITED,
    "producer's parity never changes": NOT_WAITED,
    "producer's parity starts with 0": "deadlock: .*TransactionBarrier at byte",
    "producer's warp barrier removed": NOT_WAITED,
    "consumer does not wait": "uninitialised read|read before the copy was waited for",
    "one thread does not wait": r"read before the copy was waited for: .* has not waited for phase 1 of the",
    "consumer waits for the other stage": "read before the copy was waited for",
    "consumer's parity never changes": f"{READ_LATE}|read before the copy was waited for",
    "consumer's parity starts with 1": "deadlock|uninitialised read",
    "parity of two": "TransactionBarrier::wait at byte 0: parity 2; 0 and 1 are allowed",
    "arrives before its loads": READ_LATE,
    "load after the arrival": READ_LATE,
    "load of the elected thread after its arrival": READ_LATE,
    "load of another thread after the arrival": READ_LATE,
    "arrives before the warpgroup's barrier": f"{READ_LATE}|{MULTIPLIED_LATE}",
    "warpgroup's barrier removed": f"{READ_LATE}|{MULTIPLIED_LATE}",
    "arrives before the products are over": MULTIPLIED_LATE,
    "waits for the stage again under products": (
        "bulk copy .*race: thread .* reads by warpgroup_multiply .* and has not called warpgroup_wait"
    ),
    "stage stored before the next copy": "shared store .*-after-read race: .* read by warpgroup_multiply",
    "block barrier of the consumers": "deadlock: 256 of 288 threads wait at __syncthreads|divergent barrier",
    "barrier of another warpgroup": r"warpgroup_sync of warpgroup \d by a thread of warpgroup \d",
    "barrier at two places": r"divergent barrier: .* at warpgroup_sync .* waits at another one \(ring_faults",
    "one thread skips the barrier": r"deadlock: 127 of 128 threads of warpgroup \d wait at warpgroup_sync",
    "one thread exits": "this thread exits, but .* of its warpgroup's 128 threads wait at warpgroup_sync",
    "first barrier of the sums removed": "uninitialised read|read-after-write race",
    "second barrier of the sums removed": r"shared store .*write-after-read race: thread .* read it and no",
    "another warp reads before the store": r"shared store .*race: thread \((100|228),0,0\) read it and no",
    "sums of the other warpgroup": r"shared load .*(read-after-write race: thread .* wrote it|uninitialised)",
    "the copying warp calls warpgroup_fence": (
        "warpgroup_fence by a thread outside a warpgroup: the block has 288 threads|"
        "warp 1 exited after 0 warpgroup calls, but another .* goes on with warpgroup_fence"
    ),
}

WARPGROUP_FAULTS = [
    *(("multiply_24_tokens", fault, text) for fault, text in PRODUCT_FAULTS.items()),
    *(("multiply_ring", fault, text) for fault, text in RING_FAULTS.items()),
    *(("multiply_ring_behind_copies", fault, text) for fault, text in RING_FAULTS.items()),
]
