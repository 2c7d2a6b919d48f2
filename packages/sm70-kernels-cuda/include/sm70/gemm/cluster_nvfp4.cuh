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
// x is copied into shared memory by the bulk copy engine, some columns to a barrier, so that a warp waits for those
// that it needs next and not for all. Weights do not depend on the kernel before (who writes them synchronizes): where the launch
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
  // 1 / column blocks of the block of rank 0 and of rank 1, or 0: a division would stand before the first load.
  float inverse_blocks[2];
  int segment_shift;  // a barrier for x counts 2^segment_shift column blocks
  // Byte offsets in shared memory; partial sums begin at 0.
  int received_offset;
  int tokens_offset;
  int barriers_offset;
  int finish_offset;
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
  int rank;
  // Layout blocks from the end of a strip, as far as it is this block's, to the next strip: from an even one, and from two in
  // a row together.
  int skip;
  int two_skips;

  SM70_DEVICE explicit ClusterShare(const ClusterArguments& args) : rank(static_cast<int>(cluster_rank())) {
    const int cluster = static_cast<int>(blockIdx.x) / kClusterBlocks;
    const int extra = cluster < args.clusters_plus1 ? cluster : args.clusters_plus1;
    const int together = args.gated ? 2 : 1;
    first_strip = (cluster * args.strips_each + extra) * together;
    strips = (args.strips_each + (cluster < args.clusters_plus1 ? 1 : 0)) * together;
    row_blocks = (args.k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns;
    const int half = (row_blocks + 1) / 2;
    first_block = rank == 0 ? 0 : half;
    blocks = rank == 0 ? half : row_blocks - half;
    const int to_up = args.gated ? args.n / kGatedRows : 1;  // tiles; and from there to the next tile of the gate
    skip = to_up * row_blocks - blocks;
    two_skips = (args.gated ? 1 : 2) * row_blocks - 2 * blocks;
  }

  SM70_DEVICE int pairs() const { return strips * blocks; }
};

// A position in the block's (strip, column block) pairs.
struct ClusterPosition {
  int strip;
  int block;
  int skip;  // to the next strip

  // The product is at least half an inverse away from the next integer, far more than it is off.
  SM70_DEVICE ClusterPosition(const ClusterArguments& args, const ClusterShare& share, int pair)
      : strip(static_cast<int>((static_cast<float>(pair) + 0.5f) *
                               (share.rank == 0 ? args.inverse_blocks[0] : args.inverse_blocks[1]))),
        block(pair - strip * share.blocks) {}

  SM70_DEVICE void advance(const ClusterShare& share) {
    if (++block < share.blocks) return;
    block = 0;
    ++strip;
  }
};

// The weights from a position on.
struct ClusterWeights {
  nvfp4_block::LaneCursor cursor;
  int block;  // of the position
  int skip;   // to the next strip

  SM70_DEVICE ClusterWeights(const ClusterArguments& args, const ClusterShare& share, const ClusterPosition& at,
                             const AmpereAtom::Lane& lane)
      : cursor(args.weight + first_block(args, share, at) * nvfp4_block::kBytes, lane.quad_lane, lane.row),
        block(at.block),
        skip(at.strip % 2 == 0 ? share.skip : share.two_skips - share.skip) {}

  SM70_DEVICE void advance(const ClusterShare& share) {
    const bool ends_strip = ++block == share.blocks;
    cursor.advance(ends_strip ? skip + 1 : 1);
    if (!ends_strip) return;
    block = 0;
    skip = share.two_skips - skip;
  }

 private:
  SM70_DEVICE static size_t first_block(const ClusterArguments& args, const ClusterShare& share, const ClusterPosition& at) {
    const size_t tile = static_cast<size_t>(weight_tile(args, share.first_strip + at.strip));
    return tile * share.row_blocks + share.first_block + at.block;
  }
};

constexpr int kBlockWords = nvfp4_block::kColumns * 2 / 16;  // of 16 bytes, of one token

// x in shared memory: 512 bytes for each token and column block, rows 16 bytes apart from a multiple of 128. One barrier for
// each segment of column blocks, and one more for the sums that the peer sends.
struct ClusterTokens {
  SharedSpan<uint4> words;
  SharedSpan<unsigned long long> barriers;
  int blocks;
  int segment_shift;
  int segments;
  int pitch;  // of a row, in 16-byte words

