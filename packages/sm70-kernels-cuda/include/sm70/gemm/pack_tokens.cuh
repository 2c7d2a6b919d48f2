// x for warpgroup_nvfp4.cuh: FP16 [M, K] row-major to the core matrices that wgmma reads.
//
//   operand   dtype    layout                                                      alignment
//   x         FP16     [M, K] row-major, K % 16 == 0                               16 bytes
//   packed    FP16     [token block][chunk of 64 columns][row 0..7][token][8]      16 bytes
//
// Row 2 i + h of a chunk holds, for one token, what product i of the chunk reads as its values 8 h to 8 h + 7 of k: lane t of
// a quad owns scale group t, so those are columns 16 t + 4 i + 2 h and the one after it, for t = 0 to 3. Tokens beyond M and
// columns beyond K, up to the layout's next multiple of 256, are zeros.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/hopper.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

struct PackTokensArguments {
  const __half* x;
  __half* packed;
  int m;
  int k;
  int block_tokens;  // of a token block
};

// Grid: (two for each chunk, padded tokens / threads of a block). One thread moves 32 of the 64 columns of one token, the first or
// the second half of each group: its 4 x 4 pairs are transposed by naming registers.
SM70_DEVICE void pack_tokens(const PackTokensArguments& args) {
  constexpr int kWords = 4;  // pairs of a 16-byte piece
  constexpr int kRows = 2 * kWords;
  allow_next_kernel();
  const int chunk = static_cast<int>(blockIdx.x) / 2;
  const int half = static_cast<int>(blockIdx.x) % 2;
  const int chunks = static_cast<int>(gridDim.x) / 2;
  const int token = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int block = token / args.block_tokens;
  const __half* from = args.x + static_cast<size_t>(token) * args.k + chunk * nvfp4_block::kChunkColumns + half * 8;
  wait_for_previous_kernel();
  uint4 pieces[nvfp4_block::kGroups];
#pragma unroll
  for (int t = 0; t < nvfp4_block::kGroups; ++t) {
    const int column = chunk * nvfp4_block::kChunkColumns + t * nvfp4_block::kGroupColumns;
    pieces[t] = make_uint4(0, 0, 0, 0);
    if (token < args.m && column < args.k) {
      pieces[t] = load_global(reinterpret_cast<const uint4*>(from + t * nvfp4_block::kGroupColumns));
    }
  }
  uint4* to = reinterpret_cast<uint4*>(args.packed);
  const size_t row = (static_cast<size_t>(block) * chunks + chunk) * kRows + half * kWords;
  to += row * args.block_tokens + token % args.block_tokens;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    uint32_t word[nvfp4_block::kGroups];
#pragma unroll
    for (int t = 0; t < nvfp4_block::kGroups; ++t) word[t] = nvfp4_block::atom_word(pieces[t], i);
    store_global(to + static_cast<size_t>(i) * args.block_tokens, make_uint4(word[0], word[1], word[2], word[3]));
  }
}

}  // namespace sm70
