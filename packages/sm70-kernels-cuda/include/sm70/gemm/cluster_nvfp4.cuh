// QPN2 for compute capability 9.0 and up: y[M, N] = (x[M, K] @ w[N, K]^T) * row_factor[N] + bias[N] for M <= 16.
//
//   operand     dtype    layout                          alignment
//   weight      uint8    nvfp4_block, N x K padded       16 bytes
//   x           FP16     [M, K] row-major, K % 128 == 0  16 bytes
//   row_factor  FP32     [N]                             4 bytes
//   bias        FP16     [N] or null                     2 bytes
//   y           FP16     [M, N] row-major                2 bytes
//
// or y[M, N / 2] in gated mode (gated.cuh), for which y is aligned to 8 bytes.
//
// The strip kernel (qpn2_nvfp4.cuh) starts a block for each 16 output columns. Here a fixed number of clusters, two blocks
// each, one block a multiprocessor, share all strips evenly and every warp streams one contiguous piece of memory:
//
//   cluster c        strips [first, first + count)
//   block of rank r  half r of K
//   warp w           the w-th part of the block's (strip, column block) pairs, strip by strip
//
// Nothing but the last reduction is paid per launch and not per strip: a warp that ends a strip leaves its sums in shared
// memory and goes on; after the last one the block adds them in warp order, sends half of its sums to the peer block through
// distributed shared memory, and finishes the other half with what the peer sent. All sums have a fixed order.
//
// x is copied into shared memory by the bulk copy engine, 256 columns to a barrier, so that a warp waits for the columns
// that it needs next and no more. Weights do not depend on the kernel before (who writes them synchronizes): where the launch
// allows it, the first of them are loaded before that kernel has ended.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/hopper.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/gemm/results.cuh"
#include "sm70/mma/ampere.cuh"

namespace sm70 {

struct ClusterArguments {
  const uint8_t* weight;
  const __half* x;
  __half* y;
  const float* row_factor;
  const __half* bias;
  int m;
  int n;
  int k;
  int gated;
  int overlapped;      // whether the launch may start before the kernel before it has ended
  int strips_each;     // strips of a cluster; in gated mode pairs of them, gate and up, and likewise
  int clusters_plus1;  // the first so many clusters have one more
  // Byte offsets in shared memory; partial sums begin at 0.
  int received_offset;
  int tokens_offset;
  int barriers_offset;
  int owners_offset;
};

constexpr int kClusterBlocks = 2;

// Where the sum of (token, row) of a 16-row strip lies in its 16 * tokens floats. Two tokens share 32 floats, turned by 8
// for every further pair: the lanes of a fragment store hit 32 different banks.
SM70_DEVICE constexpr int sum_index(int token, int row) {
  return token / 2 * 32 + ((token % 2 * 16 + row + token / 2 * 8) & 31);
}

// This block's part of the product.
struct ClusterShare {
  int first_strip;
  int strips;
  int first_block;  // of 256 columns
  int blocks;
  int row_blocks;  // of the whole K
  // Layout blocks from the end of a strip, as far as it is this block's, to the next strip: from an even one, and from two in
  // a row together.
  int skip;
  int two_skips;

  SM70_DEVICE explicit ClusterShare(const ClusterArguments& args) {
    const int cluster = static_cast<int>(blockIdx.x) / kClusterBlocks;
    const int extra = cluster < args.clusters_plus1 ? cluster : args.clusters_plus1;
    const int together = args.gated ? 2 : 1;
    first_strip = (cluster * args.strips_each + extra) * together;
    strips = (args.strips_each + (cluster < args.clusters_plus1 ? 1 : 0)) * together;
    row_blocks = (args.k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns;
    const int half = (row_blocks + 1) / 2;
    const bool second = cluster_rank() != 0;
    first_block = second ? half : 0;
    blocks = second ? row_blocks - half : half;
    const int to_up = args.gated ? args.n / kGatedRows : 1;  // tiles; and from there to the next tile of the gate
    skip = to_up * row_blocks - blocks;
    two_skips = (args.gated ? 1 : 2) * row_blocks - 2 * blocks;
  }

  SM70_DEVICE int pairs() const { return strips * blocks; }
};

// A position in the block's (strip, column block) pairs, and the weights there.
struct ClusterCursor {
  const uint8_t* address;
  int strip;
  int block;
  int skip;  // to the next strip

