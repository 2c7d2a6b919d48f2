// y[M, N] = (x[M, K] @ w[N, K]^T) * row_factor[N] + bias[N] by warpgroups, compute capability 9.0: more rows than a few.
//
//   operand     dtype    layout                                       alignment
//   weight      uint8    nvfp4_block, N x K padded                    16 bytes
//   x           FP16     what pack_tokens.cuh makes of [M, K]         16 bytes
//   row_factor  FP32     [N]                                          4 bytes
//   bias        FP16     [N] or null                                  2 bytes
//   y           FP16     [M, N] row-major                             2 bytes
//
// or y[M, N / 2] in gated mode (gated.cuh), for which y is aligned to 8 bytes.
//
// A block of threads computes kTokens rows of y by 64 columns for each of its warpgroups. Every warp streams the layout blocks
// of its own 16 columns from global memory into registers, decodes 64 columns of K at a time and hands them to wgmma as the A
// operand; the tokens are B and come through a ring in shared memory that bulk copies fill:
//
//   stage      kStageChunks chunks of 64 columns for all tokens of the block, contiguous in the packed x
//   full[s]    completes when the stage's bytes are there
//   empty[s]   completes when every warp has read them; then one thread refills the place
//
// While one warpgroup decodes, the tensor cores work for another. The blocks of a cluster share K: each holds its sums in
// shared memory (where the ring was), sends every other block the rows which that one finishes, and adds what it receives in
// the order of K. Blocks that share a strip of columns are neighbours in the grid, so that it is read from DRAM once.
//
// Weights do not depend on the kernel before, which packs x: the first of them are loaded before that one has ended.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/hopper.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/gemm/results.cuh"
#include "sm70/mma/ampere.cuh"
#include "sm70/mma/hopper.cuh"

namespace sm70 {

struct WarpgroupArguments {
  const uint8_t* weight;
  const __half* x;  // packed
  __half* y;
  const float* row_factor;
  const __half* bias;
  int m;
  int n;
  int k;
  int gated;
  int token_blocks;
  int stages;  // of the ring
  // Byte offsets in shared memory. The ring, and the sums after it, begin at 0.
  int received_offset;
  int barriers_offset;
};

namespace warpgroup {

constexpr int kWarpsEach = 4;
constexpr int kRowsEach = kWarpsEach * nvfp4_block::kRows;
constexpr int kChunkRows = 8;  // 16-byte rows of one token in a chunk of 64 columns

// kRowGroups warpgroups along the columns of y, each of them kSplit times: of two, one takes the even chunks of K and one the
// odd ones. kLoads layout blocks of a warp: of two, one is multiplied while the next is on its way; with one, which needs fewer
// registers, other warpgroups fill the time.
template <int kTokensOfBlock, int kRowGroups, int kSplitOfChunks, int kLoadsOfWarp>
struct Shape {
  static constexpr int kTokens = kTokensOfBlock;
  static constexpr int kSplit = kSplitOfChunks;
  static constexpr int kLoads = kLoadsOfWarp;
  static constexpr int kWarpgroups = kRowGroups * kSplit;
  static constexpr int kRowWarps = kRowGroups * kWarpsEach;
  static constexpr int kWarps = kRowWarps * kSplit;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kStrip = kRowGroups * kRowsEach;
  static constexpr int kSteps = nvfp4_block::kChunks / kSplit;  // of a warp in a layout block
  static constexpr int kStageChunks = kTokens > 128 ? 1 : kTokens > 32 || kLoads == 1 ? 2 : nvfp4_block::kChunks;
  static constexpr int kStages = nvfp4_block::kChunks / kStageChunks;  // of a layout block
  static constexpr int kStageSteps = kStageChunks / kSplit;
  static constexpr int kChunkWords = kChunkRows * kTokens;  // of 16 bytes
  static constexpr int kStageWords = kStageChunks * kChunkWords;
  // Floats between the sums of two tokens: the lanes of a fragment's store hit 32 different banks.
  static constexpr int kPitch = kStrip + 4;
  static constexpr int kPartFloats = kTokens * kPitch;
  static constexpr int kFloats = kTokens / 2;  // sums of a thread
};

// What a block computes.
template <class Shape>
struct Place {
  int column;  // of y, the first
  int token;
  int tokens;
  int row_blocks;   // of the layout along K
  int first_block;  // and this block's part of them
  int blocks;
  int rank;
  int ranks;

