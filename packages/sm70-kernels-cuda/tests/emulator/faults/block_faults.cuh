// Blocks of any size, warps that end early, exceptions and stacks.
#pragma once
#include <stdexcept>

#include "fault.h"

// y[block][t] = number of threads of the block, counted through shared memory; t runs over a
// three-dimensional block.
inline void count_threads(int* y) {
    using namespace sm70_emulator;
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    SharedSpan<int> ones(dynamic_shared(), threads);
    ones[t] = 1;
    for (unsigned step = 1; step < threads; step *= 2) {
        __syncthreads();
        const int other = t + step < threads ? ones[t + step] : 0;
        __syncthreads();
        ones[t] += other;
    }
    __syncthreads();
    store_global(y + block * threads + t, static_cast<int>(ones[0]));
}

// Warps other than the first end after the last block barrier; the first goes on with warp collectives.
inline void early_exit(int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<int> values(dynamic_shared(), blockDim.x);
    if (broken("warps exit before the last barrier") && t >= 64) return;
    values[t] = static_cast<int>(t);
    __syncthreads();
    if (t >= 32) return;
    if (broken("barrier after warps exited")) __syncthreads();
    int sum = 0;
    for (unsigned i = t; i < blockDim.x; i += 32) sum += values[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (t == 0) store_global(y, sum);
}

inline void only_barriers() {
    if (broken("one lane waits for its warp") && threadIdx.x == 3) __syncwarp();
    if (!broken("barrier under a divergent if") || threadIdx.x < 32) __syncthreads();
    if (broken("standard exception") && threadIdx.x == 3) throw std::out_of_range("thrown by the kernel");
    if (broken("other exception") && threadIdx.x == 3) throw 7;
    __syncthreads();
}

// Touches `bytes` of the stack in each thread.
inline int use_stack(int bytes) {
    volatile unsigned char block[4096];
    for (unsigned i = 0; i < sizeof block; i += 8) block[i] = static_cast<unsigned char>(bytes);
    return bytes <= 4096 ? block[8] : use_stack(bytes - 4096) + block[16];
}

inline void deep_stack(int* y) {
    const int sum = use_stack(broken("stack overflow") ? 264 << 10 : 128 << 10);
    __syncthreads();
    sm70_emulator::store_global(y + threadIdx.x, sum);
}

// y[0..3]: results of the plain intrinsics on x[0..2].
inline void intrinsics(const uint32_t* x, uint32_t* y) {
    using namespace sm70_emulator;
    const uint32_t a = load_global<uint32_t>(x), b = load_global<uint32_t>(x + 1),
                   c = load_global<uint32_t>(x + 2);
    store_global(y, lop3<0xE2>(a, b, c));
    store_global(y + 1, lop3<0x6A>(a, b, c));
    store_global(y + 2, __byte_perm(a, b, 0x7610));
    store_global(y + 3, __byte_perm(a, b, 0xf3c8));
    const __half2 product = __hmul2(__floats2half2_rn(1.5f, -2.f), __float2half2_rn(0.25f));
    store_global(y + 4, product);
}