  SM70_DEVICE ClusterCursor(const ClusterArguments& args, const ClusterShare& share, int pair)
      : strip(share.blocks > 0 ? pair / share.blocks : 0), block(share.blocks > 0 ? pair % share.blocks : 0) {
    const size_t row = static_cast<size_t>(weight_tile(args, share.first_strip + strip)) * share.row_blocks;
    address = args.weight + (row + share.first_block + block) * nvfp4_block::kBytes;
    skip = strip % 2 == 0 ? share.skip : share.two_skips - share.skip;
  }

  SM70_DEVICE void advance(const ClusterShare& share) {
    address += nvfp4_block::kBytes;
    if (++block == share.blocks) {
      block = 0;
      ++strip;
      address += static_cast<long long>(skip) * nvfp4_block::kBytes;
      skip = share.two_skips - skip;
    }
  }
};

// x in shared memory: 512 bytes for each token and column block, rows 16 bytes apart from a multiple of 128. One barrier for
// each column block, and one more for the sums that the peer sends.
struct ClusterTokens {
  SharedSpan<uint4> words;
  SharedSpan<unsigned long long> barriers;
  int blocks;
  int pitch;  // of a row, in 16-byte words

  SM70_DEVICE ClusterTokens(const ClusterArguments& args, const ClusterShare& share)
      : words(dynamic_shared() + args.tokens_offset, args.m * (share.blocks * 32 + 1)),
        barriers(dynamic_shared() + args.barriers_offset, share.blocks + 1),
        blocks(share.blocks),
        pitch(share.blocks * 32 + 1) {}

  // The peer may have another number of column blocks, and its barrier for sums must be in the same place as ours.
  SM70_DEVICE TransactionBarrier received() const { return TransactionBarrier(barriers, 0); }
  SM70_DEVICE TransactionBarrier barrier(int block) const { return TransactionBarrier(barriers, 1 + block); }

  // Warp by warp: the barriers of the column blocks that the warp copies; warp 0 also has that of the peer's sums.
  SM70_DEVICE void initialize(int warp, int warps, int lane, int received_bytes) const {
    if (lane != 0) return;
#pragma unroll 1
    for (int b = warp; b < blocks; b += warps) barrier(b).initialize();
    if (warp == 0) received().initialize();
    TransactionBarrier::make_visible();
    if (warp == 0) received().expect(received_bytes);
  }

  // By one warp: zeros where the last column block lies beyond K. The layout's codes are zero there, and zero times what
  // happens to be in shared memory could be NaN.
  SM70_DEVICE void clear_padding(const ClusterArguments& args, const ClusterShare& share, int lane) const {
    const int columns = blocks > 0 ? args.k - share.first_block * nvfp4_block::kColumns : 0;
#pragma unroll 1
    for (int word = columns / 8; word < blocks * 32; ++word) {
      if (lane < args.m) words.store(lane * pitch + word, make_uint4(0, 0, 0, 0));
    }
  }

  // Starts the copies of every kWarps-th column block.
  SM70_DEVICE void copy(const ClusterArguments& args, const ClusterShare& share, int warp, int warps, int lane) const {
#pragma unroll 1
    for (int b = warp; b < blocks; b += warps) {
      const int column = (share.first_block + b) * nvfp4_block::kColumns;
      const int columns = args.k - column < nvfp4_block::kColumns ? args.k - column : nvfp4_block::kColumns;
      if (lane == 0) barrier(b).expect(args.m * columns * 2);
      __syncwarp();
      if (lane < args.m) {
        barrier(b).copy(words, lane * pitch + b * 32, args.x + static_cast<size_t>(lane) * args.k + column, columns * 2);
      }
    }
  }
};

// Sums of one warp. With one token tile two chains of products alternate, so that none waits for the one before.
template <int kTokenTiles>
struct ClusterSums {
  static constexpr int kChains = kTokenTiles == 1 ? 2 : 1;
  static constexpr int kFloats = kTokenTiles * 8 * nvfp4_block::kRows;  // of one strip in shared memory

  AmpereAtom::Accumulator<kTokenTiles * kChains> acc = {};

  SM70_DEVICE void flush(const SharedSpan<float>& partial, int slot, const AmpereAtom::Lane& lane) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      if (kChains == 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc.d[2 * i][j] += acc.d[2 * i + 1][j];
      }
      AmpereAtom::visit(acc, i * kChains, lane, [&](int token, int row, float value) {
        partial.store(slot * kFloats + i * 128 + sum_index(token, row), value);
      });
    }
    acc = {};
  }
};