  SM70_DEVICE ClusterTokens(const ClusterArguments& args, const ClusterShare& share)
      : words(dynamic_shared() + args.tokens_offset, args.m * (share.blocks * kBlockWords + 1)),
        barriers(dynamic_shared() + args.barriers_offset, share.blocks + 1),
        blocks(share.blocks),
        segment_shift(args.segment_shift),
        segments((share.blocks + (1 << args.segment_shift) - 1) >> args.segment_shift),
        pitch(share.blocks * kBlockWords + 1) {}

  // The peer may have another number of column blocks, and its barrier for sums must be in the same place as ours.
  SM70_DEVICE TransactionBarrier received() const { return TransactionBarrier(barriers, 0); }
  SM70_DEVICE TransactionBarrier segment(int index) const { return TransactionBarrier(barriers, 1 + index); }

  SM70_DEVICE void wait_for_block(int block) const { segment(block >> segment_shift).wait(); }

  // By one warp.
  SM70_DEVICE void initialize(int lane, int received_bytes) const {
#pragma unroll 1
    for (int s = lane; s < segments; s += 32) segment(s).initialize();
    if (lane == 0) received().initialize();
    TransactionBarrier::make_visible();
    if (lane == 0) received().expect(received_bytes);
  }

  // By one warp: zeros where the last column block lies beyond K. The layout's codes are zero there, and zero times what
  // happens to be in shared memory could be NaN.
  SM70_DEVICE void clear_padding(const ClusterArguments& args, const ClusterShare& share, int lane) const {
    const int columns = blocks > 0 ? args.k - share.first_block * nvfp4_block::kColumns : 0;
#pragma unroll 1
    for (int word = columns / 8; word < blocks * kBlockWords; ++word) {
      if (lane < args.m) words.store(lane * pitch + word, make_uint4(0, 0, 0, 0));
    }
  }

  // Starts the copies of every kWarps-th segment.
  SM70_DEVICE void copy(const ClusterArguments& args, const ClusterShare& share, int warp, int warps, int lane) const {
    const int last_block = share.first_block + blocks;
    const int end = last_block == share.row_blocks ? args.k : last_block * nvfp4_block::kColumns;
#pragma unroll 1
    for (int s = warp; s < segments; s += warps) {
      const int block = s << segment_shift;
      const int column = (share.first_block + block) * nvfp4_block::kColumns;
      const int most = nvfp4_block::kColumns << segment_shift;
      const int columns = end - column < most ? end - column : most;
      if (lane == 0) segment(s).expect(args.m * columns * 2);
      __syncwarp();
      if (lane < args.m) {
        segment(s).copy(words, lane * pitch + block * kBlockWords, args.x + static_cast<size_t>(lane) * args.k + column, columns * 2);
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

// Where a lane reads x: the words of its tokens at the position's column block. Numbers that move, as those of LaneCursor do.
template <int kTokenTiles>
struct ClusterTokenCursor {
  int word[kTokenTiles];

  SM70_DEVICE ClusterTokenCursor(const ClusterArguments& args, const ClusterTokens& tokens, const ClusterPosition& at,
                                 const AmpereAtom::Lane& lane) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int token = i * 8 + lane.row;
      word[i] = (token < args.m ? token : args.m - 1) * tokens.pitch + lane.quad_lane * 2 + at.block * kBlockWords;
    }
  }

  SM70_DEVICE void advance(int blocks) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) word[i] += blocks * kBlockWords;
  }
};

