// Tensor-core atom of the instructions with 16 rows and 8 columns: what mma.m16n8k8 and mma.m16n8k16 share.
//
// A warp covers one 16-row tile of the layout (the A operand) and 8 tokens (the B operand). The order of K inside an
// instruction is free as long as both operands agree, and the layout uses that: lane t of a quad owns group t of each
// 64-column chunk, so its four K positions of product i are columns 16 t + 4 i to 16 t + 4 i + 3. A lane therefore needs
// one scale for a whole atom, and its activations are 32 consecutive bytes of a row of x.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

// Product::multiply(d, weight, x_low, x_high) adds the product of 16 columns of K to a lane's part of the 16 x 8 sums.
template <class Product>
struct RowTileAtom {
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
    Product::multiply(acc.d[token_tile], weight, x_low, x_high);
  }

  // Calls visit(token, row, value) for every element that this lane holds of a token tile; `row` counts the warp's rows.
  // D fragment: PTX ISA, "Matrix fragments for mma.m16n8k8" and "for mma.m16n8k16", which are the same.
  template <int kTokenTiles, class Visit>
  SM70_DEVICE static void visit(const Accumulator<kTokenTiles>& acc, int token_tile, const Lane& lane, Visit visit) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      visit(lane.quad_lane * 2 + (i & 1), lane.row + (i >> 1) * 8, acc.d[token_tile][i]);
    }
  }
};

}  // namespace sm70
