// Device reader of the layout that nvfp4_block.py packs. Both files change together or not at all.
//
//   block   16 rows x 256 columns = 2304 bytes: 128 atoms of 16 bytes, then 32 x 8 bytes of scales
//   atom    (chunk c, group t, row g): rows g and g + 8, columns 64 c + 16 t to 64 c + 16 t + 15, at byte
//           512 c + 128 t + 16 g; its word i holds columns 4 i to 4 i + 3 of both rows
//   scales  (t, g) at byte 2048 + 64 t + 8 g: E4M3 bytes of chunk 0 row g, chunk 0 row g + 8, chunk 1 row g, ...
//
// One lane reads one atom of each of the four chunks and one 8-byte group of scales: a "unit" of 2 rows x 64 columns.
#pragma once

#include "sm70/common/lop3.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {
namespace nvfp4_block {

constexpr int kRows = 16;
constexpr int kColumns = 256;
constexpr int kChunks = 4;           // of 64 columns
constexpr int kChunkColumns = 64;
constexpr int kGroupColumns = 16;    // columns that share one scale
constexpr int kGroups = kChunkColumns / kGroupColumns;
constexpr int kChunkBytes = 512;
constexpr int kGroupBytes = 128;
constexpr int kAtomBytes = 16;
constexpr int kScaleOffset = kChunks * kChunkBytes;  // scales follow the codes

// Scales of one chunk, each twice in a half2: the row's factor times what the format's kUnscale undoes.
struct ChunkScales {
  uint32_t row_g;
  uint32_t row_g8;
};

SM70_DEVICE const uint4* atom_address(const uint8_t* block, int c, int t, int g) {
  return reinterpret_cast<const uint4*>(block + c * kChunkBytes + t * kGroupBytes + g * kAtomBytes);
}

// Every kernel takes the scales of a block as a type with these members; mxfp4_block.cuh and nvfp4_half_block.cuh have
// the other ones. The codes in front of them are the same for all.
//   kBytes    of a block
//   kUnscale  code * factor leaves the decoder divided by this, which keeps it exact in FP16
//   Words     what one lane loads for (t, g): the scales of all four chunks for rows g and g + 8
//   load      the words of (t, g) of the block at `block`
//   chunk     the scales of chunk c, a compile-time number
//   advance   moves every chunk's scales to the place of the chunk before it
struct E4M3Group16 {
  static constexpr int kRowBytes = 8;
  static constexpr int kGroupScaleBytes = 64;
  static constexpr int kBytes = kScaleOffset + kGroups * kGroupScaleBytes;
  static constexpr float kUnscale = 128.0f;
  using Words = uint2;

  SM70_DEVICE static const Words* address(const uint8_t* block, int t, int g) {
    return reinterpret_cast<const Words*>(block + kScaleOffset + t * kGroupScaleBytes + g * kRowBytes);
  }

  SM70_DEVICE static Words load(const uint8_t* block, int t, int g) {
    return load_global_streaming(address(block, t, g));
  }

  // E4M3 bits moved to FP16's exponent and mantissa read as value * 2^-8 (bias 15 against 7), subnormals included; the
  // multiplication by 2^15 (0x7800) brings 2^7. The sign bit is masked off: scales are never negative. The decoder
  // leaves code * scale * 2^-7, which is exact for every code and scale.
  SM70_DEVICE static ChunkScales chunk(const Words& words, int c) {
    constexpr uint32_t kMask = 0x3f803f80u;
    constexpr uint32_t kTwoTo15 = 0x78007800u;
    const uint32_t word = c < 2 ? words.x : words.y;
    const uint32_t row_g = multiply_half2((word << 7) & kMask, kTwoTo15);
    const uint32_t row_g8 = multiply_half2((word >> 1) & kMask, kTwoTo15);
    if (c & 1) return {broadcast_high(row_g), broadcast_high(row_g8)};
    return {broadcast_low(row_g), broadcast_low(row_g8)};
  }

