// Tensor-core atom of compute capability 7.0 and 7.2: mma.m8n8k4, four independent 8 x 8 x 4 products a warp.
//
// Each quadpair owns one 16-row tile of the layout, so a warp covers 64 rows (output columns) of one 16-column group of K.
// Tokens are the A operand, weights the B operand: every quadpair multiplies the same tokens, which makes a warp's
// instruction an 8 x 32 x 4 step. Giving each quadpair its own columns instead of its own slice of K is the quadpair-N
// idea of v100-skinny (MIT licence); see docs/kernels/nvfp4.md.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

// PTX ISA, mma.sync.aligned.m8n8k4: native on sm_70 and sm_75, emulated by the compiler (slow) from sm_80 on.
SM70_DEVICE void mma_m8n8k4(float (&d)[8], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
#ifdef SM70_EMULATED
  sm70_emulator::mma_m8n8k4(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, "
      "{%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
#endif
}

struct VoltaAtom {
  static constexpr int kTiles = 4;  // 16-row tiles of a warp, one a quadpair
  static constexpr int kUnitsPerBlock = nvfp4_block::kGroups;

  template <int kTokenTiles>
  struct Accumulator {
    float d[kTokenTiles][2][8];  // [token tile][rows g or g + 8][fragment]
  };

  struct Lane {
    int tile;  // which of the warp's tiles
    int row;   // g of the layout, and the token within its tile of 8
    int lane;
    SM70_DEVICE explicit Lane(int lane_index)
        : tile((lane_index >> 2) & 3), row((lane_index & 3) | ((lane_index >> 4) << 2)), lane(lane_index) {}
    SM70_DEVICE int block(int unit) const { return unit / kUnitsPerBlock; }
    SM70_DEVICE int group(int unit) const { return unit % kUnitsPerBlock; }
  };

  template <int kTokenTiles>
  SM70_DEVICE static void multiply(Accumulator<kTokenTiles>& acc, int token_tile, const nvfp4_block::Quad& weight,
                                   uint32_t x_low, uint32_t x_high) {
    const uint32_t x[2] = {x_low, x_high};
    mma_m8n8k4(acc.d[token_tile][0], x, weight.row_g);
    mma_m8n8k4(acc.d[token_tile][1], x, weight.row_g8);
  }

  // Calls visit(token, row, value) for every element that this lane holds of a token tile; `row` counts the warp's rows.
  // D fragment of m8n8k4 with .f32: PTX ISA, "Matrix fragments for mma.m8n8k4".
  template <int kTokenTiles, class Visit>
  SM70_DEVICE static void visit(const Accumulator<kTokenTiles>& acc, int token_tile, const Lane& lane, Visit visit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = (lane.lane & 1) | (i & 2) | ((lane.lane >> 4) << 2);
        const int column = (i & 1) | (lane.lane & 2) | (i & 4);
        visit(token, lane.tile * nvfp4_block::kRows + half * 8 + column, acc.d[token_tile][half][i]);
      }
    }
  }
};

}  // namespace sm70
