// What exists from compute capability 9.0 on: clusters of blocks with each other's shared memory, copies that signal a
// barrier, and the hand-over between dependent kernels. The emulator has its own versions of the same names.
#pragma once

#include "sm70/common/portability.cuh"

namespace sm70 {

#ifdef SM70_EMULATED

using sm70_emulator::allow_next_kernel;
using sm70_emulator::cluster_arrive;
using sm70_emulator::cluster_rank;
using sm70_emulator::cluster_size;
using sm70_emulator::cluster_wait;
using sm70_emulator::TransactionBarrier;
using sm70_emulator::wait_for_previous_kernel;

#else

// Rank of this block in its cluster.
SM70_DEVICE unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Blocks of this block's cluster; 1 where the launch has none.
SM70_DEVICE unsigned cluster_size() {
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// Every thread of every block of the cluster arrives, then waits. Says that all blocks have started and that their barriers
// are there to be used, if make_visible came before. PTX ISA, barrier.cluster: sm_90 and up.
SM70_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
SM70_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

SM70_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// An mbarrier. A phase completes when all its arrivals have come and the bytes they announced are in shared memory; the
// next phase begins with as many arrivals. PTX ISA, mbarrier and cp.async.bulk: sm_90 and up.
class TransactionBarrier {
 public:
  SM70_DEVICE TransactionBarrier(const SharedSpan<unsigned long long>& span, unsigned index)
      : address_(shared_address(span.address(index))) {}

  // By one thread, before anyone else uses the barrier; then make_visible by that thread, then a barrier of the block, and
  // one of the cluster before a peer's send.
  SM70_DEVICE void initialize(unsigned arrivals = 1) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals));
  }

  // Waits for the thread's own loads as well: call it before loads that should stay on their way.
  SM70_DEVICE static void make_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

  // One arrival. What this thread did before is visible to those who wait for the phase.
  SM70_DEVICE void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }

  // One arrival, which makes the phase wait for so many bytes as well.
  SM70_DEVICE void expect(unsigned bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes) : "memory");
  }

  // Copies bytes, a multiple of 16, from global memory to element `index` of the span; both ends 16-byte aligned.
  SM70_DEVICE void copy(const SharedSpan<uint4>& to, unsigned index, const void* from, unsigned bytes) const {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to.address(index))),
                 "l"(from), "r"(bytes), "r"(address_)
                 : "memory");
  }

  // Stores four values into the same element of the span of another block of the cluster, and counts its bytes on that block's own
  // barrier, the one in this barrier's place. PTX ISA, mapa and st.async: sm_90 and up.
  SM70_DEVICE void send(const SharedSpan<float4>& to, unsigned index, const float4& value, unsigned rank) const {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     peer_address(shared_address(to.address(index)), rank)),
                 "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(__float_as_uint(value.z)),
                 "r"(__float_as_uint(value.w)), "r"(peer_address(address_, rank))
                 : "memory");
  }

  // Returns once the phase of this parity is complete: 0 for the first, 1 for the second, 0 for the third.
  SM70_DEVICE void wait(unsigned parity = 0) const {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(address_),
        "r"(parity)
        : "memory");
  }

 private:
  SM70_DEVICE static unsigned peer_address(unsigned own, unsigned rank) {
    unsigned address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
    return address;
  }

  unsigned address_;
};

// Waits until the kernel before this one in the stream has finished and its writes are visible; returns at once where
// this launch did not ask to overlap with it. PTX ISA, griddepcontrol: sm_90 and up.
SM70_DEVICE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel in the stream start its own prologue, if its launch asks for that.
SM70_DEVICE void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

#endif

}  // namespace sm70
