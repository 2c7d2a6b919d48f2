// QPN2: y[M, N] = (x[M, K] @ w[N, K]^T) * row_factor[N] + bias[N] for M <= 32, x and y in FP16, sums in FP32;
// w in E2M1 codes with the scales that the parameter `Scales` reads: NVFP4 or MXFP4.
//
//   operand     dtype    layout                         alignment
//   weight      uint8    that of Scales, N x K padded   16 bytes
//   x           FP16     [M, K] row-major, K % 64 == 0  16 bytes
//   row_factor  FP32     [N]                            4 bytes
//   bias        FP16     [N] or null                    2 bytes
//   y           FP16     [M, N] row-major               2 bytes
//
// or y[M, N / 2] in gated mode (gated.cuh).
//
// Decode is bound by reading the weight once. A block of kWarps warps owns one strip of output columns (Atom::kTiles tiles
// of 16 layout rows) and its warps split K, so that many loads are in flight and only one reduction through shared memory
// per 8 tokens follows:
//
//             K ->   unit 0   unit 1   unit 2   unit 3   unit 4   ...
//   strip b          warp 0   warp 1   warp 2   warp 3   warp 0   ...      -> sum over warps in fixed order -> y[:, strip b]
//
// A lane's activations are 32 consecutive bytes of a row of x, read straight from L1. The next unit's 16-byte loads are
// issued before the current unit is multiplied. Every weight fragment is decoded once and used for all token tiles.
// Sums are taken in a fixed order: two runs give the same bits.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/gemm/gated.cuh"
#include "sm70/gemm/linear_arguments.cuh"
#include "sm70/mma/ampere.cuh"
#include "sm70/mma/turing.cuh"
#include "sm70/mma/volta.cuh"

namespace sm70 {

constexpr int kTokenTile = 8;

// Two floats of padding a token keep the lanes of a fragment store on different banks.
template <class Atom>
SM70_DEVICE constexpr int reduction_pitch() {
  return Atom::kTiles * nvfp4_block::kRows + 2;
}

// Eight half2 of x: the 16 columns of one scale group.
struct TokenFragment {
  uint4 low;
  uint4 high;
};

SM70_DEVICE TokenFragment load_tokens(const __half* x) {
  const uint4* address = reinterpret_cast<const uint4*>(x);
  return {load_global(address), load_global(address + 1)};
}

SM70_DEVICE uint32_t token_word(const TokenFragment& fragment, int i) {
  return nvfp4_block::atom_word(i < 4 ? fragment.low : fragment.high, i & 3);
}

template <class Scales, class Atom, int kTokenTiles>
struct Qpn2Warp {
  using Unit = nvfp4_block::UnitOf<Scales>;

  // Where a warp has one tile, blocks 2 p and 2 p + 1 share the gate's tile p and that of up in gated mode: each takes four
  // of a tile's eight pairs of rows g and g + 8 from both, so that it ends with gate and up of 8 columns of y. The loop is
  // that of the plain product. What one of the two reads of a line of 128 bytes is a half, aligned to 64.
  static constexpr bool kHalfTiles = Atom::kTiles == 1;

  typename Atom::Lane lane;
  const uint8_t* tile;  // first block of this lane's 16-row tile
  int row;              // g of the layout
  const __half* x[kTokenTiles];
  int k;

  SM70_DEVICE Qpn2Warp(const LinearArguments& args, int lane_index) : lane(lane_index), k(args.k) {
    const int strip = static_cast<int>(blockIdx.x);
    int wanted = strip * Atom::kTiles + lane.tile;
    row = lane.row;
    if (kHalfTiles && args.gated) {
      wanted = strip / 2 * 2 + lane.row / 4;
      row = strip % 2 * 4 + lane.row % 4;
    }
    const int blocks = (k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns;
    tile = args.weight + static_cast<size_t>(weight_tile(args, wanted)) * blocks * Scales::kBytes;
    // A token tile may end beyond the last token: read a valid one, drop its result.
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int token = i * kTokenTile + lane.row;
      x[i] = args.x + static_cast<size_t>(token < args.m ? token : args.m - 1) * k;
    }
  }

  SM70_DEVICE int units() const {
    return (k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns * Atom::kUnitsPerBlock;
  }

  SM70_DEVICE Unit load(int unit) const {
    const uint8_t* block = tile + static_cast<size_t>(lane.block(unit)) * Scales::kBytes;
    return nvfp4_block::load_unit<Scales>(block, lane.group(unit), row);
  }

  SM70_DEVICE void multiply(typename Atom::template Accumulator<kTokenTiles>& acc, const Unit& weight, int unit) const {
    const int block_column = lane.block(unit) * nvfp4_block::kColumns;
    const int group_column = lane.group(unit) * nvfp4_block::kGroupColumns;
#pragma unroll
    for (int c = 0; c < nvfp4_block::kChunks; ++c) {
      const int chunk_column = block_column + c * nvfp4_block::kChunkColumns;
      if (chunk_column >= k) break;  // the padding of the last block: the same for every lane
      multiply_chunk(acc, weight.atoms[c], nvfp4_block::chunk_scales(weight, c), chunk_column + group_column);
    }
  }

 private:
  SM70_DEVICE void multiply_chunk(typename Atom::template Accumulator<kTokenTiles>& acc, const uint4& atom,
                                  const nvfp4_block::ChunkScales& scales, int column) const {
    TokenFragment tokens[kTokenTiles];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) tokens[i] = load_tokens(x[i] + column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const nvfp4_block::Quad quad = nvfp4_block::decode_quad(nvfp4_block::atom_word(atom, i), scales);
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        Atom::multiply(acc, j, quad, token_word(tokens[j], 2 * i), token_word(tokens[j], 2 * i + 1));
      }
    }
  }
};

