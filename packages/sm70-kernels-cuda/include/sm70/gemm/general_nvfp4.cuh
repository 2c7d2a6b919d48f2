// y[M, N] = (x[M, K] @ w[N, K]^T) * row_factor[N] + bias[N] for any M, x and y in FP16, sums in FP32;
// w in E2M1 codes with the scales that the parameter `Scales` reads: NVFP4 or MXFP4.
//
//   operand     dtype    layout                         alignment
//   weight      uint8    that of Scales, N x K padded   16 bytes
//   x           FP16     [M, K] row-major, K % 16 == 0  16 bytes
//   row_factor  FP32     [N]                            4 bytes
//   bias        FP16     [N] or null                    2 bytes
//   y           FP16     [M, N] row-major               2 bytes
//
// or y[M, N / 2] in gated mode (gated.cuh).
//
// A block of threads computes kTokenTiles * 8 rows of y by one strip of its columns, with kWarpsN x kWarpsK warps:
// warps along N share the strip, warps along K share the 256-column blocks of the layout in turn. All of them walk
// through K in slabs, four to a layout block:
//
//   K ->             | block 0            | block 1            | block 2            | block 3            | ...
//   warps, kWarpsK=2 | wk 0               | wk 1               | wk 0               | wk 1               |
//   slab             | 0  | 1  | 2  | 3   | 0  | 1  | 2  | 3   | 4  | 5  | 6  | 7   | 4  | 5  | 6  | 7   |
//
// A slab of x (64 columns for each warp along K) is staged in shared memory while the one before it is multiplied;
// beyond M and K it is zeros, and x is not read. A row of it takes 16 bytes more than a multiple of 128, which spreads
// the 16-byte reads of both atoms over all banks. Weights come straight from global memory, a slab ahead, are decoded once
// and multiply all token tiles. Blocks that share a strip are neighbours in the grid, so that it is read from DRAM once.
// The sums of the warps along K meet in shared memory in a fixed order: two runs give the same bits.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/common/staged_copy.cuh"
#include "sm70/gemm/gated.cuh"
#include "sm70/gemm/linear_arguments.cuh"
#include "sm70/mma/ampere.cuh"
#include "sm70/mma/turing.cuh"
#include "sm70/mma/volta.cuh"

