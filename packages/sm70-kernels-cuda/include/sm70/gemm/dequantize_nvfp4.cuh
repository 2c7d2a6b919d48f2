// dense[N, K] = decode(weight) * row_factor[N] in FP16, rounded once: the scratch of the large-M path.
//
// One thread an atom: it reads 16 bytes of codes and writes 32 consecutive bytes of two rows. A block of 128 threads decodes
// one layout block; the grid runs over column blocks (x) and row tiles (y).
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

template <class Scales>
SM70_DEVICE void dequantize_fp4(const DequantizeArguments& args) {
  const int g = static_cast<int>(threadIdx.x) % 8;
  const int t = static_cast<int>(threadIdx.x) / 8 % nvfp4_block::kGroups;
  const int c = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(blockIdx.x) * nvfp4_block::kColumns + c * nvfp4_block::kChunkColumns +
                     t * nvfp4_block::kGroupColumns;
  if (column >= args.k) return;

  const size_t block = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const uint8_t* base = args.weight + block * Scales::kBytes;
  const uint4 atom = nvfp4_block::load_atom(base, c, t, g);
  const nvfp4_block::ChunkScales scales = Scales::chunk(Scales::load(base, t, g), c);

  nvfp4_block::Quad quads[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) quads[i] = nvfp4_block::decode_quad(nvfp4_block::atom_word(atom, i), scales);

  const int tile_row = static_cast<int>(blockIdx.y) * nvfp4_block::kRows + g;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = tile_row + half * 8;
    if (row >= args.n) continue;
    const float factor = load_global(args.row_factor + row);
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t* pairs = half == 0 ? quads[i].row_g : quads[i].row_g8;
      words[2 * i] = apply_factor<Scales>(pairs[0], factor);
      words[2 * i + 1] = apply_factor<Scales>(pairs[1], factor);
    }
    uint4* out = reinterpret_cast<uint4*>(args.dense + static_cast<size_t>(row) * args.k + column);
    store_global(out, make_uint4(words[0], words[1], words[2], words[3]));
    store_global(out + 1, make_uint4(words[4], words[5], words[6], words[7]));
  }
}

}  // namespace sm70
