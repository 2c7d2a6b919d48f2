// What a kernel may use of CUDA, in one place: the same kernel source is compiled for a GPU (NVRTC or nvcc) and,
// with SM70_EMULATED defined, for the CPU emulator of the tests. Kernels reach memory only through the functions
// and the span below, so that the emulator sees every access; on the GPU they are plain loads and stores.
#pragma once

#include <cuda_fp16.h>

#ifdef SM70_EMULATED

#include "emulator/emulator.h"

#define SM70_DEVICE inline
#define SM70_KERNEL(...) inline void

namespace sm70 {

using sm70_emulator::dynamic_shared;
using sm70_emulator::SharedSpan;
using sm70_emulator::Site;

template <class T>
T load_global(const T* address, Site site = Site::here()) {
  return sm70_emulator::load_global<T>(address, site);
}

template <class T>
T load_global_streaming(const T* address, Site site = Site::here()) {
  return sm70_emulator::load_global<T>(address, site);
}

template <class T>
void store_global(T* address, T value, Site site = Site::here()) {
  sm70_emulator::store_global<T>(address, value, site);
}

}  // namespace sm70

#else

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;

#define SM70_DEVICE __device__ __forceinline__
// Arguments: threads of a block and, where it matters, blocks that a multiprocessor must have room for.
#define SM70_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)

namespace sm70 {

template <class T>
SM70_DEVICE T load_global(const T* address) {
  return *address;
}

// Weights are read once per launch: keep them out of L1, which the activations want for themselves.
// PTX ISA, ld.global and ld.global.nc with level::eviction_priority: sm_70 and up. Below 8.0 without .nc, which would
// let the assembler move a load over a barrier: there it stands between loads of x and waits for them, and on 7.x a wait
// is for all loads that share one of six scoreboards.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SM70_STREAMING_LOAD "ld.global.L1::no_allocate"
#else
#define SM70_STREAMING_LOAD "ld.global.nc.L1::no_allocate"
#endif

SM70_DEVICE uint4 load_global_streaming(const uint4* address) {
  uint4 v;
  asm volatile(SM70_STREAMING_LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

SM70_DEVICE uint2 load_global_streaming(const uint2* address) {
  uint2 v;
  asm volatile(SM70_STREAMING_LOAD ".v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
  return v;
}

template <class T>
SM70_DEVICE void store_global(T* address, T value) {
  *address = value;
}

SM70_DEVICE unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char sm70_dynamic_shared[];
  return sm70_dynamic_shared;
}

// A window of shared memory: a pointer here, a bounds and race check in the emulator.
template <class T>
class SharedSpan {
 public:
  SM70_DEVICE SharedSpan(unsigned char* base, unsigned /* elements */) : data_(reinterpret_cast<T*>(base)) {}
  // Signed indices, whose sums do not wrap: the constant part of one goes into the instruction.
  SM70_DEVICE T load(int index) const { return data_[index]; }
  SM70_DEVICE void store(int index, T value) const { data_[index] = value; }
  SM70_DEVICE T* address(int index) const { return data_ + index; }

 private:
  T* data_;
};

}  // namespace sm70

#endif

namespace sm70 {

// 1 / x to 1 ulp, 0 where that is subnormal; a division would bring a subroutine for the cases that this leaves out.
// PTX ISA, rcp.approx.ftz.f32: every sm.
SM70_DEVICE float reciprocal(float x) {
#ifdef SM70_EMULATED
  return 1.0f / x;
#else
  float result;
  asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// Two packed halves travel as one 32-bit word; the unions stay inside these functions.
SM70_DEVICE uint32_t pack_half2(__half2 value) {
  union {
    __half2 half2;
    uint32_t word;
  } bits;
  bits.half2 = value;
  return bits.word;
}

SM70_DEVICE __half2 unpack_half2(uint32_t word) {
  union {
    uint32_t word;
    __half2 half2;
  } bits;
  bits.word = word;
  return bits.half2;
}

SM70_DEVICE uint32_t multiply_half2(uint32_t a, uint32_t b) {
  return pack_half2(__hmul2(unpack_half2(a), unpack_half2(b)));
}

SM70_DEVICE uint32_t broadcast_low(uint32_t a) { return pack_half2(__low2half2(unpack_half2(a))); }
SM70_DEVICE uint32_t broadcast_high(uint32_t a) { return pack_half2(__high2half2(unpack_half2(a))); }

}  // namespace sm70
