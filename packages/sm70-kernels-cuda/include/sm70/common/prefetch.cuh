// Asks for memory that is needed later, without a register to wait in.
#pragma once

#include "sm70/common/portability.cuh"

namespace sm70 {

constexpr int kPrefetchBytes = 128;  // a line of L2

// Brings the lines of `count` elements at `address` into L2, one line a thread, by threads 0, 1 and so on of the block.
// PTX ISA, prefetch.global: every sm. The emulator has no caches; it checks nothing here, as the hardware does not.
template <class T>
SM70_DEVICE void prefetch_by_block(const T* address, int count) {
#ifndef SM70_EMULATED
  const int lines = (count * static_cast<int>(sizeof(T)) + kPrefetchBytes - 1) / kPrefetchBytes;
  const int line = static_cast<int>(threadIdx.x);
  if (line < lines) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(address) + line * kPrefetchBytes));
  }
#else
  (void)address;
  (void)count;
#endif
}

}  // namespace sm70