namespace sm70 {

namespace general {

constexpr int kTokens = 8;        // of a token tile
constexpr int kPieceColumns = 8;  // of x in 16 bytes
constexpr int kChunkPieces = nvfp4_block::kChunkColumns / kPieceColumns;

// What a warp holds besides what its atom says.
//   kFragments     accumulators, each of Atom::kTiles row tiles: a fragment of x is read once for all of them
//   kPartialPitch  floats of a token's partial sums: the rows of a warp, and padding for the banks of a fragment's store
//   kPassTiles     most token tiles of one pass through the final sum
//   kResidentTiles most token tiles whose sums leave room for two blocks of eight warps on a multiprocessor
//   kTwoSetTiles   most token tiles whose sums leave room for two sets of a slab's atoms
//   kSharedBytes   shared memory of a multiprocessor: registers are kept free for no more blocks than it holds
//
// With one set, a group's next atoms are loaded once its current ones are decoded. With two, those of a whole slab are
// loaded before the slab before it is multiplied: 7.x has six scoreboards, a wait is for all loads that share one, and loads
// between those of x and their use were waited for with x, after a third of a slab.
template <class Atom>
struct WarpShape;

template <>
struct WarpShape<VoltaAtom> {
  static constexpr int kFragments = 1;
  static constexpr int kPartialPitch = 65;
  static constexpr int kPassTiles = 2;
  static constexpr int kResidentTiles = 1;
  static constexpr int kTwoSetTiles = 6;
  static constexpr int kSharedBytes = 96 * 1024;
};

template <>
struct WarpShape<TuringAtom> {
  static constexpr int kFragments = 2;
  static constexpr int kPartialPitch = 36;
  static constexpr int kPassTiles = 2;
  static constexpr int kResidentTiles = 3;
  static constexpr int kTwoSetTiles = 8;
  static constexpr int kSharedBytes = 64 * 1024;
};

template <>
struct WarpShape<AmpereAtom> {
  static constexpr int kFragments = 2;
  static constexpr int kPartialPitch = 36;
  static constexpr int kPassTiles = 4;
  static constexpr int kResidentTiles = 4;
  static constexpr int kTwoSetTiles = 0;
  static constexpr int kSharedBytes = 164 * 1024;
};

template <class ScaleFormat, class AtomType, int kTiles, int kAlongN, int kAlongK>
struct Shape {
  using Scales = ScaleFormat;
  using Atom = AtomType;
  using Warp = WarpShape<Atom>;
  static constexpr int kTokenTiles = kTiles;
  static constexpr int kWarpsN = kAlongN;
  static constexpr int kWarpsK = kAlongK;
  static constexpr int kWarps = kWarpsN * kWarpsK;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockTokens = kTokenTiles * kTokens;
  static constexpr int kFragmentRows = Atom::kTiles * nvfp4_block::kRows;
  static constexpr int kWarpRows = Warp::kFragments * kFragmentRows;
  static constexpr int kStrip = kWarpsN * kWarpRows;
  static constexpr int kRowPieces = kWarpsK * kChunkPieces;
  static constexpr int kPitch = kRowPieces + 1;  // in pieces
  static constexpr int kBufferPieces = kBlockTokens * kPitch;
  static constexpr int kThreadPieces = kBlockTokens * kRowPieces / kThreads;
  static constexpr int kPasses = (kTokenTiles + Warp::kPassTiles - 1) / Warp::kPassTiles;
  static constexpr int kPassTiles = kTokenTiles / kPasses;
  static constexpr int kPartials = kWarps * kPassTiles * kTokens * Warp::kPartialPitch;
  static constexpr int kSharedBytes = 2 * kBufferPieces * 16 > kPartials * 4 ? 2 * kBufferPieces * 16 : kPartials * 4;
  static constexpr int kRegisterBlocks = (kTokenTiles <= Warp::kResidentTiles ? 2 : 1) * 8 / kWarps;
  static constexpr int kSharedBlocks = Warp::kSharedBytes >= kSharedBytes ? Warp::kSharedBytes / kSharedBytes : 1;
  static constexpr int kResidentBlocks = kRegisterBlocks < kSharedBlocks ? kRegisterBlocks : kSharedBlocks;
  static constexpr int kAtomSets = kTokenTiles <= Warp::kTwoSetTiles ? 2 : 1;

  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(kThreads % kRowPieces == 0 && kBlockTokens * kRowPieces % kThreads == 0, "threads copy equal shares");
  static_assert(kTokenTiles % kPassTiles == 0, "every pass is full");
  static_assert(nvfp4_block::kChunks % kAtomSets == 0, "a round of slabs ends with the last set");
  static_assert(2 * kBufferPieces * 16 <= 96 * 1024 && kPartials * 4 <= 48 * 1024,
                "a block must fit the shared memory that every card gives without asking");
};

SM70_DEVICE int ceil_divide(int value, int by) { return (value + by - 1) / by; }

// Where a block of threads stands in y, and a warp in K.
template <class Shape>
struct Place {
  int token;  // first row of y
  int column;  // first row of the product, which is a column of y outside gated mode
  int warp_n;
  int warp_k;

  SM70_DEVICE explicit Place(const LinearArguments& args) {
    const int token_blocks = ceil_divide(args.m, Shape::kBlockTokens);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    token = static_cast<int>(blockIdx.x) % token_blocks * Shape::kBlockTokens;
    column = static_cast<int>(blockIdx.x) / token_blocks * Shape::kStrip;
    warp_n = warp % Shape::kWarpsN;
    warp_k = warp / Shape::kWarpsN;
  }

  // Of the layout along K, the block that warp_k multiplies in this slab, and the first column of its chunk.
  SM70_DEVICE static int layout_block(int slab, int warp_k) {
    return slab / nvfp4_block::kChunks * Shape::kWarpsK + warp_k;
  }

  SM70_DEVICE static int slab_column(int slab, int warp_k) {
    return layout_block(slab, warp_k) * nvfp4_block::kColumns + slab % nvfp4_block::kChunks * nvfp4_block::kChunkColumns;
  }
};

// The two buffers of x. A thread copies kThreadPieces pieces of every slab, in the same place of different tokens.
template <class Shape>
class TokenSlabs {
 public:
  SM70_DEVICE TokenSlabs(const LinearArguments& args, const Place<Shape>& place)
      : span_(dynamic_shared(), 2 * Shape::kBufferPieces), k_(args.k) {
    const int thread = static_cast<int>(threadIdx.x);
    const int token = thread / Shape::kRowPieces;
    const int piece = thread % Shape::kRowPieces;
    tokens_ = args.m - place.token - token;
    column_ = Place<Shape>::slab_column(0, piece / kChunkPieces) + piece % kChunkPieces * kPieceColumns;
    next_ = args.x + static_cast<size_t>(place.token + token) * k_ + column_;
    index_ = token * Shape::kPitch + piece;
  }

