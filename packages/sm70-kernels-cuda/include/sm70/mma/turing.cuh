// Tensor-core atom of compute capability 7.5: mma.m16n8k8, twice for 16 columns of K.
//
// The A and B operands of an m16n8k16 are those of two m16n8k8 one after the other, and the sums are in the same places. So
// a lane reads the same bytes as on 8.0 and up. m8n8k4 would run too, but PTX ISA says that it is optimised for sm_70 and
// may be substantially slower elsewhere.
#pragma once

#include "sm70/mma/row_tile.cuh"

namespace sm70 {

// PTX ISA, mma.sync.aligned.m16n8k8 with .f16 operands: sm_75 and up.
SM70_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
#ifdef SM70_EMULATED
  sm70_emulator::mma_m16n8k8(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

struct TuringProduct {
  SM70_DEVICE static void multiply(float (&d)[4], const nvfp4_block::Quad& weight, uint32_t x_low, uint32_t x_high) {
    const uint32_t a_low[2] = {weight.row_g[0], weight.row_g8[0]};
    const uint32_t a_high[2] = {weight.row_g[1], weight.row_g8[1]};
    const uint32_t b_low[1] = {x_low};
    const uint32_t b_high[1] = {x_high};
    mma_m16n8k8(d, a_low, b_low);
    mma_m16n8k8(d, a_high, b_high);
  }
};

using TuringAtom = RowTileAtom<TuringProduct>;

}  // namespace sm70
