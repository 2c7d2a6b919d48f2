// The names that device code knows without an include: built-in variables, barriers, collectives, small
// intrinsics.
#pragma once
#include <cuda_fp16.h>

#include <cmath>

#include "emulator/cluster.h"
#include "emulator/collectives.h"
#include "emulator/global_memory.h"
#include "emulator/mma.h"
#include "emulator/previous_kernel.h"
#include "emulator/shared_memory.h"
#include "emulator/transaction.h"
#include "emulator/warpgroup.h"

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (static_cast<const uint3&>(::sm70_emulator::machine.current->thread))
#define blockIdx (static_cast<const uint3&>(::sm70_emulator::machine.block->index))
#define blockDim (static_cast<const dim3&>(::sm70_emulator::machine.block_size))
#define gridDim (static_cast<const dim3&>(::sm70_emulator::machine.grid_size))

inline void __syncthreads(sm70_emulator::Site site = sm70_emulator::Site::here()) {
    sm70_emulator::block_barrier(site);
}

inline void __syncwarp(unsigned mask = ~0u, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    sm70_emulator::sync_warp(mask, site);
}

template <class T>
T __shfl_sync(
    unsigned mask,
    T value,
    int source,
    int width = 32,
    sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::shuffle_index(mask, value, source, width, site);
}

template <class T>
T __shfl_xor_sync(
    unsigned mask,
    T value,
    int lane_mask,
    int width = 32,
    sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::shuffle_xor(mask, value, lane_mask, width, site);
}

template <class T>
T __shfl_down_sync(
    unsigned mask,
    T value,
    unsigned delta,
    int width = 32,
    sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::shuffle_down(mask, value, delta, width, site);
}

template <class T>
T __shfl_up_sync(
    unsigned mask,
    T value,
    unsigned delta,
    int width = 32,
    sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::shuffle_up(mask, value, delta, width, site);
}

inline unsigned __ballot_sync(
    unsigned mask, int predicate, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::ballot(mask, predicate, site);
}

inline int atomicAdd(int* pointer, int value, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::atomic_add(pointer, value, site);
}

inline unsigned atomicAdd(
    unsigned* pointer, unsigned value, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::atomic_add(pointer, value, site);
}

inline float atomicAdd(float* pointer, float value, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::atomic_add(pointer, value, site);
}

inline void __threadfence() {
    sm70_emulator::thread_fence();
}

template <class T>
T __ldg(const T* pointer, sm70_emulator::Site site = sm70_emulator::Site::here()) {
    return sm70_emulator::load_global<T>(pointer, site);
}

// Byte i of the result is byte (selector >> 4i & 7) of b:a, or that byte's sign spread over eight bits.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned choice = selector >> (4 * i) & 15;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

inline int min(int a, int b) {
    return b < a ? b : a;
}
inline int max(int a, int b) {
    return a < b ? b : a;
}
inline unsigned min(unsigned a, unsigned b) {
    return b < a ? b : a;
}
inline unsigned max(unsigned a, unsigned b) {
    return a < b ? b : a;
}
inline float min(float a, float b) {
    return fminf(a, b);
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}

namespace sm70_emulator {

// PTX lop3.b32: bit i of the table is the result for the inputs (a, b, c) = (i >> 2, i >> 1, i) & 1.
template <int table>
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
    static_assert(table >= 0 && table < 256, "a look-up table of eight bits");
    uint32_t result = 0;
    for (int i = 0; i < 8; ++i)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

}  // namespace sm70_emulator
