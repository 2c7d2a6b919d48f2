// Tensor-core atom of compute capability 8.0 and up: mma.m16n8k16.
//
// A warp covers one 16-row tile of the layout (the A operand) and 8 tokens (the B operand). The order of K inside an
// instruction is free as long as both operands agree, and the layout uses that: lane t of a quad owns group t of each
// 64-column chunk, so its four K positions of instruction i are columns 16 t + 4 i to 16 t + 4 i + 3. A lane therefore needs
// one scale for a whole atom, and its activations are 32 consecutive bytes of a row of x.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

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

struct AmpereAtom {
  static constexpr int kTiles = 1;
  static constexpr int kUnitsPerBlock = 1;  // the four lanes of a quad read the four groups at once

  template <int kTokenTiles>
  struct Accumulator {
    float d[kTokenTiles][4];
  };

  struct Lane {
    int tile;
    int row;  // g of the layout, and the token within its tile of 8
    int quad_lane;
    SM70_DEVICE explicit Lane(int lane_index) : tile(0), row(lane_index >> 2), quad_lane(lane_index & 3) {}
    SM70_DEVICE int block(int unit) const { return unit; }
    SM70_DEVICE int group(int) const { return quad_lane; }
  };

  template <int kTokenTiles>
  SM70_DEVICE static void multiply(Accumulator<kTokenTiles>& acc, int token_tile, const nvfp4_block::Quad& weight,
                                   uint32_t x_low, uint32_t x_high) {
    const uint32_t a[4] = {weight.row_g[0], weight.row_g8[0], weight.row_g[1], weight.row_g8[1]};
    const uint32_t b[2] = {x_low, x_high};
    mma_m16n8k16(acc.d[token_tile], a, b);
  }

  // Calls visit(token, row, value) for every element that this lane holds of a token tile; `row` counts the warp's rows.
  // D fragment: PTX ISA, "Matrix fragments for mma.m16n8k16".
  template <int kTokenTiles, class Visit>
  SM70_DEVICE static void visit(const Accumulator<kTokenTiles>& acc, int token_tile, const Lane& lane, Visit visit) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      visit(lane.quad_lane * 2 + (i & 1), lane.row + (i >> 1) * 8, acc.d[token_tile][i]);
    }
  }
};

}  // namespace sm70
