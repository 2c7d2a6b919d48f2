// Gated mode: w[N, K] is a merged gate and up projection, the rows of the gate first, and y[M, N / 2] = silu(gate) * up.
//
// The weight stays as it is for the plain product; a kernel only visits its tiles in another order. Tile 2 p of the product
// is tile p of the gate, tile 2 p + 1 is tile p of up, so that every block of threads that has two tiles ends with the sums of
// gate and up for the same 16 columns of y, and a warp still reads whole layout blocks one after the other. N % 64 == 0. Blocks
// of one tile, those of the strip kernel from 7.5 on, share a pair of tiles.
//
// Both sums stay in FP32: factors, biases, silu and the product are applied to them, and one rounding to FP16 follows.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

constexpr int kGatedRows = 2 * nvfp4_block::kRows;  // of the product for 16 columns of y

// Columns of y.
template <class Arguments>
SM70_DEVICE int output_columns(const Arguments& args) {
  return args.gated ? args.n / 2 : args.n;
}

// Row tile of the weight that the product's tile is. A strip may end beyond the last one: its warps read a valid tile, and
// what they make of it is dropped.
template <class Arguments>
SM70_DEVICE int weight_tile(const Arguments& args, int tile) {
  const int tiles = (args.n + nvfp4_block::kRows - 1) / nvfp4_block::kRows;
  const int valid = tile < tiles ? tile : tiles - 1;
  return args.gated ? valid / 2 + valid % 2 * (tiles / 2) : valid;
}

// Row of the product, within a strip, with the gate of a strip's column of y; that of up is kRows further on.
SM70_DEVICE constexpr int gate_row(int column) {
  return column / nvfp4_block::kRows * kGatedRows + column % nvfp4_block::kRows;
}

// One row's sum as the layer defines it, in FP32.
template <class Scales, class Arguments>
SM70_DEVICE float linear_value(const Arguments& args, int row, float sum) {
  float value = sum * Scales::kUnscale * load_global(args.row_factor + row);
  if (args.bias != nullptr) value += __half2float(load_global(args.bias + row));
  return value;
}

// The exponential is infinite from x = -89 on: the quotient is then -0, as the limit is.
SM70_DEVICE float silu(float x) { return x * reciprocal(1.0f + expf(-x)); }

SM70_DEVICE __half gated_value(float gate, float up) { return __float2half_rn(silu(gate) * up); }

// y of column n < N / 2.
template <class Scales, class Arguments>
SM70_DEVICE __half gated_result(const Arguments& args, int n, float gate_sum, float up_sum) {
  const float gate = linear_value<Scales>(args, n, gate_sum);
  const float up = linear_value<Scales>(args, args.n / 2 + n, up_sum);
  return gated_value(gate, up);
}

}  // namespace sm70