  // Starts the copies of the next slab, which is `slab`: slabs come in their order.
  SM70_DEVICE void begin(int slab) {
#pragma unroll
    for (int i = 0; i < Shape::kThreadPieces; ++i) {
      const __half* from = next_ + static_cast<unsigned>(i * kTokenStep) * static_cast<unsigned>(k_);
      const bool wanted = i * kTokenStep < tokens_ && column_ < k_;
      copy_.begin(i, span_, index(slab, i), reinterpret_cast<const uint4*>(from), wanted);
    }
    const int step = Place<Shape>::slab_column(slab + 1, 0) - Place<Shape>::slab_column(slab, 0);
    next_ += step;
    column_ += step;
  }

  SM70_DEVICE void finish(int slab) {
#pragma unroll
    for (int i = 0; i < Shape::kThreadPieces; ++i) copy_.end(i, span_, index(slab, i));
    copy_.wait();
  }

  // Columns 8 piece to 8 piece + 7 of the chunk that warp_k multiplies in this slab.
  SM70_DEVICE uint4 load(int slab, int token, int warp_k, int piece) const {
    return span_.load(buffer(slab) + token * Shape::kPitch + warp_k * kChunkPieces + piece);
  }

 private:
  static constexpr int kTokenStep = Shape::kThreads / Shape::kRowPieces;

  SM70_DEVICE static unsigned buffer(int slab) { return slab % 2 * Shape::kBufferPieces; }
  SM70_DEVICE unsigned index(int slab, int i) const { return buffer(slab) + index_ + i * kTokenStep * Shape::kPitch; }

  SharedSpan<uint4> span_;
  StagedCopy<Shape::kThreadPieces> copy_;
  const __half* next_;  // this thread's first piece of the slab to begin next
  int column_;          // its column
  int k_;
  int tokens_;  // from its token to the last
  unsigned index_;  // of its place in a buffer
};

// The weights of a warp: atoms of one slab, scales of the current and the next layout block.
template <class Shape>
class WeightStream {
 public:
  using Atom = typename Shape::Atom;
  using Scales = typename Shape::Scales;
  static constexpr int kGroups = Atom::kUnitsPerBlock;  // that one lane multiplies in a chunk
  static constexpr int kFragments = Shape::Warp::kFragments;

  SM70_DEVICE WeightStream(const LinearArguments& args, const Place<Shape>& place, const typename Atom::Lane& lane)
      : lane_(lane), warp_k_(place.warp_k), blocks_(ceil_divide(args.k, nvfp4_block::kColumns)) {
    const int first = (place.column + place.warp_n * Shape::kWarpRows) / nvfp4_block::kRows;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const size_t tile = static_cast<size_t>(weight_tile(args, first + f * Atom::kTiles + lane.tile));
      tile_[f] = args.weight + tile * blocks_ * Scales::kBytes;
    }
    load_scales(0);
    use_next_scales();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) load_atoms(0, 0, group);
  }

  // Starts the loads of all groups of a slab into a set.
  SM70_DEVICE void load_slab(int slab, int set) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) load_atoms(slab, set, group);
  }

  // Starts the loads of one group of a slab. Beyond K nothing is read, and nothing will be multiplied.
  SM70_DEVICE void load_atoms(int slab, int set, int group) {
    if (!has_weights(slab)) return;
    const size_t offset = block_offset(slab);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      atoms_[set][group][f] =
          nvfp4_block::load_atom(tile_[f] + offset, slab % nvfp4_block::kChunks, lane_.group(group), lane_.row);
    }
  }

  SM70_DEVICE uint4 atom(int set, int group, int fragment) const { return atoms_[set][group][fragment]; }

  SM70_DEVICE nvfp4_block::ChunkScales scales(int group, int fragment) const {
    return Scales::chunk(scales_[group][fragment], 0);
  }

  // Once the slab's chunk is decoded: the next chunk's scales move to the front, or the next layout block's.
  SM70_DEVICE void advance_scales(int slab) {
    const int chunk = slab % nvfp4_block::kChunks;
    if (chunk == nvfp4_block::kChunks - 1) {
      use_next_scales();
      return;
    }
    if (chunk == 0) load_scales(slab + nvfp4_block::kChunks);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) Scales::advance(scales_[group][f]);
    }
  }

 private:
  SM70_DEVICE bool has_weights(int slab) const { return Place<Shape>::layout_block(slab, warp_k_) < blocks_; }

  SM70_DEVICE size_t block_offset(int slab) const {
    return static_cast<size_t>(Place<Shape>::layout_block(slab, warp_k_)) * Scales::kBytes;
  }

  SM70_DEVICE void load_scales(int slab) {
    if (!has_weights(slab)) return;
    const size_t offset = block_offset(slab);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        next_scales_[group][f] = Scales::load(tile_[f] + offset, lane_.group(group), lane_.row);
      }
    }
  }

  SM70_DEVICE void use_next_scales() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) scales_[group][f] = next_scales_[group][f];
    }
  }

  typename Atom::Lane lane_;
  const uint8_t* tile_[kFragments];
  int warp_k_;
  int blocks_;
  uint4 atoms_[Shape::kAtomSets][kGroups][kFragments] = {};
  typename Scales::Words scales_[kGroups][kFragments] = {};
  typename Scales::Words next_scales_[kGroups][kFragments] = {};
};

