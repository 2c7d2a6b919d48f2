"""The kernels of the faults folder that need sm_90: clusters, transaction barriers, dependent launches."""

from __future__ import annotations

import numpy as np

from emulator.fault_kernels import RANDOM, X64, Kernel, zeros

PAIRS = RANDOM.integers(-50, 50, (2, 2, 64)).astype(np.float32)  # [cluster, rank, thread]
INTS = RANDOM.integers(-1000, 1000, (2, 2, 64)).astype(np.int32)
CHUNKS = RANDOM.integers(-1000, 1000, (2, 64)).astype(np.int32)
POISON = np.full(64, -0x32323233, np.int32)  # 0xCDCDCDCD
PAIR_SUMS = PAIRS + PAIRS[:, ::-1, ::-1]
PRODUCTS = np.full((2, 2, 32), 2 * 16 * (1 + 2), np.float32)

SM90_KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "exchange_in_cluster",
            (PAIRS, np.zeros_like(PAIRS)),
            {1: PAIRS + PAIR_SUMS[:, ::-1]},
            grid=(4, 1, 1),
            cluster=2,
        ),
        Kernel(
            "order_by_cluster",
            (INTS, np.zeros_like(INTS), np.zeros_like(INTS)),
            {2: INTS[:, ::-1] + INTS[:, :, ::-1]},
            grid=(4, 1, 1),
            cluster=2,
        ),
        Kernel(
            "multiply_in_cluster",
            (np.zeros_like(PRODUCTS),),
            {0: PRODUCTS},
            block=(32, 1, 1),
            grid=(4, 1, 1),
            read_only=frozenset(),
            cluster=2,
        ),
        Kernel(
            "send_in_cluster",
            (PAIRS, np.zeros_like(PAIRS), np.zeros_like(PAIRS)),
            {1: PAIR_SUMS, 2: np.broadcast_to(POISON.view(np.float32), PAIRS.shape)},
            grid=(4, 1, 1),
            shared=256 + 8,
            cluster=2,
        ),
        Kernel(
            "sum_copied_chunks",
            (CHUNKS, zeros(128)),
            {1: np.concatenate([CHUNKS.sum(0), POISON])},
            shared=512 + 16,
            cluster=1,
        ),
        Kernel(
            "add_after_previous",
            (X64, CHUNKS[0], zeros(64), zeros(1)),
            {2: X64 + CHUNKS[0] + CHUNKS[0, 0], 3: np.array([64])},
            shared=16 + 8,
            read_only=frozenset({0, 1}),
            from_previous=frozenset({1}),
            cluster=1,
        ),
    )
}

CLUSTER_FAULTS = {
    "first cluster barrier removed": r"store_peer before the first cluster barrier: block \(1,0,0\) may not",
    "first store between arrive and wait": "store_peer before the first cluster barrier",
    "cleared after the barrier": (
        r"write-after-write race: block \(\d,0,0\) thread \(\d+,0,0\) (wrote|stored) it"
    ),
    "second cluster barrier removed": (
        r"shared store_peer .*write-after-read race: block \(1,0,0\) thread \(\d+,0,0\) read it and no"
    ),
    "block barrier in place of the cluster barrier": (
        r"read-after-write race: .* stored it with store_peer and no cluster barrier|write-after-read race"
    ),
    "store between arrive and wait": (
        r"read-after-write race: block \(\d,0,0\) thread \(\d+,0,0\) stored it with store_peer and no cluster"
    ),
    "load between arrive and wait": (
        "read-after-write race: .* stored it with store_peer|write-after-read race: .* read it and no cluster"
    ),
    "third cluster barrier removed": "shared load .*read-after-write race: .* stored it with store_peer",
    "load after the arrival": r"write-after-read race: block \(\d,0,0\) thread \(\d+,0,0\) read it and no",
    "two threads store to one element": r"store_peer .*write-after-write race: thread \(\d+,0,0\) wrote it",
    "index off by one": "shared store_peer out of bounds: elements 64 to 64 of a span of 64",
    "rank outside the cluster": "store_peer to rank 2 of a cluster of 2 blocks",
    "last cluster barrier removed": (
        r"the block exits, but a store_peer of block \(\d,0,0\) thread .* no cluster barrier orders the two"
    ),
    "one block exits before a store": r"store_peer to block \(0,0,0\), which has exited",
    "one block stores and nobody waits": (
        r"block \(1,0,0\) .*the block exits, but a store_peer of block \(0,0,0\) thread .* may come later"
    ),
    "one block exits": r"divergent cluster barrier: cluster_arrive, but .* of block \(1,0,0\) exited",
    "one thread exits": "divergent cluster barrier: this thread exits, but .* of the cluster's 128",
    "wait without arrive": r"cluster_wait without cluster_arrive \(cluster_faults\.cuh:\d+\)",
    "second arrive before the wait": "a second cluster_arrive before cluster_wait",
    "one thread waits for its block": (
        r"deadlock: thread \(0,0,0\) waits at cluster_wait .* and 127 of the cluster's 128 threads have arr.*"
        r"block \(1,0,0\): 1 of 64 threads wait at __syncthreads .*; thread \(0,0,0\) waits at cluster_wait"
    ),
    "one lane waits for its warp": "deadlock: warp 0: lanes 3 wait at __syncwarp .* at cluster_wait",
    "lanes of a warp arrive at two places": r"divergent cluster_arrive: .*\(cluster_faults\.cuh:\d+\)",
    "last wait removed": "this thread exits after cluster_arrive without cluster_wait",
}

