// Kernels that use warp collectives with full and partial masks.
#pragma once
#include "fault.h"

// y[t] = sum of x over t's half warp. Block: 64 threads.
inline void sum_half_warps(const float* x, float* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, lane = t & 31;
    unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    if (broken("mask leaves out the caller")) mask = ~mask;
    if (broken("one lane has another mask") && lane == 3) mask = ~0u;
    if (broken("mask names an exited lane") && lane == 7) return;
    if (broken("one lane waits elsewhere") && lane == 7) __syncthreads();
    float sum = load_global<float>(x + t);
    for (int step = 8; step > 0; step /= 2) {
        if (broken("one lane calls another operation") && lane == 5)
            __ballot_sync(mask, 1);
        else if (broken("one lane moves eight bytes") && lane == 5)
            sum += static_cast<float>(__shfl_xor_sync(mask, double{0}, step));
        else
            sum += __shfl_xor_sync(
                mask,
                sum,
                broken("source outside the mask") ? 16 : step,
                broken("width not a power of two") ? 24 : 32);
    }
    store_global(y + t, sum);
    if (broken("lane exits while others wait") && lane != 9) __syncwarp();
}

// Half warps meet on their own first, then all together; lanes 0-15 wait at the full barrier meanwhile.
inline void nested_masks(unsigned* y) {
    const unsigned lane = threadIdx.x & 31;
    unsigned votes = 0;
    if (lane >= 16) votes = __ballot_sync(0xffff0000u, lane & 1);
    __syncwarp();
    sm70_emulator::store_global(y + threadIdx.x, votes + __ballot_sync(~0u, lane < 3));
}

// All shuffles of one value per lane: y[k][lane].
inline void all_shuffles(const int* x, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    const int value = load_global<int>(x + t);
    store_global(y + t, __shfl_sync(~0u, value, 37));
    store_global(y + 32 + t, __shfl_sync(~0u, value, 2, 8));
    store_global(y + 64 + t, __shfl_xor_sync(~0u, value, 5));
    store_global(y + 96 + t, __shfl_xor_sync(~0u, value, 8, 8));
    store_global(y + 128 + t, __shfl_down_sync(~0u, value, 3, 16));
    store_global(y + 160 + t, __shfl_up_sync(~0u, value, 3, 16));
}

// One tensor-core product per warp with fragments from memory; the size of the register arrays picks the
// shape.
template <int a_count, int b_count, int c_count, class Multiply>
void multiply_fragments(const uint32_t* a, const uint32_t* b, float* c, Multiply multiply) {
    using namespace sm70_emulator;
    const unsigned lane = threadIdx.x;
    uint32_t a_registers[a_count], b_registers[b_count];
    float c_registers[c_count];
    for (int i = 0; i < a_count; ++i) {
        const int from = broken("A registers swapped") ? a_count - 1 - i : i;
        a_registers[i] = load_global<uint32_t>(a + a_count * lane + from);
    }
    for (int i = 0; i < b_count; ++i) b_registers[i] = load_global<uint32_t>(b + b_count * lane + i);
    const unsigned source = broken("two rows of C swapped") ? lane ^ 1 : lane;
    for (int i = 0; i < c_count; ++i) c_registers[i] = load_global<float>(c + c_count * source + i);
    if (!(broken("one lane skips the product") && lane == 11))
        multiply(c_registers, a_registers, b_registers);
    __syncwarp();
    for (int i = 0; i < c_count; ++i) store_global(c + c_count * source + i, c_registers[i]);
}
