// Kernels that load and store global memory in vectors, and one that combines the results of several blocks.
#pragma once
#include "fault.h"

// y = x, 16 bytes per thread. Both have 16 * threads bytes.
inline void copy_vectors(const unsigned char* x, unsigned char* y) {
    using namespace sm70_emulator;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char* from =
        x + 16 * (i + (broken("load index off by one") ? 1 : 0)) + (broken("misaligned load") ? 8 : 0);
    unsigned char* to =
        y + 16 * (broken("store before the start") ? i - 1 : i) + (broken("misaligned store") ? 4 : 0);
    if (broken("store to the input")) to = const_cast<unsigned char*>(from);
    if (broken("two threads store to one address")) to = y + 16 * (i & ~1u);
    if (broken("two blocks store to one address")) to = y + 16 * threadIdx.x;
    const uint4 value = broken("load from a shared address") ? load_global<uint4>(dynamic_shared())
                                                             : load_global<uint4>(from);
    store_global(to, value);
}

// y[0] = sum of x over all blocks; the block that arrives last adds the partial sums. x: [blocks, threads].
inline void sum_by_last_block(const int* x, int* partial, unsigned* counter, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<unsigned> ticket(dynamic_shared(), 1);
    SharedSpan<int> values(dynamic_shared() + 16, blockDim.x);
    values.store(t, load_global<int>(x + blockIdx.x * blockDim.x + t));
    __syncthreads();
    if (t == 0) {
        int sum = 0;
        for (unsigned i = 0; i < blockDim.x; ++i) sum += values[i];
        store_global(partial + blockIdx.x, sum);
        if (!broken("fence removed")) __threadfence();
        if (broken("atomic removed"))
            ticket.store(0, blockIdx.x);
        else
            ticket.store(0, atomicAdd(counter, 1u));
    }
    __syncthreads();
    if (ticket.load(0) != gridDim.x - 1 || t != 0) return;
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += load_global<int>(partial + i);
    store_global(y, total);
    store_global(counter, 0u);
}

// y[t] = t + neighbour's value, read back from global memory after a barrier.
inline void read_back(int* scratch, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    store_global(scratch + t, static_cast<int>(t));
    if (!broken("barrier removed")) __syncthreads();
    store_global(y + t, static_cast<int>(t) + load_global<int>(scratch + (t ^ 1)));
}

// Histogram by atomics: y[x % 4] += 1, weights[0] += 0.5.
inline void count_values(const int* x, int* counts, float* weight) {
    using namespace sm70_emulator;
    const int value = __ldg(x + blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(counts + (broken("atomic out of bounds") ? value % 4 + 1 : value % 4), 1);
    atomicAdd(weight, 0.5f);
}

// Thread 0 waits for a flag that nobody sets.
inline void wait_for_flag(unsigned* flag) {
    if (threadIdx.x == 0)
        while (sm70_emulator::load_global<unsigned>(flag) == (broken("flag never set") ? 0u : 1u)) {
        }
}