// Multiplies one unit; each part is replaced by that of `next`, if there is more, as soon as it has been used.
template <int kTokenTiles>
SM70_DEVICE void multiply_unit(ClusterSums<kTokenTiles>& sums, nvfp4_block::Unit& unit, const nvfp4_block::LaneCursor& next,
                               bool more, const SharedSpan<uint4>& tokens, const ClusterTokenCursor<kTokenTiles>& x_at) {
  nvfp4_block::ChunkScales scales[nvfp4_block::kChunks];
#pragma unroll
  for (int c = 0; c < nvfp4_block::kChunks; ++c) scales[c] = nvfp4_block::chunk_scales(unit, c);
  if (more) unit.scales = next.load_scales();
#pragma unroll
  for (int c = 0; c < nvfp4_block::kChunks; ++c) {
    uint4 x[kTokenTiles][2];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int word = x_at.word[i] + c * (kBlockWords / nvfp4_block::kChunks);
      x[i][0] = tokens.load(word);
      x[i][1] = tokens.load(word + 1);
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
    if (more) unit.atoms[c] = next.load_atom(c);
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

constexpr int kFinishedRows = nvfp4_block::kRows / kClusterBlocks;

// What finishes the rows of the product: the block of rank r has rows 8 r to 8 r + 7 of every strip. A thread loads its part while
// the weights are multiplied.
template <int kThreads>
class ClusterFinish {
 public:
  SM70_DEVICE ClusterFinish(const ClusterArguments& args, const ClusterShare& share)
      : span_(dynamic_shared() + args.finish_offset, share.strips * kFinishedRows),
        count_(share.strips * kFinishedRows),
        first_strip_(share.first_strip),
        rank_(share.rank),
        own_(load(args, static_cast<int>(threadIdx.x))) {}

  // Before a barrier of the block, then `at`.
  SM70_DEVICE void share_with_block(const ClusterArguments& args) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < count_) span_.store(thread, make_float2(own_.factor, own_.bias));
#pragma unroll 1
    for (int i = thread + kThreads; i < count_; i += kThreads) {
      const Finish finish = load(args, i);
      span_.store(i, make_float2(finish.factor, finish.bias));
    }
  }

  SM70_DEVICE Finish at(int strip, int row) const {
    const float2 both = span_.load(strip * kFinishedRows + row);
    return {both.x, both.y};
  }

 private:
  SM70_DEVICE Finish load(const ClusterArguments& args, int i) const {
    if (i >= count_) return {};
    const int tile = weight_tile(args, first_strip_ + i / kFinishedRows);
    return load_finish(args, tile * nvfp4_block::kRows + rank_ * kFinishedRows + i % kFinishedRows);
  }

  SharedSpan<float2> span_;
  int count_;
  int first_strip_;
  int rank_;
  Finish own_;
};

// The outputs of a thread: four of the rows that a block finishes, of every kStep-th strip, for one token.
template <int kTokenTiles, int kThreads>
struct ClusterOutput {
  static constexpr int kQuads = kFinishedRows / 4;
  static constexpr int kThreadsOfStrip = kTokenTiles * 8 * kQuads;
  static constexpr int kStep = kThreads / kThreadsOfStrip;

  int strip = static_cast<int>(threadIdx.x) / kThreadsOfStrip;  // the first
  int token = static_cast<int>(threadIdx.x) / kQuads % (kTokenTiles * 8);
  int row = static_cast<int>(threadIdx.x) % kQuads * 4;
};

// Sums of four rows over the warps that worked on a strip, in warp order. Slot strip + warp belongs to one warp and strip only,
// because along a block's pairs either the warp or the strip moves on.
template <int kTokenTiles>
SM70_DEVICE float4 strip_sum(const SharedSpan<float4>& partial, const StripOwners& owners, int strip, int token, int row) {
  const int index = token / 8 * 128 + sum_index(token % 8, row);
  const int last = owners.last.load(strip);
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (int w = owners.first.load(strip); w <= last; ++w) {
    sum = add(sum, partial.load(((strip + w) * ClusterSums<kTokenTiles>::kFloats + index) / 4));
  }
  return sum;
}

template <int kTokenTiles, int kWarps>
SM70_DEVICE void finish_cluster(const ClusterArguments& args, const ClusterShare& share, const StripOwners& owners,
                                const ClusterTokens& tokens, const ClusterFinish<kWarps * 32>& finish) {
  using Output = ClusterOutput<kTokenTiles, kWarps * 32>;
  const Output out;
  const SharedSpan<float4> partial(dynamic_shared(), (share.strips + kWarps) * ClusterSums<kTokenTiles>::kFloats / 4);
  const SharedSpan<float4> received(dynamic_shared() + args.received_offset, share.strips * args.m * Output::kQuads);
  const bool any = share.blocks > 0;  // with one column block the second half of K is empty
  const int strips = out.token < args.m ? share.strips : 0;
  const auto place = [&](int strip) { return (strip * args.m + out.token) * Output::kQuads + out.row / 4; };
  const auto sum_for = [&](int strip, int rank) {
    if (!any) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return strip_sum<kTokenTiles>(partial, owners, strip, out.token, rank * kFinishedRows + out.row);
  };
  const int peer = 1 - share.rank;
  cluster_wait();  // the peer has started
#pragma unroll 1
  for (int s = out.strip; s < strips; s += Output::kStep) {
    tokens.received().send(received, place(s), sum_for(s, peer), static_cast<unsigned>(peer));
  }
  const auto total = [&](int s) {
    const float4 own = sum_for(s, share.rank);
    tokens.received().wait();
    return add(own, received.load(place(s)));
  };
  const int column = share.rank * kFinishedRows + out.row;  // of a strip's
  if (args.gated) {
#pragma unroll 1
    for (int p = out.strip; 2 * p < strips; p += Output::kStep) {
      const float4 gates = total(2 * p);
      const float4 ups = total(2 * p + 1);
      const auto result = [&](int i, float gate, float up) {
        return gated_value(finish.at(2 * p, out.row + i).value(gate), finish.at(2 * p + 1, out.row + i).value(up));
      };
      const __half results[4] = {result(0, gates.x, ups.x), result(1, gates.y, ups.y), result(2, gates.z, ups.z),
                                 result(3, gates.w, ups.w)};
      store_quad(args, out.token, (share.first_strip / 2 + p) * nvfp4_block::kRows + column, results);
    }
  } else {
#pragma unroll 1
    for (int s = out.strip; s < strips; s += Output::kStep) {
      const float4 sums = total(s);
      const auto result = [&](int i, float sum) { return __float2half_rn(finish.at(s, out.row + i).value(sum)); };
      const __half results[4] = {result(0, sums.x), result(1, sums.y), result(2, sums.z), result(3, sums.w)};
      store_quad(args, out.token, (share.first_strip + s) * nvfp4_block::kRows + column, results);
    }
  }
  // Nobody leaves before the peer's sums are here: they are written to this block's memory.
  tokens.received().wait();
}

