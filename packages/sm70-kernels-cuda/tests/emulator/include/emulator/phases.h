// What a copy has brought to shared memory: who may read it, and what must come before it is overwritten.
#pragma once
#include "emulator/ordering.h"

namespace sm70_emulator {

// One access to shared memory, for the text of an error.
struct SharedAccess {
    const char* verb;
    uint32_t offset;
    uint32_t bytes;
    Site site;
};

[[noreturn]] __attribute__((noinline, cold)) inline void fail_shared(
    const SharedAccess& access, const std::string& what) {
    fail(
        format(
            "shared %s of %u bytes at byte %u: %s", access.verb, access.bytes, access.offset, what.c_str()),
        access.site);
}

inline std::string phase_text(const Phase& phase) {
    return format("phase %u of the TransactionBarrier at byte %u", phase.number, phase.barrier_offset);
}

// By the thread itself: it cannot take another one's word for it.
inline void check_waited(
    const Phase& phase, const Lane& lane, uint32_t writer, const SharedAccess& access, const char* did) {
    if (!has_stamp(phase.waited, lane))
        fail_shared(
            access,
            std::string(did) + " before the copy was waited for: " + numbered_text(writer) +
                " copied there, and " +
                (&lane == machine.current ? "this thread" : thread_text(lane).c_str()) +
                " has not waited for " + phase_text(phase));
}

[[noreturn]] __attribute__((noinline, cold)) inline void fail_phase_race(
    const SharedAccess& access, const Phase& phase, uint32_t reader, const char* did, const char* barrier) {
    const bool unfinished =
        !phase.products.empty() && phase.products[reader % 1024].clock == Stamp::unfinished;
    fail_shared(
        access,
        "write-after-read race: " + numbered_text(reader) +
            (unfinished ? " reads by warpgroup_multiply" : did) + " what came with " + phase_text(phase) +
            ", and " +
            (unfinished ? std::string("has not called warpgroup_wait")
                        : std::string("no ") + barrier + " orders the two"));
}

// Every read in `reads`, of what the phase brought, must come before what the current thread does.
inline void check_phase_reads(
    const Stamps& reads, const Phase& phase, const SharedAccess& access, const char* did) {
    const Lane& lane = *machine.current;
    for (uint32_t reader = 0; reader < reads.size(); ++reader)
        if (!stamp_ordered(lane, reader, reads[reader]))
            fail_phase_race(access, phase, lane_number(machine.block->rank, reader), did, "barrier");
}

inline void check_loads(const Phase& phase, const SharedAccess& access) {
    check_phase_reads(phase.loads, phase, access, " read");
}

inline void check_products(const Phase& phase, const SharedAccess& access) {
    check_phase_reads(phase.products, phase, access, " read by warpgroup_multiply, until warpgroup_wait,");
}

// The same for a thread of another block, for which only cluster barriers count.
inline void check_peer_products(const Phase& phase, const SharedAccess& access, uint32_t rank) {
    for (uint32_t reader = 0; reader < phase.products.size(); ++reader) {
        const Stamp& stamp = phase.products[reader];
        if (stamp.epoch == 0 || ordered_in_cluster(*machine.current, stamp.cluster)) continue;
        fail_phase_race(
            access, phase, lane_number(rank, reader), " read by warpgroup_multiply", "cluster barrier");
    }
}

// A copy over a copy: some thread must have waited for the first, all reads of what it brought must be over,
// and the thread that copies must know that.
inline void check_overwrite(const Phase& phase, const SharedAccess& access) {
    const Lane& lane = *machine.current;
    bool known = false;
    for (uint32_t waiter = 0; waiter < phase.waited.size() && !known; ++waiter)
        known = phase.waited[waiter].epoch && stamp_ordered(lane, waiter, phase.waited[waiter]);
    if (!known)
        fail_shared(
            access,
            "written before the copy was waited for: " +
                std::string(
                    phase.landed ? "no barrier tells this thread that somebody has waited for "
                                 : "nobody has waited for ") +
                phase_text(phase));
    check_loads(phase, access);
    check_products(phase, access);
}

}  // namespace sm70_emulator
