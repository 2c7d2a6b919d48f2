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

// Grid: (chunks, padded tokens / threads of a block). One thread moves the 64 columns of one token, whole sectors of memory: of
// each half of every group its 4 x 4 pairs are transposed by naming registers.
SM70_DEVICE void pack_tokens(const PackTokensArguments& args) {
  constexpr int kHalves = 2;
  constexpr int kWords = 4;  // pairs of a 16-byte piece
  allow_next_kernel();
  const int chunk = static_cast<int>(blockIdx.x);
  const int chunks = static_cast<int>(gridDim.x);
  const int token = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int block = token / args.block_tokens;
  const __half* from = args.x + static_cast<size_t>(token) * args.k + chunk * nvfp4_block::kChunkColumns;
  uint4* to = reinterpret_cast<uint4*>(args.packed);
  to += (static_cast<size_t>(block) * chunks + chunk) * kHalves * kWords * args.block_tokens + token % args.block_tokens;
  wait_for_previous_kernel();
  uint4 pieces[nvfp4_block::kGroups][kHalves];
#pragma unroll
  for (int t = 0; t < nvfp4_block::kGroups; ++t) {
    const bool there = token < args.m && chunk * nvfp4_block::kChunkColumns + t * nvfp4_block::kGroupColumns < args.k;
    const uint4* piece = reinterpret_cast<const uint4*>(from + t * nvfp4_block::kGroupColumns);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      pieces[t][half] = there ? load_global(piece + half) : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int row = 0; row < kHalves * kWords; ++row) {
    uint32_t word[nvfp4_block::kGroups];
#pragma unroll
    for (int t = 0; t < nvfp4_block::kGroups; ++t) word[t] = nvfp4_block::atom_word(pieces[t][row / kWords], row % kWords);
    store_global(to + static_cast<size_t>(row) * args.block_tokens, make_uint4(word[0], word[1], word[2], word[3]));
  }
}

}  // namespace sm70
