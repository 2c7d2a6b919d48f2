// Layout blocks on their way from global memory to one warp, in shared memory that belongs to the lane: every lane copies its
// own unit (nvfp4_block.cuh) and reads it back, so that nobody else has to wait for it.
//
// A load into registers cannot do this: the assembler gives loads that are under way together one scoreboard, and waiting for
// the oldest of them waits for all. Groups of asynchronous copies end in their order instead.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"

namespace sm70 {

// kDepth units are under way or waiting to be read. begin() and take() alternate after kDepth calls of begin().
template <int kDepth>
class UnitRing {
 public:
  static constexpr unsigned kWarpBytes = kDepth * nvfp4_block::kBytes;

  // `base` is 16-byte aligned and has kWarpBytes for this warp.
  SM70_DEVICE UnitRing(unsigned char* base, int lane)
      : atoms_(base, kWarpBytes / 16), scales_(base, kWarpBytes / 8), lane_(lane) {}

  // Starts the copy of the unit (group t, rows g and g + 8) of the block at `from`, unless it is not wanted.
  SM70_DEVICE void begin(int slot, const uint8_t* from, int t, int g, bool wanted) {
    if (wanted) {
#pragma unroll
      for (int c = 0; c < nvfp4_block::kChunks; ++c) {
        copy(atoms_.address(atom(slot, c)), nvfp4_block::atom_address(from, c, t, g));
      }
      copy(scales_.address(scale(slot)), nvfp4_block::scale_address(from, t, g));
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // The oldest unit, once it is there.
  SM70_DEVICE nvfp4_block::Unit take(int slot) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    nvfp4_block::Unit unit;
#pragma unroll
    for (int c = 0; c < nvfp4_block::kChunks; ++c) unit.atoms[c] = atoms_.load(atom(slot, c));
    unit.scales = scales_.load(scale(slot));
    return unit;
  }

 private:
  SM70_DEVICE unsigned atom(int slot, int c) const { return slot * (nvfp4_block::kBytes / 16) + c * 32 + lane_; }
  SM70_DEVICE unsigned scale(int slot) const {
    return (slot * nvfp4_block::kBytes + nvfp4_block::kScaleOffset) / 8 + lane_;
  }

  SM70_DEVICE static void copy(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  SM70_DEVICE static void copy(uint2* to, const uint2* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }

  SharedSpan<uint4> atoms_;
  SharedSpan<uint2> scales_;
  unsigned lane_;
};

}  // namespace sm70