  SM70_DEVICE explicit Place(const WarpgroupArguments& args)
      : rank(static_cast<int>(cluster_rank())), ranks(static_cast<int>(cluster_size())) {
    const int cluster = static_cast<int>(blockIdx.x) / ranks;
    column = cluster / args.token_blocks * Shape::kStrip;
    token = cluster % args.token_blocks * Shape::kTokens;
    tokens = args.m - token < Shape::kTokens ? args.m - token : Shape::kTokens;
    row_blocks = (args.k + nvfp4_block::kColumns - 1) / nvfp4_block::kColumns;
    first_block = row_blocks * rank / ranks;
    blocks = row_blocks * (rank + 1) / ranks - first_block;
  }
};

// A place in the ring, and which time around it is.
struct RingCursor {
  int stage = 0;
  unsigned parity = 0;

  SM70_DEVICE void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <class Shape>
struct TokenRing {
  SharedSpan<uint4> words;
  SharedSpan<unsigned long long> barriers;
  const uint4* first;  // stage of this block in the packed x
  int stages;          // of the ring
  int count;           // of this block

  SM70_DEVICE TokenRing(const WarpgroupArguments& args, const Place<Shape>& place)
      : words(dynamic_shared(), args.stages * Shape::kStageWords),
        barriers(dynamic_shared() + args.barriers_offset, 2 * args.stages + 1),
        stages(args.stages),
        count(place.blocks * Shape::kStages) {
    const size_t chunk = static_cast<size_t>(place.token / Shape::kTokens) * place.row_blocks + place.first_block;
    first = reinterpret_cast<const uint4*>(args.x) + chunk * nvfp4_block::kChunks * Shape::kChunkWords;
  }

  // The peers' barriers for sums must be in the same place as ours.
  SM70_DEVICE TransactionBarrier received() const { return TransactionBarrier(barriers, 0); }
  SM70_DEVICE TransactionBarrier full(int stage) const { return TransactionBarrier(barriers, 1 + stage); }
  SM70_DEVICE TransactionBarrier empty(int stage) const { return TransactionBarrier(barriers, 1 + stages + stage); }

  // By one thread.
  SM70_DEVICE void initialize(int received_bytes) const {
    received().initialize();
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      full(s).initialize();
      empty(s).initialize(Shape::kWarps);
    }
    TransactionBarrier::make_visible();
    received().expect(received_bytes);
  }

  // By one thread: starts the copy of a stage of this block into a place of the ring.
  SM70_DEVICE void fill(int place, int stage) const {
    constexpr int kBytes = Shape::kStageWords * 16;
    full(place).expect(kBytes);
    full(place).copy(words, place * Shape::kStageWords, first + static_cast<size_t>(stage) * Shape::kStageWords, kBytes);
  }

  // By one lane of each warp: its products have read the stage.
  SM70_DEVICE void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty(stage).arrive();
  }

  // By one thread: fills the place of a stage again once all warps have left it, if there is a stage for it.
  SM70_DEVICE void refill(const RingCursor& place, int stage) const {
    if (stage + stages >= count) return;
    empty(place.stage).wait(place.parity);
    fill(place.stage, stage + stages);
  }
};

// What one lane multiplies of a layout block.
template <class Shape>
struct Part {
  uint4 atoms[Shape::kSteps];
  uint2 scales;
};

// The layout blocks of one warp's 16 rows. Loads that are under way together share one scoreboard, and a wait for the oldest is
// a wait for all: so all of a block start at once, right after the first use of the one before.
template <class Shape>
struct WeightStream {
  int first;  // chunk
  nvfp4_block::LaneCursor next;
  Part<Shape> parts[Shape::kLoads];

  SM70_DEVICE WeightStream(const WarpgroupArguments& args, const Place<Shape>& place, const AmpereAtom::Lane& lane)
      : first(Shape::kSplit == 1 ? 0 : static_cast<int>(threadIdx.x) / 32 / Shape::kRowWarps),
        next(first_block(args, place), lane.quad_lane, lane.row, first) {
    load(0);  // a block has at least one
  }

