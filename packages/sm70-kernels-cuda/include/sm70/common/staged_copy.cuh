// A thread's copies of 16-byte pieces from global to shared memory, in flight while the thread computes.
//
// begin() starts a piece, end() names the same place again, wait() follows the last end(); a barrier then shows the
// pieces to the other threads. The destination must be free from begin() on. From 8.0 on the copies pass no registers
// (cp.async); before, the pieces wait in registers. A test build of a 7.x path (SM70_VOLTA_ATOM, SM70_TURING_ATOM)
// takes the 7.x way on any card.
#pragma once

#include "sm70/common/portability.cuh"

#if !defined(SM70_EMULATED) && !defined(SM70_VOLTA_ATOM) && !defined(SM70_TURING_ATOM) && defined(__CUDA_ARCH__) && \
    __CUDA_ARCH__ >= 800
#define SM70_ASYNCHRONOUS_COPY
#endif

namespace sm70 {

template <int kPieces>
class StagedCopy {
 public:
#ifdef SM70_ASYNCHRONOUS_COPY

  // PTX ISA, cp.async (sm_80 and up): a source size of 0 reads nothing and writes zeros.
  SM70_DEVICE void begin(int /* piece */, const SharedSpan<uint4>& to, unsigned index, const uint4* from, bool wanted) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to.address(index)));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(wanted ? 16 : 0)
                 : "memory");
  }

  SM70_DEVICE void end(int /* piece */, const SharedSpan<uint4>& /* to */, unsigned /* index */) {}

  SM70_DEVICE void wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else

  // A piece that is not wanted is zeros, and `from` is not read.
  SM70_DEVICE void begin(int piece, const SharedSpan<uint4>& to, unsigned index, const uint4* from, bool wanted) {
    waiting_[piece] = wanted ? load_global(from) : make_uint4(0, 0, 0, 0);
#ifdef SM70_EMULATED
    // cp.async may write at any time from here on: a reader that is still at work, or one that does not wait, must show.
    constexpr uint32_t kNans = 0x7fff7fffu;
    to.store(index, make_uint4(kNans, kNans, kNans, kNans));
#endif
  }

  SM70_DEVICE void end(int piece, const SharedSpan<uint4>& to, unsigned index) { to.store(index, waiting_[piece]); }

  SM70_DEVICE void wait() {}

 private:
  uint4 waiting_[kPieces];

#endif
};

}  // namespace sm70