// The pairs of one warp, one contiguous part. Where there are fewer pairs than warps, the first so many have one each.
template <int kWarps>
struct WarpPart {
  int begin;
  int units;

  SM70_DEVICE WarpPart(int warp, int pairs)
      : begin(pairs < kWarps ? warp : pairs * warp / kWarps),
        units(pairs < kWarps ? (warp < pairs ? 1 : 0) : pairs * (warp + 1) / kWarps - begin) {}
};

// A warp has one unit in registers, each part of which is replaced as soon as it has been used; a second one on its way was
// slower on an H200. What comes before the first loads is paid by every launch: no division, and the barriers are one warp's work.
template <int kTokenTiles, int kWarps>
SM70_DEVICE void cluster_nvfp4(const ClusterArguments& args) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane_index = static_cast<int>(threadIdx.x) % 32;
  const AmpereAtom::Lane lane(lane_index);
  const ClusterShare share(args);
  const WarpPart<kWarps> part(warp, share.pairs());

  const ClusterTokens tokens(args, share);
  if (warp == 0) tokens.initialize(lane_index, share.strips * args.m * kFinishedRows * 4);
  ClusterPosition at(args, share, part.begin);
  ClusterWeights next(args, share, at, lane);
  nvfp4_block::Unit unit;
  // The memory system answers in order of asking, more or less: without an overlap x comes first, or every warp would wait
  // for it behind all the weights. With one, x is not there yet, and the first weights fill the time.
  const auto load_first = [&] {
    if (part.units == 0) return;
    unit = next.cursor.load_unit();
    next.advance(share);
  };
  if (args.overlapped) load_first();
  const ClusterFinish<kWarps * 32> finish(args, share);
  if (warp == kWarps - 1) tokens.clear_padding(args, share, lane_index);
  allow_next_kernel();
  wait_for_previous_kernel();
  __syncthreads();  // the barriers are there
  cluster_arrive();
  tokens.copy(args, share, warp, kWarps, lane_index);
  if (!args.overlapped) load_first();

  ClusterTokenCursor<kTokenTiles> x_at(args, tokens, at, lane);
  const SharedSpan<float> partial(dynamic_shared(), (share.strips + kWarps) * ClusterSums<kTokenTiles>::kFloats);
  const StripOwners owners(args, share);
  ClusterSums<kTokenTiles> sums;
  bool whole = at.block == 0;  // this warp began the strip it is in
  for (int i = 0; i < part.units; ++i) {
    const bool more = i + 1 < part.units;
    if (i < share.blocks) tokens.wait_for_block(at.block);
    multiply_unit(sums, unit, next.cursor, more, tokens.words, x_at);
    if (more) next.advance(share);
    const int strip = at.strip;
    at.advance(share);
    x_at.advance(at.strip == strip ? 1 : 1 - share.blocks);
    if (at.strip == strip && more) continue;
    sums.flush(partial, strip + warp, lane);
    if (lane_index == 0) {
      if (whole) owners.first.store(strip, static_cast<uint8_t>(warp));
      if (at.strip != strip) owners.last.store(strip, static_cast<uint8_t>(warp));
    }
    whole = true;
  }
  finish.share_with_block(args);
  __syncthreads();
  finish_cluster<kTokenTiles, kWarps>(args, share, owners, tokens, finish);
}

}  // namespace sm70
