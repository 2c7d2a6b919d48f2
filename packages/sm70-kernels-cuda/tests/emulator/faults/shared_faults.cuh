// Kernels that pass values through shared memory, across the block and within a warp.
#pragma once
#include "fault.h"

// y[t] = x[63 - t] + x[t ^ 1], by two rounds through the same 64 words. Block: 64 threads; shared: 256 bytes.
inline void exchange_in_block(const int* x, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<int> tile(dynamic_shared(), broken("span longer than the launch's bytes") ? 65 : 64);
    if (broken("exit before the barrier") && t == 40) return;
    const int mine = load_global<int>(x + t);
    if (!(broken("one store removed") && t == 5))
        tile.store(broken("two threads store to one word") ? t / 2 : t, mine);
    if (broken("barrier under a divergent if")) {
        if (t < 32) __syncthreads();
    } else if (broken("barrier in both branches of a divergent if")) {
        if (t < 32)
            __syncthreads();
        else
            __syncthreads();
    } else if (broken("block barrier made a warp barrier")) {
        __syncwarp();
    } else if (!broken("first barrier removed")) {
        __syncthreads();
    }
    unsigned from = 63 - t;
    if (broken("shared index off by one")) from = 64 - t;
    if (broken("shared index far out")) from = 100 + t;
    int sum = tile[from];
    if (!broken("second barrier removed")) __syncthreads();
    tile[t] = mine;
    if (!broken("third barrier removed")) __syncthreads();
    sum += tile.load(t ^ 1);
    store_global(y + t, sum);
}

// y[t] = x[t + 1] + x[t - 1] within each half of a warp, by two rounds and half-warp barriers. Block: 32
// threads.
inline void exchange_in_half_warps(const int* x, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, half = t & 16, half_mask = 0xffffu << half;
    SharedSpan<int> tile(dynamic_shared(), 32);
    tile.store(t, load_global<int>(x + t));
    if (broken("shuffle in place of the barrier"))
        __shfl_sync(half_mask, 0, 0, 16);
    else if (!broken("warp barrier removed"))
        __syncwarp(half_mask);
    const unsigned next = broken("reads the other half") ? (t + 1) & 31 : half | ((t + 1) & 15);
    int sum = tile.load(next);
    // Lanes read at different warp clocks here, and the store below must come after all of those reads.
    if (half) __syncwarp(half_mask);
    if (!half && !broken("second warp barrier removed")) __syncwarp(half_mask);
    tile.store(t, tile.load(t));
    __syncwarp(half_mask);
    store_global(y + t, sum + tile.load(half | ((t - 1) & 15)));
}

// All lanes read word 0, one lane at a time with a warp barrier of the pairs between, then lane 0 overwrites
// it.
inline void staggered_readers(int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<int> word(dynamic_shared(), 1);
    if (t == 0) word.store(0, 7);
    __syncwarp();
    if (t >= 4) __syncwarp(0xfffffff0u);
    const int seen = word.load(0);
    unsigned waited_for = ~0u;
    if (broken("lane 31 not waited for")) waited_for = t < 31 ? 0x7fffffffu : 0x80000000u;
    if (broken("lane 1 not waited for")) waited_for = t != 1 ? 0xfffffffdu : 0x00000002u;
    __syncwarp(waited_for);
    __ballot_sync(~0u, 1);  // brings all lanes here, but orders no memory
    if (t == 0) word.store(0, 8);
    store_global(y + t, seen);
}

// Bytes, halves and 16-byte vectors in the same words. Block: 64 threads; shared: 256 bytes.
inline void mixed_widths(const unsigned char* x, unsigned char* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<unsigned char> bytes(dynamic_shared(), 64);
    SharedSpan<unsigned short> halves(dynamic_shared() + 64, 32);
    SharedSpan<uint4> vectors(dynamic_shared(), 4), copies(dynamic_shared() + 128, 4);
    bytes.store(broken("byte stored twice") && t == 9 ? 8 : t, load_global<unsigned char>(x + t));
    __syncthreads();
    if (t < 32) halves.store(t, static_cast<unsigned short>(bytes[2 * t] | bytes[2 * t + 1] << 8));
    if (!broken("barrier removed")) __syncthreads();
    if (t < 4) {
        const uint4 value =
            halves.subspan(8 * (t % 4), 8).load_vector<uint4>(broken("vector index not a multiple") ? 4 : 0);
        vectors[t] = value;
        copies.store(t, value);
    }
    if (!broken("barrier before narrow loads removed")) __syncthreads();
    if (broken("vector over the end") && t == 0) bytes.load_vector<uint2>(60);
    if (broken("misaligned vector") && t == 0) bytes.load_vector<uint2>(4);
    // Words written whole and then read as bytes.
    const unsigned char copy = SharedSpan<unsigned char>(dynamic_shared() + 128, 64).load(t);
    store_global(y + t, static_cast<unsigned char>(copy == bytes[t] ? copy : 0));
}
