// dense[N, K] = decode(weight) * row_factor[N] in FP16, rounded once: the scratch of the large-M path.
//
// One warp a layout block, one lane a unit of it: it reads four atoms, all under way at once, and has 32 consecutive bytes
// of two rows for each. Lanes of neighbouring groups exchange halves before they store, so that a store of the warp fills whole
// sectors of 32 bytes. The grid runs over column blocks, four to a block of threads (x), and row tiles (y).
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

struct DequantizeArguments {
  const uint8_t* weight;
  const float* row_factor;
  __half* dense;
  int n;
  int k;
};

template <class Scales>
SM70_DEVICE uint32_t apply_factor(uint32_t pair, float factor) {
  const float2 values = __half22float2(unpack_half2(pair));
  return pack_half2(__floats2half2_rn(values.x * Scales::kUnscale * factor,
                                      values.y * Scales::kUnscale * factor));
}

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kNeighbourGroup = 8;  // lanes from a group to the next

SM70_DEVICE uint32_t exchange(uint32_t word) { return __shfl_xor_sync(kWholeWarp, word, kNeighbourGroup); }

// Stores one row's columns of two neighbouring groups, which two lanes hold: first those of the even group, then those of the
// odd one. `chunk` is the first column of both; columns from `valid` on do not exist.
template <class Scales>
SM70_DEVICE void store_groups(__half* chunk, const uint32_t (&pairs)[8], float factor, int t, int valid, bool has_row) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i] = apply_factor<Scales>(pairs[i], factor);
  const bool odd = t % 2 != 0;
  const uint4 low = make_uint4(words[0], words[1], words[2], words[3]);
  const uint4 high = make_uint4(words[4], words[5], words[6], words[7]);
  const uint4 sent = odd ? low : high;
  const uint4 received = make_uint4(exchange(sent.x), exchange(sent.y), exchange(sent.z), exchange(sent.w));
  const int even_column = (t - t % 2) * nvfp4_block::kGroupColumns;
  const int half = odd ? 8 : 0;
  if (has_row && even_column < valid) {
    store_global(reinterpret_cast<uint4*>(chunk + even_column + half), odd ? received : low);
  }
  if (has_row && even_column + nvfp4_block::kGroupColumns < valid) {
    store_global(reinterpret_cast<uint4*>(chunk + even_column + nvfp4_block::kGroupColumns + half), odd ? high : received);
  }
}

template <class Scales>
SM70_DEVICE void dequantize_fp4(const DequantizeArguments& args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane % 8;
  const int t = lane / 8;
  const int blocks = (args.k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns;
  const int block = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (block >= blocks) return;

  const size_t index = static_cast<size_t>(blockIdx.y) * blocks + block;
  const nvfp4_block::UnitOf<Scales> unit = nvfp4_block::load_unit<Scales>(args.weight + index * Scales::kBytes, t, g);
  const int row = static_cast<int>(blockIdx.y) * nvfp4_block::kRows + g;
  const bool has_g = row < args.n;
  const bool has_g8 = row + 8 < args.n;
  const float factor_g = has_g ? load_global(args.row_factor + row) : 0.0f;
  const float factor_g8 = has_g8 ? load_global(args.row_factor + row + 8) : 0.0f;
#pragma unroll
  for (int c = 0; c < nvfp4_block::kChunks; ++c) {
    const int column = block * nvfp4_block::kColumns + c * nvfp4_block::kChunkColumns;
    if (column >= args.k) break;
    const nvfp4_block::ChunkScales scales = nvfp4_block::chunk_scales(unit, c);
    uint32_t row_g[8], row_g8[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const nvfp4_block::Quad quad = nvfp4_block::decode_quad(nvfp4_block::atom_word(unit.atoms[c], i), scales);
      row_g[2 * i] = quad.row_g[0];
      row_g[2 * i + 1] = quad.row_g[1];
      row_g8[2 * i] = quad.row_g8[0];
      row_g8[2 * i + 1] = quad.row_g8[1];
    }
    __half* to = args.dense + static_cast<size_t>(row) * args.k + column;
    store_groups<Scales>(to, row_g, factor_g, t, args.k - column, has_g);
    store_groups<Scales>(to + static_cast<size_t>(8) * args.k, row_g8, factor_g8, t, args.k - column, has_g8);
  }
}

}  // namespace sm70
