// Tensor-core products of a warpgroup, compute capability 9.0: wgmma.m64nNk16 with A in registers and B in shared memory.
//
// The four warps of a warpgroup hold 16 rows each of A and of D, in the fragments of mma.m16n8k16: the decoded weights of
// nvfp4_block are A as they are. B, the tokens, lies in core matrices of 8 tokens by 8 values of k, 128 contiguous bytes, not
// swizzled: those of neighbouring tokens follow each other, and k_stride words (of 16 bytes) lie between the two of one
// product. The products are asynchronous: A, B and D belong to the tensor cores from warpgroup_multiply to
// warpgroup_wait. PTX ISA, wgmma: sm_90a.
#pragma once

#include "sm70/common/hopper.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

#ifdef SM70_EMULATED

using sm70_emulator::warpgroup_commit;
using sm70_emulator::warpgroup_fence;
using sm70_emulator::warpgroup_wait;

struct MatrixCursor {
  SharedSpan<uint4> b;
  int index;
  unsigned k_stride;

  MatrixCursor(const SharedSpan<uint4>& span, int first, unsigned stride) : b(span), index(first), k_stride(stride) {}
};

template <int kTokens>
void warpgroup_multiply(float (&d)[kTokens / 2], const uint32_t (&a)[4], const MatrixCursor& b, int words) {
  sm70_emulator::warpgroup_multiply<kTokens>(d, a, b.b, static_cast<unsigned>(b.index + words), b.k_stride);
}

#else

// Before the first product after registers of A or D were written.
SM70_DEVICE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SM70_DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all committed groups but the last kPending.
template <int kPending = 0>
SM70_DEVICE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Where B begins. PTX ISA, matrix descriptor: address, offset between the core matrices along k, and along the tokens, in 16
// bytes.
class MatrixCursor {
 public:
  // By all lanes of a warp. What one lane knows is in a register of the warp, as the product wants it; of 32 equal values each
  // product would make one anew.
  SM70_DEVICE MatrixCursor(const SharedSpan<uint4>& b, int index, unsigned k_stride) {
    // The address has 18 bits here; above them it names the block of a cluster.
    const unsigned low = ((shared_address(b.address(0)) & 0x3ffffu) >> 4) + static_cast<unsigned>(index) + (k_stride << 16);
    low_ = __shfl_sync(0xffffffffu, low, 0);
  }

  SM70_DEVICE unsigned long long descriptor(int words) const {
    constexpr unsigned long long kTokenStride = 8;
    return (low_ + static_cast<unsigned>(words)) | kTokenStride << 32;
  }

 private:
  unsigned low_;
};

#define SM70_FLOATS4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SM70_FLOATS8(d, i) SM70_FLOATS4(d, i), SM70_FLOATS4(d, i + 4)
#define SM70_FLOATS16(d, i) SM70_FLOATS8(d, i), SM70_FLOATS8(d, i + 8)
#define SM70_FLOATS32(d, i) SM70_FLOATS16(d, i), SM70_FLOATS16(d, i + 16)
#define SM70_FLOATS64(d, i) SM70_FLOATS32(d, i), SM70_FLOATS32(d, i + 32)
#define SM70_FLOATS128(d, i) SM70_FLOATS64(d, i), SM70_FLOATS64(d, i + 64)

// The operands of the text are numbered: first D, then the four registers of A, then B's descriptor.

SM70_DEVICE void multiply_n32(float (&d)[16], const uint32_t (&a)[4], unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : SM70_FLOATS16(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

SM70_DEVICE void multiply_n64(float (&d)[32], const uint32_t (&a)[4], unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : SM70_FLOATS32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

SM70_DEVICE void multiply_n128(float (&d)[64], const uint32_t (&a)[4], unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : SM70_FLOATS64(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

SM70_DEVICE void multiply_n256(float (&d)[128], const uint32_t (&a)[4], unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "{%128, %129, %130, %131}, %132, 1, 1, 1, 0;"
      : SM70_FLOATS128(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef SM70_FLOATS4
#undef SM70_FLOATS8
#undef SM70_FLOATS16
#undef SM70_FLOATS32
#undef SM70_FLOATS64
#undef SM70_FLOATS128

// D += A * B for 64 rows, kTokens tokens and 16 values of k. B begins so many words after the cursor.
template <int kTokens>
SM70_DEVICE void warpgroup_multiply(float (&d)[kTokens / 2], const uint32_t (&a)[4], const MatrixCursor& b, int words) {
  static_assert(kTokens == 32 || kTokens == 64 || kTokens == 128 || kTokens == 256, "the products above");
  const unsigned long long descriptor = b.descriptor(words);
  if constexpr (kTokens == 32) multiply_n32(d, a, descriptor);
  if constexpr (kTokens == 64) multiply_n64(d, a, descriptor);
  if constexpr (kTokens == 128) multiply_n128(d, a, descriptor);
  if constexpr (kTokens == 256) multiply_n256(d, a, descriptor);
}

#endif

}  // namespace sm70