template <class Shape>
struct Accumulators {
  typename Shape::Atom::template Accumulator<Shape::kTokenTiles> fragments[Shape::Warp::kFragments];
};

// Multiplies one group's columns 8 half to 8 half + 7 of every fragment with every token tile.
template <class Shape>
SM70_DEVICE void multiply_half_group(Accumulators<Shape>& acc, const uint4 (&atoms)[Shape::Warp::kFragments],
                                     const nvfp4_block::ChunkScales (&scales)[Shape::Warp::kFragments],
                                     const TokenSlabs<Shape>& x, int slab, int warp_k, int row, int piece) {
  constexpr int kFragments = Shape::Warp::kFragments;
  const int half = piece % 2;
  nvfp4_block::Quad quads[kFragments][2];
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      quads[f][i] = nvfp4_block::decode_quad(nvfp4_block::atom_word(atoms[f], 2 * half + i), scales[f]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
    const uint4 tokens = x.load(slab, tile * kTokens + row, warp_k, piece);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      Shape::Atom::multiply(acc.fragments[f], tile, quads[f][0], tokens.x, tokens.y);
      Shape::Atom::multiply(acc.fragments[f], tile, quads[f][1], tokens.z, tokens.w);
    }
  }
}

// Multiplies the warp's chunk of a slab, whose atoms are in `set`. If that is the only one, the loads of the next slab's
// atoms start before, group by group.
template <class Shape>
SM70_DEVICE void multiply_chunk(Accumulators<Shape>& acc, WeightStream<Shape>& weight, const TokenSlabs<Shape>& x,
                                const typename Shape::Atom::Lane& lane, int slab, int set, int warp_k) {
  constexpr int kFragments = Shape::Warp::kFragments;
#pragma unroll
  for (int group = 0; group < WeightStream<Shape>::kGroups; ++group) {
    uint4 atoms[kFragments];
    nvfp4_block::ChunkScales scales[kFragments];
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      atoms[f] = weight.atom(set, group, f);
      scales[f] = weight.scales(group, f);
    }
    if constexpr (Shape::kAtomSets == 1) weight.load_atoms(slab + 1, set, group);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply_half_group<Shape>(acc, atoms, scales, x, slab, warp_k, lane.row, 2 * lane.group(group) + half);
    }
  }
  weight.advance_scales(slab);
}

// The sum of a row of the strip over the warps along K, in their order.
template <class Shape>
SM70_DEVICE float sum_of_warps(const SharedSpan<float>& partial, int token, int row) {
  constexpr int kWarpFloats = Shape::kPassTiles * kTokens * Shape::Warp::kPartialPitch;
  const int warp_n = row / Shape::kWarpRows;
  const int offset = token * Shape::Warp::kPartialPitch + row % Shape::kWarpRows;
  float sum = 0.0f;
#pragma unroll
  for (int warp_k = 0; warp_k < Shape::kWarpsK; ++warp_k) {
    sum += partial.load((warp_k * Shape::kWarpsN + warp_n) * kWarpFloats + offset);
  }
  return sum;
}

// Writes the results of one pass of token tiles.
template <class Shape>
SM70_DEVICE void store_pass(const LinearArguments& args, const Place<Shape>& place, const SharedSpan<float>& partial,
                            int first_tile) {
  constexpr int kPassTokens = Shape::kPassTiles * kTokens;
  for (int i = static_cast<int>(threadIdx.x); i < kPassTokens * Shape::kStrip; i += Shape::kThreads) {
    const int token = i / Shape::kStrip;
    const int column = i % Shape::kStrip;
    const int m = place.token + first_tile * kTokens + token;
    const int n = place.column + column;
    if (m >= args.m || n >= args.n) continue;
    const float value = linear_value<typename Shape::Scales>(args, n, sum_of_warps<Shape>(partial, token, column));
    store_global(args.y + static_cast<size_t>(m) * args.n + n, __float2half_rn(value));
  }
}