ORDER_FAULTS = {
    "barrier removed": "uninitialised read|read-after-write race",
    "block barrier in place of the cluster barrier": r"block \(0,0,0\) thread \(\d+,0,0\) wrote it without",
    "global load before the wait": r"block \(0,0,0\) thread \(\d+,0,0\) wrote it without a __threadfence",
    "shared load before the wait": r"shared load .*read-after-write race: thread \(0,0,0\) wrote it",
    "shared store after the arrival": r"shared load .*read-after-write race: thread \(\d+,0,0\) wrote it",
    "second barrier removed": r"read-after-write race: thread \(\d+,0,0\) wrote it|write-after-read race",
    "shared load after the arrival": r"shared store .*write-after-read race: thread \(\d+,0,0\) read it",
}

SEND_FAULTS = {
    "cluster barrier removed": r"TransactionBarrier::send before the first cluster barrier: block \(1,0,0\)",
    "initialize removed": "shared TransactionBarrier::send .*at byte 256: .* used before initialize",
    "make_visible removed": r"TransactionBarrier::send .*before make_visible by block \(\d,0,0\) thread \(0,",
    "initialized after the arrival": r"send .*race: block \(\d,0,0\) thread \(0,0,0\) initialised it and no",
    "element used after the arrival": r"send .*write-after-write race: block \(\d,0,0\) thread .* wrote it",
    "index off by one": "shared TransactionBarrier::send out of bounds: elements 64 to 64 of a span of 64",
    "rank outside the cluster": "TransactionBarrier::send to rank 2 of a cluster of 2 blocks",
    "two sends to one element": "TransactionBarrier::send .*written before the copy was waited for",
    "one send removed": r"deadlock: .* at byte 256, which expects 256 bytes and got copies of 252",
    "nobody waits": "the block exits, but nobody has waited for the copies of the TransactionBarrier",
    "wait removed": "uninitialised read|read before the copy was waited for",
    "one thread does not wait": r"thread \(3,0,0\) .*read before the copy was waited for: block \(1,0,0\)",
}

COPY_FAULTS = {
    "initialize removed": "TransactionBarrier::expect .*at byte 512: the barrier is used before initialize",
    "initialized twice": "TransactionBarrier::initialize .*: a TransactionBarrier lies there",
    "make_visible removed": r"TransactionBarrier::expect .*used before make_visible by thread \(0,0,0\)",
    "warp barrier removed": r"TransactionBarrier::copy .*race: thread \(0,0,0\) initialised it and no",
    "block barrier removed": (
        r"TransactionBarrier::wait .*(race: thread \(0,0,0\) initialised it|used before initialize)"
    ),
    "expect removed": (
        r"deadlock: thread \(0,0,0\) waits \(.*\) for the TransactionBarrier at byte 512, which was never"
    ),
    "expected twice": "TransactionBarrier::expect at byte 512: one arrival too many: phase 0 has had its",
    "too many bytes expected": "TransactionBarrier::expect at byte 512: 1048576 bytes; at most 1048575",
    "fewer bytes expected": "TransactionBarrier::copy at byte 512: copies of 256 bytes, but 240 are expected",
    "one copy removed": (
        r"deadlock: thread \(0,0,0\) waits .* at byte 520, which expects 256 bytes and got copies of 192"
    ),
    "destination off by one": "shared bulk copy out of bounds: elements 29 to 32 of a span of 32",
    "two copies to one place": "shared bulk copy .*written before the copy was waited for",
    "destination used without a barrier": r"bulk copy .*write-after-write race: thread \(0,0,0\) wrote it",
    "source misaligned": "global bulk copy of 64 bytes at byte 4 of 'buffer 0': misaligned: .* of 16",
    "source off by one": "global bulk copy of 64 bytes: out of bounds: .* starts at byte 464 of it",
    "source written in the launch": "global bulk copy .*wrote it in this launch",
    "bytes not a multiple of 16": "TransactionBarrier::copy at byte 512: 56 bytes; a positive multiple of 16",
    "barrier out of bounds": "shared TransactionBarrier out of bounds: elements 2 to 2 of a span of 2",
    "nobody waits": "the block exits, but nobody has waited for the copies of the TransactionBarrier",
    "barrier read as data": "shared load of 8 bytes at byte 520: a TransactionBarrier lies there",
    "destination stored before the wait": "shared store .*written before the copy was waited for",
    "wait removed": r"shared load .*read before the copy was waited for: thread \(\d+,0,0\) copied there",
    "one thread does not wait": r"thread \(50,0,0\) .*read before the copy was waited for: thread \(3[2-5],",
    "stored while others read": r"shared store .*race: thread \(\d+,0,0\) read what came with phase 0 of the",
    "waits for the other chunk": "read before the copy was waited for",
}

PREVIOUS_FAULTS = {
    "load before the wait": "global load .*of 'buffer 1': read before the previous kernel has finished",
    "copy before the wait": "global bulk copy .*of 'buffer 1': read before the previous kernel has finished",
    "store before the wait": "global store .*of 'buffer 2': written before the previous kernel has finished",
    "atomic before the wait": "global atomicAdd .*of 'buffer 3': written before the previous kernel has fin",
    "one thread does not wait": r"thread \(33,0,0\) .*read before the previous kernel has finished",
}

SM90_FAULTS = [
    *(("exchange_in_cluster", fault, text) for fault, text in CLUSTER_FAULTS.items()),
    *(("order_by_cluster", fault, text) for fault, text in ORDER_FAULTS.items()),
    (
        "multiply_in_cluster",
        "one lane skips the product",
        r"mma\.m16n8k16.*waits|waits for this lane|deadlock: .*lanes 0-6,8-31 wait at mma\.m16n8k16",
    ),
    *(("send_in_cluster", fault, text) for fault, text in SEND_FAULTS.items()),
    *(("sum_copied_chunks", fault, text) for fault, text in COPY_FAULTS.items()),
    *(("add_after_previous", fault, text) for fault, text in PREVIOUS_FAULTS.items()),
]
