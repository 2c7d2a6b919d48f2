// Kernels whose blocks form clusters: the cluster barrier, and stores to another block's shared memory.
#pragma once
#include "fault.h"

// Ways to call the cluster barrier wrongly, just before a right call; t is the thread, rank the block's.
inline void broken_cluster_barrier(unsigned t, unsigned rank) {
    using namespace sm70_emulator;
    if (broken("wait without arrive")) cluster_wait();
    if (broken("second arrive before the wait")) cluster_arrive();
    if (broken("one thread waits for its block") && rank == 1 && t == 3) __syncthreads();
    if (broken("one lane waits for its warp") && rank == 0 && t == 3) __syncwarp();
    if (broken("lanes of a warp arrive at two places")) {
        if (t & 1)
            cluster_arrive();
        else
            cluster_arrive();
        cluster_wait();
    }
}

// y = x + what the other block of the cluster has, by two rounds through 64 floats of its shared memory:
// first x reversed, then the sums. Blocks: 64 threads, two in a cluster; shared: 256 bytes.
inline void exchange_in_cluster(const float* x, float* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, rank = cluster_rank(), peer = rank ^ 1, i = blockIdx.x * 64 + t;
    SharedSpan<float> received(dynamic_shared(), 64);
    if (!broken("cleared after the barrier")) received.store(t, 0);
    if (!broken("first cluster barrier removed")) cluster_arrive();
    const float mine = load_global<float>(x + i);
    if (broken("first store between arrive and wait")) store_peer(received, t, mine, peer);
    if (!broken("first cluster barrier removed")) cluster_wait();
    if (broken("cleared after the barrier")) received.store(t, 0);
    if (broken("one block exits") && rank == 1) return;
    if (broken("one thread exits") && rank == 1 && t == 40) return;
    if (broken("one block stores and nobody waits")) {
        if (rank == 0) store_peer(received, t, mine, peer);
        return;
    }
    if (broken("one block exits before a store")) {
        if (rank == 1 && t == 0) store_peer(received, t, mine, peer);
        return;
    }
    const unsigned to = broken("index off by one") ? 64 - t : 63 - t;
    if (!broken("store between arrive and wait"))
        store_peer(received, to, mine, broken("rank outside the cluster") ? 2 : peer);
    if (broken("two threads store to one element")) store_peer(received, 5, mine, peer);
    if (broken("block barrier in place of the cluster barrier")) __syncthreads();
    if (!broken("second cluster barrier removed") &&
        !broken("block barrier in place of the cluster barrier")) {
        cluster_arrive();
        if (broken("store between arrive and wait")) store_peer(received, to, mine, peer);
        if (broken("load between arrive and wait")) received.load(t);
        cluster_wait();
    }
    const float sum = mine + received.load(t);
    if (!broken("third cluster barrier removed")) {
        cluster_arrive();
        if (broken("load after the arrival")) received.load(t);
        cluster_wait();
    }
    store_peer(received, t, sum, peer);
    if (broken("last cluster barrier removed")) return;
    broken_cluster_barrier(t, rank);
    cluster_arrive();
    cluster_wait();
    store_global(y + i, mine + received.load(t));
    if (broken("last wait removed")) cluster_arrive();
}

// y[block, t] = sum of x[b, t] over the b of the cluster, each block's own included.
inline void sum_over_cluster(const float* x, float* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, threads = blockDim.x, blocks = gridDim.x / 2;
    SharedSpan<float> received(dynamic_shared(), blocks * threads);
    const float mine = load_global<float>(x + blockIdx.x * threads + t);
    cluster_arrive();
    cluster_wait();
    for (unsigned to = 0; to < blocks; ++to) store_peer(received, cluster_rank() * threads + t, mine, to);
    cluster_arrive();
    cluster_wait();
    float sum = 0;
    for (unsigned from = 0; from < blocks; ++from) sum += received.load(from * threads + t);
    store_global(y + blockIdx.x * threads + t, sum);
}