// Multiplies one unit, and loads another one from `next` if there is more. With kAtOnce the load of `following` begins as a
// whole, after the first chunk; without, `following` is the unit itself, and each part is replaced as soon as it has been used.
template <bool kAtOnce, int kTokenTiles>
SM70_DEVICE void multiply_unit(ClusterSums<kTokenTiles>& sums, nvfp4_block::Unit& unit, nvfp4_block::Unit& following,
                               const uint8_t* next, bool more, const ClusterTokens& tokens,
                               const int (&token_index)[kTokenTiles], int block, const AmpereAtom::Lane& lane) {
  nvfp4_block::ChunkScales scales[nvfp4_block::kChunks];
#pragma unroll
  for (int c = 0; c < nvfp4_block::kChunks; ++c) scales[c] = nvfp4_block::chunk_scales(unit, c);
  if (!kAtOnce && more) following.scales = nvfp4_block::load_scales(next, lane.quad_lane, lane.row);
#pragma unroll
  for (int c = 0; c < nvfp4_block::kChunks; ++c) {
    uint4 x[kTokenTiles][2];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int index = token_index[i] + block * 32 + c * 8;
      x[i][0] = tokens.words.load(index);
      x[i][1] = tokens.words.load(index + 1);
    }
    const uint4 atom = unit.atoms[c];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const nvfp4_block::Quad quad = nvfp4_block::decode_quad(nvfp4_block::atom_word(atom, j), scales[c]);
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const uint4& half = x[i][j / 2];
        constexpr int kChains = ClusterSums<kTokenTiles>::kChains;
        AmpereAtom::multiply(sums.acc, i * kChains + j % kChains, quad, nvfp4_block::atom_word(half, j % 2 * 2),
                             nvfp4_block::atom_word(half, j % 2 * 2 + 1));
      }
    }
    if (!kAtOnce && more) following.atoms[c] = nvfp4_block::load_atom(next, c, lane.quad_lane, lane.row);
    if (kAtOnce && c == 0 && more) following = nvfp4_block::load_unit(next, lane.quad_lane, lane.row);
  }
}

// Which warps worked on a strip: first and last, written by those two when they leave it.
struct StripOwners {
  SharedSpan<uint8_t> first;
  SharedSpan<uint8_t> last;

  SM70_DEVICE StripOwners(const ClusterArguments& args, const ClusterShare& share)
      : first(dynamic_shared() + args.owners_offset, share.strips),
        last(dynamic_shared() + args.owners_offset + share.strips, share.strips) {}
};

// Four outputs of a block: a strip, a token, and half of the 8 rows of the strip that the block finishes. The block of rank r
// finishes rows 8 r to 8 r + 7, and sends the sums of the other ones to its peer.
struct ClusterOutput {
  int strip;
  int token;
  int row;  // of the rank's eight, the first

  SM70_DEVICE ClusterOutput(int index, int m) : strip(index / 2 / m), token(index / 2 % m), row(index % 2 * 4) {}
};

// Sums of four rows over the warps that worked on a strip, in warp order. Slot strip + warp belongs to one warp and strip only,
// because along a block's pairs either the warp or the strip moves on.
template <int kTokenTiles>
SM70_DEVICE float4 strip_sum(const SharedSpan<float4>& partial, const StripOwners& owners, const ClusterOutput& out, int row) {
  const int index = out.token / 8 * 128 + sum_index(out.token % 8, row);
  const int last = owners.last.load(out.strip);
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (int w = owners.first.load(out.strip); w <= last; ++w) {
    sum = add(sum, partial.load(((out.strip + w) * ClusterSums<kTokenTiles>::kFloats + index) / 4));
  }
  return sum;
}

template <int kTokenTiles, int kWarps>
SM70_DEVICE void finish_cluster(const ClusterArguments& args, const ClusterShare& share, const StripOwners& owners,
                                const ClusterTokens& tokens) {
  const int quads = share.strips * args.m * 2;
  const int rank = static_cast<int>(cluster_rank());
  const SharedSpan<float4> partial(dynamic_shared(), (share.strips + kWarps) * ClusterSums<kTokenTiles>::kFloats / 4);
  const SharedSpan<float4> received(dynamic_shared() + args.received_offset, quads);
  const bool any = share.blocks > 0;  // with one column block the second half of K is empty
  const float4 nothing = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  cluster_wait();  // the peer has started
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < quads; i += kWarps * 32) {
    const ClusterOutput out(i, args.m);
    const float4 sum = any ? strip_sum<kTokenTiles>(partial, owners, out, (1 - rank) * 8 + out.row) : nothing;
    tokens.received().send(received, i, sum, 1 - rank);
  }
  auto whole_sum = [&](int i) {
    const ClusterOutput out(i, args.m);
    const float4 sum = any ? strip_sum<kTokenTiles>(partial, owners, out, rank * 8 + out.row) : nothing;
    tokens.received().wait();
    return add(sum, received.load(i));
  };
  const int step = kWarps * 32;
  if (args.gated) {
    const int strip_quads = args.m * 2;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < quads / 2; i += step) {
      const int gate = i + i / strip_quads * strip_quads;  // the same four rows of the pair's first strip
      const ClusterOutput out(gate, args.m);
      const int n = (share.first_strip + out.strip) / 2 * nvfp4_block::kRows + rank * 8 + out.row;
      write_gated_quad(args, out.token, n, whole_sum(gate), whole_sum(gate + strip_quads));
    }
  } else {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < quads; i += step) {
      const ClusterOutput out(i, args.m);
      const int n = (share.first_strip + out.strip) * nvfp4_block::kRows + rank * 8 + out.row;
      write_quad(args, out.token, n, whole_sum(i));
    }
  }
  // Nobody leaves before the peer's sums are here: they are written to this block's memory.
  tokens.received().wait();
}