// A row's sum over all warps, in their order.
template <class Atom, int kWarps>
SM70_DEVICE float sum_of_warps(const SharedSpan<float>& partial, int token, int row) {
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    sum += partial.load((warp * kTokenTile + token) * reduction_pitch<Atom>() + row);
  }
  return sum;
}

// Adds the warps' sums of one token tile in warp order and writes the results.
template <class Scales, class Atom, int kWarps>
SM70_DEVICE void store_token_tile(const LinearArguments& args, const SharedSpan<float>& partial, int token_tile) {
  constexpr int kStrip = Atom::kTiles * nvfp4_block::kRows;
  for (int i = static_cast<int>(threadIdx.x); i < kTokenTile * kStrip; i += kWarps * 32) {
    const int token = i / kStrip;
    const int row = i % kStrip;
    const int m = token_tile * kTokenTile + token;
    const int n = static_cast<int>(blockIdx.x) * kStrip + row;
    if (m >= args.m || n >= args.n) continue;
    const float value = linear_value<Scales>(args, n, sum_of_warps<Atom, kWarps>(partial, token, row));
    store_global(args.y + static_cast<size_t>(m) * args.n + n, __float2half_rn(value));
  }
}

// The same in gated mode.
template <class Scales, class Atom, int kWarps>
SM70_DEVICE void store_gated_tile(const LinearArguments& args, const SharedSpan<float>& partial, int token_tile) {
  constexpr bool kHalfTiles = Atom::kTiles == 1;
  constexpr int kColumns = Atom::kTiles * nvfp4_block::kRows / 2;
  const int strip = static_cast<int>(blockIdx.x);
  const int columns = output_columns(args);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTokenTile * kColumns; i += kWarps * 32) {
    const int token = i / kColumns;
    const int column = i % kColumns;
    const int m = token_tile * kTokenTile + token;
    const int in_half = column / 4 * 8 + column % 4;  // row of the gate, up's is four further on
    const int n = kHalfTiles ? strip / 2 * nvfp4_block::kRows + strip % 2 * 4 + in_half : strip * kColumns + column;
    if (m >= args.m || n >= columns) continue;
    const int row = kHalfTiles ? in_half : gate_row(column);
    const float gate = sum_of_warps<Atom, kWarps>(partial, token, row);
    const float up = sum_of_warps<Atom, kWarps>(partial, token, row + (kHalfTiles ? 4 : nvfp4_block::kRows));
    store_global(args.y + static_cast<size_t>(m) * columns + n, gated_result<Scales>(args, n, gate, up));
  }
}

// Shared memory: kWarps * 8 * reduction_pitch floats. Grid: one block a strip. Block: kWarps * 32 threads.
template <class Scales, class Atom, int kTokenTiles, int kWarps>
SM70_DEVICE void qpn2_fp4(const LinearArguments& args) {
  static_assert(kWarps * 32 <= 1024, "a block has at most 1024 threads");
  static_assert(kWarps * kTokenTile * reduction_pitch<Atom>() * 4 <= 48 * 1024,
                "the reduction must fit the shared memory that every card gives without asking");
  constexpr int kPitch = reduction_pitch<Atom>();
  const int warp_index = static_cast<int>(threadIdx.x) / 32;
  const Qpn2Warp<Scales, Atom, kTokenTiles> warp(args, static_cast<int>(threadIdx.x) % 32);

  typename Atom::template Accumulator<kTokenTiles> acc = {};
  const int units = warp.units();
  if (warp_index < units) {
    nvfp4_block::UnitOf<Scales> current = warp.load(warp_index);
    for (int unit = warp_index; unit < units; unit += kWarps) {
      const int next = unit + kWarps;
      const nvfp4_block::UnitOf<Scales> following = next < units ? warp.load(next) : current;
      warp.multiply(acc, current, unit);
      current = following;
    }
  }

  const SharedSpan<float> partial(dynamic_shared(), kWarps * kTokenTile * kPitch);
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    if (i > 0) __syncthreads();  // the previous tile's sums have been read
    Atom::visit(acc, i, warp.lane, [&](int token, int row, float value) {
      partial.store((warp_index * kTokenTile + token) * kPitch + row, value);
    });
    __syncthreads();
    if (args.gated) {
      store_gated_tile<Scales, Atom, kWarps>(args, partial, i);
    } else {
      store_token_tile<Scales, Atom, kWarps>(args, partial, i);
    }
  }
}

}  // namespace sm70
