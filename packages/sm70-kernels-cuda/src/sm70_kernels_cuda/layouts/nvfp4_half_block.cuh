// Device reader of the scales that nvfp4_half_block.py packs. Both files change together or not at all.
//
//   block   16 rows x 256 columns = 2560 bytes: the codes of nvfp4_block, then 32 x 16 bytes of scales
//   scales  (t, g) at byte 2048 + 128 t + 16 g: FP16 scale * 2^7 of chunk 0 row g, chunk 0 row g + 8, chunk 1 row g, ...
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {
namespace nvfp4_half_block {

struct Half16Group16 {
  static constexpr int kRowBytes = 16;
  static constexpr int kGroupScaleBytes = 128;
  static constexpr int kBytes = nvfp4_block::kScaleOffset + nvfp4_block::kGroups * kGroupScaleBytes;
  static constexpr float kUnscale = nvfp4_block::kUnscale;
  using Words = uint4;

  SM70_DEVICE static Words load(const uint8_t* block, int t, int g) {
    const uint8_t* address = block + nvfp4_block::kScaleOffset + t * kGroupScaleBytes + g * kRowBytes;
    return load_global_streaming(reinterpret_cast<const uint4*>(address));
  }

  // The word of a chunk holds both rows' factors as the decoder wants them.
  SM70_DEVICE static nvfp4_block::ChunkScales chunk(const Words& words, int c) {
    const uint32_t word = nvfp4_block::atom_word(words, c);
    return {broadcast_low(word), broadcast_high(word)};
  }

  SM70_DEVICE static void advance(Words& words) {
    words.x = words.y;
    words.y = words.z;
    words.z = words.w;
  }
};

static_assert(Half16Group16::kBytes == 2560, "nvfp4_half_block.py writes blocks of this size");

}  // namespace nvfp4_half_block
}  // namespace sm70