// y = the other block's x + x[63 - t] of the own block; the cluster barrier orders shared and global memory.
// Blocks: 64 threads, two in a cluster; shared: 256 bytes.
inline void order_by_cluster(const int* x, int* scratch, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, i = blockIdx.x * 64 + t, other = (blockIdx.x ^ 1) * 64 + t;
    SharedSpan<int> tile(dynamic_shared(), 64);
    const int mine = load_global<int>(x + i);
    store_global(scratch + i, mine);
    if (!broken("shared store after the arrival")) tile.store(t, mine);
    if (broken("block barrier in place of the cluster barrier")) {
        __syncthreads();
    } else if (!broken("barrier removed")) {
        cluster_arrive();
        if (broken("global load before the wait")) load_global<int>(scratch + other);
        if (broken("shared load before the wait") && t == 63) tile.load(0);
        if (broken("shared store after the arrival")) tile.store(t, mine);
        cluster_wait();
    }
    const int sum = load_global<int>(scratch + other) + tile.load(63 - t);
    if (!broken("second barrier removed")) {
        cluster_arrive();
        if (broken("shared load after the arrival")) tile.load(63 - t);
        cluster_wait();
    }
    tile.store(t, sum);
    store_global(y + i, tile.load(t));
}

// y[block] = 2 * 16 * (rank + 1) + the same of the other block, from two tensor-core products of ones with
// rank + 1 and a cluster barrier between them. Blocks: 32 threads; shared: 128 bytes.
inline void multiply_in_cluster(float* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, one = 0x3c003c00u, value = cluster_rank() ? 0x40004000u : one;
    SharedSpan<float> received(dynamic_shared(), 32);
    const uint32_t a[4] = {one, one, one, one}, b[2] = {value, value};
    float c[4] = {};
    mma_m16n8k16(c, a, b);
    cluster_arrive();
    cluster_wait();
    if (!(broken("one lane skips the product") && cluster_rank() == 1 && t == 7)) mma_m16n8k16(c, a, b);
    store_peer(received, t, c[t & 3], cluster_rank() ^ 1);
    cluster_arrive();
    cluster_wait();
    store_global(y + 32 * blockIdx.x + t, c[t & 3] + received.load(t));
}

// y = x + the other block's x reversed, sent to a transaction barrier; early = what the sends left before
// anybody waited. Blocks: 64 threads, two in a cluster; shared: 256 bytes and 8 for the barrier.
inline void send_in_cluster(const float* x, float* y, float* early) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, rank = cluster_rank(), i = blockIdx.x * 64 + t;
    SharedSpan<float> received(dynamic_shared(), 64);
    const TransactionBarrier barrier(SharedSpan<unsigned long long>(dynamic_shared() + 256, 1), 0);
    const auto prepare = [&] {
        if (t || broken("initialize removed")) return;
        barrier.initialize();
        if (broken("make_visible removed")) return;
        TransactionBarrier::make_visible();
        barrier.expect(256);
    };
    if (!broken("initialized after the arrival")) prepare();
    if (!broken("cluster barrier removed")) cluster_arrive();
    if (broken("initialized after the arrival")) prepare();
    if (broken("element used after the arrival")) received.store(t, 0);
    if (!broken("cluster barrier removed")) cluster_wait();
    const float mine = load_global<float>(x + i);
    unsigned to = 63 - t;
    if (broken("index off by one")) to = 64 - t;
    if (broken("two sends to one element")) to = t / 2;
    if (!(broken("one send removed") && rank == 1 && t == 9))
        barrier.send(received, to, mine, broken("rank outside the cluster") ? 2 : rank ^ 1);
    float before;
    std::memcpy(&before, dynamic_shared() + 4 * t, 4);
    store_global(early + i, before);
    __syncthreads();
    if (broken("nobody waits")) return;
    const bool hasty = broken("one thread does not wait") && rank == 0 && t == 3;
    if (!hasty && !broken("wait removed")) barrier.wait();
    store_global(y + i, mine + received.load(t));
}
