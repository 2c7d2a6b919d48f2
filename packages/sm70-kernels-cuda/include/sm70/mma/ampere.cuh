// Tensor-core atom of compute capability 8.0 and up: mma.m16n8k16.
#pragma once

#include "sm70/mma/row_tile.cuh"

namespace sm70 {

// PTX ISA, mma.sync.aligned.m16n8k16 with .f16 operands: sm_80 and up.
SM70_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef SM70_EMULATED
  sm70_emulator::mma_m16n8k16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

struct AmpereProduct {
  SM70_DEVICE static void multiply(float (&d)[4], const nvfp4_block::Quad& weight, uint32_t x_low, uint32_t x_high) {
    const uint32_t a[4] = {weight.row_g[0], weight.row_g8[0], weight.row_g[1], weight.row_g8[1]};
    const uint32_t b[2] = {x_low, x_high};
    mma_m16n8k16(d, a, b);
  }
};

using AmpereAtom = RowTileAtom<AmpereProduct>;

}  // namespace sm70