  SM70_DEVICE static const uint8_t* first_block(const WarpgroupArguments& args, const Place<Shape>& place) {
    const int wanted = place.column / nvfp4_block::kRows + static_cast<int>(threadIdx.x) / 32 % Shape::kRowWarps;
    const size_t tile = static_cast<size_t>(weight_tile(args, wanted));
    return args.weight + (tile * place.row_blocks + place.first_block) * nvfp4_block::kBytes;
  }

  SM70_DEVICE void load(int to) {
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) parts[to].atoms[step] = next.load_atom(step * Shape::kSplit);
    parts[to].scales = next.load_scales();
    next.advance(1);
  }

  // The scales with this warp's first chunk in front.
  SM70_DEVICE uint2 scales(int from) const {
    uint2 words = parts[from].scales;
    if (Shape::kSplit > 1 && first > 0) nvfp4_block::E4M3Group16::advance(words);
    return words;
  }
};

template <class Shape>
struct Sums {
  float d[Shape::kFloats] = {};
};

// The A operands of one chunk: 16 rows of a warp by 64 columns of K.
struct Chunk {
  uint32_t a[4][4];
};

SM70_DEVICE Chunk decode_chunk(const uint4& atom, const nvfp4_block::ChunkScales& scales) {
  Chunk chunk;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const nvfp4_block::Quad quad = nvfp4_block::decode_quad(nvfp4_block::atom_word(atom, i), scales);
    chunk.a[i][0] = quad.row_g[0];
    chunk.a[i][1] = quad.row_g8[0];
    chunk.a[i][2] = quad.row_g[1];
    chunk.a[i][3] = quad.row_g8[1];
  }
  return chunk;
}

// Starts the products of a chunk with the tokens at `index`.
template <class Shape>
SM70_DEVICE void begin_products(Sums<Shape>& sums, const Chunk& chunk, const SharedSpan<uint4>& tokens, int index) {
  warpgroup_fence();
  const MatrixCursor at(tokens, index, Shape::kTokens);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    warpgroup_multiply<Shape::kTokens>(sums.d, chunk.a[i], at, 2 * i * Shape::kTokens);
  }
  warpgroup_commit();
}

// Rows of the strip that the block of a rank finishes.
template <class Shape>
struct FinishedRows {
  int each;  // of the ranks that have most
  int first;
  int rows;

  SM70_DEVICE FinishedRows(int rank, int ranks) {
    each = (Shape::kStrip / 8 + ranks - 1) / ranks * 8;
    first = rank * each < Shape::kStrip ? rank * each : Shape::kStrip;
    rows = Shape::kStrip - first < each ? Shape::kStrip - first : each;
  }
};

// Where the sums of rows `row` and, 8 further on, `row` + 8 of a tile lie among those of a token. In gated mode any 8 rows that
// a rank finishes have to be four of the gate and the same four of up, so the pair of tiles shares 32 places:
//
//   place     0..3        4..7      8..11        12..15      16..19    20..23      24..27      28..31
//   rows of   gate 0..3   up 0..3   gate 8..11   up 8..11    up 4..7   gate 4..7   up 12..15   gate 12..15
//
// The last half is turned so that the lanes of a fragment's store still hit 32 different banks.
SM70_DEVICE int sum_place(int tile, int row, bool gated) {
  if (!gated) return tile * nvfp4_block::kRows + row;
  const int upper = row / 4;
  return tile / 2 * kGatedRows + upper * 16 + (tile % 2 ^ upper) * 4 + row % 4;
}

template <class Shape>
SM70_DEVICE void store_sums(const Sums<Shape>& sums, const SharedSpan<float>& partial, const AmpereAtom::Lane& lane,
                            bool gated) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = sum_place(warp % Shape::kRowWarps, lane.row, gated);
  const int part = warp / Shape::kRowWarps * Shape::kPartFloats;
#pragma unroll
  for (int i = 0; i < Shape::kFloats; ++i) {
    const int token = i / 4 * 8 + lane.quad_lane * 2 + i % 2;
    partial.store(part + token * Shape::kPitch + row + i % 4 / 2 * 8, sums.d[i]);
  }
}