  SM70_DEVICE static void advance(Words& words) {
    words.x = (words.x >> 16) | (words.y << 16);
    words.y >>= 16;
  }
};

constexpr int kBytes = E4M3Group16::kBytes;
constexpr float kUnscale = E4M3Group16::kUnscale;
static_assert(kBytes == 2304, "nvfp4_block.py writes blocks of this size");

template <class Scales>
struct UnitOf {
  uint4 atoms[kChunks];
  typename Scales::Words scales;
};

using Unit = UnitOf<E4M3Group16>;

SM70_DEVICE uint4 load_atom(const uint8_t* block, int c, int t, int g) {
  return load_global_streaming(atom_address(block, c, t, g));
}

// What the lane of group t and rows g and g + 8 reads of one block after the other. Two pointers that only ever move: from a
// block's address and (t, g) the compiler works out each load's address anew, with seven instructions.
class LaneCursor {
 public:
  // `first` is what load_atom calls chunk 0.
  SM70_DEVICE LaneCursor(const uint8_t* block, int t, int g, int first = 0)
      : atoms_(atom_address(block, first, t, g)), scales_(E4M3Group16::address(block, t, g)) {}

  SM70_DEVICE uint4 load_atom(int c) const { return load_global_streaming(atoms_ + c * (kChunkBytes / kAtomBytes)); }
  SM70_DEVICE uint2 load_scales() const { return load_global_streaming(scales_); }

  SM70_DEVICE Unit load_unit() const {
    Unit unit;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) unit.atoms[c] = load_atom(c);
    unit.scales = load_scales();
    return unit;
  }

  SM70_DEVICE void advance(int blocks) {
    atoms_ += blocks * (kBytes / kAtomBytes);
    scales_ += blocks * (kBytes / E4M3Group16::kRowBytes);
  }

 private:
  const uint4* atoms_;
  const uint2* scales_;
};

SM70_DEVICE const uint2* scale_address(const uint8_t* block, int t, int g) { return E4M3Group16::address(block, t, g); }

SM70_DEVICE uint2 load_scales(const uint8_t* block, int t, int g) { return E4M3Group16::load(block, t, g); }

// Loads the unit (group t, rows g and g + 8) of the block at `block`.
template <class Scales = E4M3Group16>
SM70_DEVICE UnitOf<Scales> load_unit(const uint8_t* block, int t, int g) {
  UnitOf<Scales> unit;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) unit.atoms[c] = load_atom(block, c, t, g);
  unit.scales = Scales::load(block, t, g);
  return unit;
}

template <class Scales>
SM70_DEVICE ChunkScales chunk_scales(const UnitOf<Scales>& unit, int c) {
  return Scales::chunk(unit.scales, c);
}

// Four columns of two rows as half2 pairs: code * 2^-14 * scale.
struct Quad {
  uint32_t row_g[2];   // columns 4 i, 4 i + 1 and 4 i + 2, 4 i + 3 of row g
  uint32_t row_g8[2];  // the same columns of row g + 8
};

// Bits of a word, for columns 4 i (low half) and 4 i + 1 (high half), 4 i + 2 and 4 i + 3 likewise:
//   bit 15 14 13 12 11 10  9  8 |  7  6  5  4  3  2  1  0
//        s2 s0 m2 m2 m2 m0 m0 m0 | s2 s0 m2 m2 m2 m0 m0 m0      left: row g, right: row g + 8; s sign, m magnitude
// An E2M1 magnitude in bits 11 to 9 of a half reads as code * 2^-14 (bias 15 against 1), its subnormal included.
// Nine integer operations for eight codes.
SM70_DEVICE Quad decode_quad(uint32_t word, const ChunkScales& scales) {
  constexpr uint32_t kSignAndMagnitude = 0x8e008e00u;
  constexpr uint32_t kSigns = 0x80808080u;
  const uint32_t upper = select_bits(kSigns, word, word >> 2);
  Quad quad;
  quad.row_g[0] = multiply_half2((word << 1) & kSignAndMagnitude, scales.row_g);
  quad.row_g[1] = multiply_half2(upper & kSignAndMagnitude, scales.row_g);
  quad.row_g8[0] = multiply_half2((word << 9) & kSignAndMagnitude, scales.row_g8);
  quad.row_g8[1] = multiply_half2((upper << 8) & kSignAndMagnitude, scales.row_g8);
  return quad;
}

SM70_DEVICE uint32_t atom_word(const uint4& atom, int i) {
  return i == 0 ? atom.x : i == 1 ? atom.y : i == 2 ? atom.z : atom.w;
}

}  // namespace nvfp4_block
}  // namespace sm70