// Each warp has registers for two units. With one token tile two units are always on their way: that is measured to be worth
// more than what it costs, namely that loads under way together share one scoreboard, so that a wait for the oldest is a wait
// for all. With two token tiles a warp works longer on a unit, and one on its way is enough.
template <int kTokenTiles, int kWarps>
SM70_DEVICE void cluster_nvfp4(const ClusterArguments& args) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane_index = static_cast<int>(threadIdx.x) % 32;
  const AmpereAtom::Lane lane(lane_index);
  const ClusterShare share(args);
  const int pairs = share.pairs();
  const int parts = pairs < kWarps ? pairs : kWarps;  // no part is empty; warps beyond have none
  const int begin = warp < parts ? pairs * warp / parts : 0;
  const int units = warp < parts ? pairs * (warp + 1) / parts - begin : 0;

  const ClusterTokens tokens(args, share);
  tokens.initialize(warp, kWarps, lane_index, share.strips * args.m * 8 * 4);
  ClusterCursor at(args, share, begin);
  ClusterCursor next = at;
  constexpr bool kAtOnce = kTokenTiles > 1;
  constexpr int kAhead = kAtOnce ? 1 : 2;  // units that are loaded before one is multiplied
  nvfp4_block::Unit ring[2];
  // The memory system answers in order of asking, more or less: without an overlap x comes first, or every warp would wait
  // for it behind all the weights. With one, x is not there yet, and the first weights fill the time.
  auto load_next = [&](int d) {
    if (d >= units) return;
    ring[d] = nvfp4_block::load_unit(next.address, lane.quad_lane, lane.row);
    next.advance(share);
  };
  if (args.overlapped) load_next(0);
  prefetch_factors(args, share.first_strip * nvfp4_block::kRows, share.strips * nvfp4_block::kRows);
  wait_for_previous_kernel();
  tokens.copy(args, share, warp, kWarps, lane_index);
  if (!args.overlapped) load_next(0);
#pragma unroll
  for (int d = 1; d < kAhead; ++d) load_next(d);
  allow_next_kernel();
  if (warp == kWarps - 1) tokens.clear_padding(args, share, lane_index);
  cluster_arrive();
  __syncthreads();

  int token_index[kTokenTiles];
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    const int token = i * 8 + lane.row;
    token_index[i] = (token < args.m ? token : args.m - 1) * tokens.pitch + lane.quad_lane * 2;
  }
  const SharedSpan<float> partial(dynamic_shared(), (share.strips + kWarps) * ClusterSums<kTokenTiles>::kFloats);
  const StripOwners owners(args, share);
  ClusterSums<kTokenTiles> sums;
  bool whole = at.block == 0;  // this warp began the strip it is in
  for (int i = 0; i < units; i += 2) {
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      if (i + d >= units) break;
      const bool more = i + d + kAhead < units;
      if (i + d < share.blocks) tokens.barrier(at.block).wait();
      nvfp4_block::Unit& following = ring[kAtOnce ? 1 - d : d];
      multiply_unit<kAtOnce>(sums, ring[d], following, next.address, more, tokens, token_index, at.block, lane);
      if (more) next.advance(share);
      const int strip = at.strip;
      at.advance(share);
      if (at.strip != strip || i + d + 1 == units) {
        sums.flush(partial, strip + warp, lane);
        if (lane_index == 0) {
          if (whole) owners.first.store(strip, static_cast<uint8_t>(warp));
          if (at.strip != strip) owners.last.store(strip, static_cast<uint8_t>(warp));
        }
        whole = true;
      }
    }
  }
  __syncthreads();
  finish_cluster<kTokenTiles, kWarps>(args, share, owners, tokens);
}

}  // namespace sm70