// The block's own sums of four rows: those of the even chunks, then those of the odd ones.
template <class Shape>
SM70_DEVICE float4 own_sums(const SharedSpan<float4>& partial, int token, int row) {
  float4 sum = partial.load((token * Shape::kPitch + row) / 4);
#pragma unroll
  for (int part = 1; part < Shape::kSplit; ++part) {
    sum = add(sum, partial.load((part * Shape::kPartFloats + token * Shape::kPitch + row) / 4));
  }
  return sum;
}

// Sends every other block of the cluster the sums of the rows that it finishes, four at a time.
template <class Shape>
SM70_DEVICE void send_sums(const Place<Shape>& place, const SharedSpan<float4>& partial, const SharedSpan<float4>& received,
                           const TransactionBarrier& barrier) {
#pragma unroll 1
  for (int step = 1; step < place.ranks; ++step) {
    const int to = (place.rank + step) % place.ranks;
    const FinishedRows<Shape> share(to, place.ranks);
    const int quads = share.rows / 4;
    const int slot = place.rank < to ? place.rank : place.rank - 1;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < place.tokens * quads; i += Shape::kThreads) {
      const float4 sum = own_sums<Shape>(partial, i / quads, share.first + i % quads * 4);
      barrier.send(received, slot * place.tokens * quads + i, sum, to);
    }
  }
}

// Adds what the other blocks sent to this block's i-th four sums, in the order of K.
template <class Shape>
SM70_DEVICE float4 whole_sums(const Place<Shape>& place, const FinishedRows<Shape>& share, const SharedSpan<float4>& partial,
                              const SharedSpan<float4>& received, int i) {
  const int quads = share.rows / 4;
  const float4 own = own_sums<Shape>(partial, i / quads, share.first + i % quads * 4);
  float4 sum = place.rank == 0 ? own : received.load(i);
#pragma unroll 1
  for (int rank = 1; rank < place.ranks; ++rank) {
    const int slot = rank < place.rank ? rank : rank - 1;
    sum = add(sum, rank == place.rank ? own : received.load(slot * place.tokens * quads + i));
  }
  return sum;
}

// Writes this block's rows.
template <class Shape>
SM70_DEVICE void write_results(const WarpgroupArguments& args, const Place<Shape>& place, const SharedSpan<float4>& partial,
                               const SharedSpan<float4>& received) {
  const FinishedRows<Shape> share(place.rank, place.ranks);
  const int quads = share.rows / 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < place.tokens * quads; i += Shape::kThreads) {
    const int row = share.first + i % quads * 4;
    const float4 sum = whole_sums(place, share, partial, received, i);
    write_quad(args, place.token + i / quads, place.column + row, sum);
  }
}

// The same in gated mode: any 8 of the rows are 4 columns of y, see sum_place.
template <class Shape>
SM70_DEVICE void write_gated_results(const WarpgroupArguments& args, const Place<Shape>& place,
                                     const SharedSpan<float4>& partial, const SharedSpan<float4>& received) {
  const FinishedRows<Shape> share(place.rank, place.ranks);
  const int pairs = share.rows / 8;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < place.tokens * pairs; i += Shape::kThreads) {
    const int row = place.column + share.first + i % pairs * 8;
    const int upper = row / 16 % 2;
    const int n = row / kGatedRows * nvfp4_block::kRows + row / 8 % 2 * 8 + upper * 4;
    const float4 gate = whole_sums(place, share, partial, received, 2 * i + upper);
    const float4 up = whole_sums(place, share, partial, received, 2 * i + 1 - upper);
    write_gated_quad(args, place.token + i / pairs, n, gate, up);
  }
}