// The same in gated mode.
template <class Shape>
SM70_DEVICE void store_gated_pass(const LinearArguments& args, const Place<Shape>& place, const SharedSpan<float>& partial,
                                  int first_tile) {
  constexpr int kPassTokens = Shape::kPassTiles * kTokens;
  constexpr int kColumns = Shape::kStrip / 2;
  static_assert(Shape::kWarpRows % kGatedRows == 0, "a warp has gate and up of the same columns");
  const int columns = output_columns(args);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kPassTokens * kColumns; i += Shape::kThreads) {
    const int token = i / kColumns;
    const int column = i % kColumns;
    const int m = place.token + first_tile * kTokens + token;
    const int n = place.column / 2 + column;
    if (m >= args.m || n >= columns) continue;
    const float gate = sum_of_warps<Shape>(partial, token, gate_row(column));
    const float up = sum_of_warps<Shape>(partial, token, gate_row(column) + nvfp4_block::kRows);
    store_global(args.y + static_cast<size_t>(m) * columns + n, gated_result<typename Shape::Scales>(args, n, gate, up));
  }
}

template <class Shape>
SM70_DEVICE void reduce_and_store(const LinearArguments& args, const Place<Shape>& place,
                                  const Accumulators<Shape>& acc, const typename Shape::Atom::Lane& lane) {
  const SharedSpan<float> partial(dynamic_shared(), Shape::kPartials);
  const int warp = place.warp_k * Shape::kWarpsN + place.warp_n;
#pragma unroll
  for (int first = 0; first < Shape::kTokenTiles; first += Shape::kPassTiles) {
    if (first > 0) __syncthreads();  // the previous pass has been read
#pragma unroll
    for (int tile = 0; tile < Shape::kPassTiles; ++tile) {
      const int tile_token = (warp * Shape::kPassTiles + tile) * kTokens;
#pragma unroll
      for (int f = 0; f < Shape::Warp::kFragments; ++f) {
        Shape::Atom::visit(acc.fragments[f], first + tile, lane, [&](int token, int row, float value) {
          partial.store((tile_token + token) * Shape::Warp::kPartialPitch + f * Shape::kFragmentRows + row, value);
        });
      }
    }
    __syncthreads();
    if (args.gated) {
      store_gated_pass<Shape>(args, place, partial, first);
    } else {
      store_pass<Shape>(args, place, partial, first);
    }
  }
}

}  // namespace general

// Shared memory: the larger of 2 * kBufferPieces * 16 and kPartials * 4 bytes. Grid: one block a strip and kBlockTokens
// tokens, the tokens first. Block: kThreads.
template <class Scales, class Atom, int kTokenTiles, int kWarpsN, int kWarpsK>
SM70_DEVICE void general_fp4(const LinearArguments& args) {
  using Shape = general::Shape<Scales, Atom, kTokenTiles, kWarpsN, kWarpsK>;
  const general::Place<Shape> place(args);
  const typename Atom::Lane lane(static_cast<int>(threadIdx.x) % 32);
  general::TokenSlabs<Shape> x(args, place);
  x.begin(0);
  general::WeightStream<Shape> weight(args, place, lane);
  general::Accumulators<Shape> acc = {};
  x.finish(0);
  __syncthreads();

  const int rounds = general::ceil_divide(args.k, kWarpsK * nvfp4_block::kColumns);
  const int slabs = rounds * nvfp4_block::kChunks;
  constexpr int kSets = Shape::kAtomSets;
  for (int first = 0; first < slabs; first += kSets) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int slab = first + set;
      // Beyond K a slab of x is zeros: with two sets, always copying one saves waits on the way around the copy.
      const bool more = kSets == 2 || slab + 1 < slabs;
      if constexpr (kSets == 2) weight.load_slab(slab + 1, 1 - set);
      if (more) x.begin(slab + 1);
      if (general::Place<Shape>::slab_column(slab, place.warp_k) < args.k) {
        general::multiply_chunk<Shape>(acc, weight, x, lane, slab, set, place.warp_k);
      }
      if (more) x.finish(slab + 1);
      __syncthreads();  // the next slab is complete, and this one's buffer is free
    }
  }
  general::reduce_and_store<Shape>(args, place, acc, lane);
}

}  // namespace sm70
