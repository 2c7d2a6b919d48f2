// Device reader of the scales that mxfp4_block.py packs. Both files change together or not at all.
//
//   block   16 rows x 256 columns = 2176 bytes: the codes of nvfp4_block, then 16 x 8 bytes of scales
//   scales  (t / 2, g) at byte 2048 + 64 (t / 2) + 8 g: chunk 0 row g, chunk 0 row g + 8, chunk 1 row g, ...
//
// Groups t and t + 1 of 16 columns share one scale. Its byte b is the scale over the row's largest one, as 2^(b - 30): an
// E8M0 exponent spans 255 octaves, a product that FP16 holds exactly 25, and the row factor takes the rest.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {
namespace mxfp4_block {

struct E8M0Group32 {
  static constexpr int kRowBytes = 8;
  static constexpr int kGroupScaleBytes = 64;
  static constexpr int kBytes = nvfp4_block::kScaleOffset + nvfp4_block::kGroups / 2 * kGroupScaleBytes;
  static constexpr float kUnscale = 0.5f;
  using Words = uint2;

  SM70_DEVICE static Words load(const uint8_t* block, int t, int g) {
    const uint8_t* address = block + nvfp4_block::kScaleOffset + t / 2 * kGroupScaleBytes + g * kRowBytes;
    return load_global_streaming(reinterpret_cast<const uint2*>(address));
  }

  // The byte's low five bits are FP16's exponent: they read as 2^(b - 15), and the decoder leaves code * 2^(b - 29). That
  // is exact from b = 6 (0.5 becomes 2^-24, the smallest subnormal) to b = 30. Zero reads as zero, 31 never occurs.
  SM70_DEVICE static nvfp4_block::ChunkScales chunk(const Words& words, int c) {
    constexpr uint32_t kExponents = 0x7c007c00u;
    const uint32_t word = c < 2 ? words.x : words.y;
    const uint32_t row_g = (word << 10) & kExponents;
    const uint32_t row_g8 = (word << 2) & kExponents;
    if (c & 1) return {broadcast_high(row_g), broadcast_high(row_g8)};
    return {broadcast_low(row_g), broadcast_low(row_g8)};
  }

  SM70_DEVICE static void advance(Words& words) { nvfp4_block::E4M3Group16::advance(words); }
};

static_assert(E8M0Group32::kBytes == 2176, "mxfp4_block.py writes blocks of this size");

}  // namespace mxfp4_block
}  // namespace sm70