template <class Shape>
SM70_DEVICE void finish(const WarpgroupArguments& args, const Sums<Shape>& sums, const TokenRing<Shape>& ring,
                        const AmpereAtom::Lane& lane) {
  const Place<Shape> place(args);  // anew: the main loop has no registers to keep it
  constexpr int kSums = Shape::kSplit * Shape::kPartFloats;
  const SharedSpan<float4> partial(dynamic_shared(), kSums / 4);
  const FinishedRows<Shape> share(place.rank, place.ranks);
  const SharedSpan<float4> received(dynamic_shared() + args.received_offset,
                                    (place.ranks - 1) * place.tokens * share.each / 4);
  __syncthreads();  // all warps have left the ring
  store_sums(sums, SharedSpan<float>(dynamic_shared(), kSums), lane, args.gated);
  __syncthreads();
  if (place.ranks > 1) {
    cluster_wait();  // the peers have started
    send_sums(place, partial, received, ring.received());
    ring.received().wait();
  }
  if (args.gated) {
    write_gated_results(args, place, partial, received);
  } else {
    write_results(args, place, partial, received);
  }
}

}  // namespace warpgroup

// Grid: clusters of any number of blocks along K, for each strip and token block.
template <int kTokens, int kRowGroups, int kSplit, int kLoads>
SM70_DEVICE void warpgroup_nvfp4(const WarpgroupArguments& args) {
  using Shape = warpgroup::Shape<kTokens, kRowGroups, kSplit, kLoads>;
  const AmpereAtom::Lane lane(static_cast<int>(threadIdx.x) % 32);
  const warpgroup::Place<Shape> place(args);
  const bool filler = threadIdx.x == 0;

  warpgroup::TokenRing<Shape> ring(args, place);
  if (filler) {
    const warpgroup::FinishedRows<Shape> share(place.rank, place.ranks);
    ring.initialize((place.ranks - 1) * place.tokens * share.rows * 4);
  }
  warpgroup::WeightStream<Shape> weight(args, place, lane);
  prefetch_factors(args, place.column, Shape::kStrip);
  wait_for_previous_kernel();
  if (filler) {
#pragma unroll 1
    for (int s = 0; s < ring.stages && s < ring.count; ++s) ring.fill(s, s);
  }
  allow_next_kernel();
  if (place.ranks > 1) cluster_arrive();
  __syncthreads();

  warpgroup::Sums<Shape> sums;
  warpgroup::Chunk chunks[kLoads];  // of two, one is decoded while the tensor cores read the other
  warpgroup::RingCursor at;         // stage to multiply
  warpgroup::RingCursor free;       // stage that the warp left two stages ago: the others have had time to leave it, too
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  for (int b = 0; b < place.blocks; b += kLoads) {
#pragma unroll
    for (int d = 0; d < kLoads; ++d) {
      if (b + d >= place.blocks) break;
      const bool more = b + d + 1 < place.blocks;
      const uint2 scales = weight.scales(d);
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        const bool begins_stage = step % Shape::kStageSteps == 0;
        warpgroup::Chunk& chunk = chunks[step % kLoads];
        const nvfp4_block::ChunkScales factors = nvfp4_block::E4M3Group16::chunk(scales, step * kSplit);
        chunk = warpgroup::decode_chunk(weight.parts[d].atoms[step], factors);
        if (kLoads == 1 && step == Shape::kSteps - 1 && more) weight.load(0);
        if (begins_stage) ring.full(at.stage).wait(at.parity);
        const int chunk_of_stage = weight.first + step % Shape::kStageSteps * kSplit;
        const int index = at.stage * Shape::kStageWords + chunk_of_stage * Shape::kChunkWords;
        warpgroup::begin_products(sums, chunk, ring.words, index);
        warpgroup_wait<kLoads - 1>();  // for the products whose registers the next chunk takes
        if (kLoads == 2 && step == 0 && more) weight.load(1 - d);
        const int stage = (b + d) * Shape::kStages + step / Shape::kStageSteps;
        if (begins_stage && stage > 0) ring.release(at.stage == 0 ? ring.stages - 1 : at.stage - 1);
        if (step % Shape::kStageSteps == Shape::kStageSteps / 2 && stage > 1) {
          // The warpgroups do it in turn, so that none falls behind.
          if (threadIdx.x % 128 == 0 && stage % Shape::kWarpgroups == warpgroup) ring.refill(free, stage - 2);
          free.advance(ring.stages);
        }
        if (step % Shape::kStageSteps == Shape::kStageSteps - 1) at.advance(ring.stages);
      }
    }
  }
  warpgroup_wait();
  warpgroup::finish<Shape>(args, sums, ring, lane);
}

}  // namespace sm70
