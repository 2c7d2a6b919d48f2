// Which earlier access of another thread is ordered before the current one.
//
// Each thread has a clock, which grows whenever others may learn what it has done: at __syncwarp, at
// warpgroup_sync, at block barriers and when it arrives at a TransactionBarrier. What a thread has learnt is
// the last such clock of every other thread: Warp::seen for its own warp, and Lane::known for the whole
// block, which is there only once a thread has learnt something across warps.
#pragma once
#include <algorithm>

#include "emulator/machine.h"

namespace sm70_emulator {

// Is an access of thread `other` at its clock `clock`, in the current epoch, ordered before the current
// thread?
inline bool ordered_by_clock(const Lane& lane, uint32_t other, uint32_t clock) {
    if (other / 32 == lane.number / 32 && lane.warp->seen[lane.lane][other % 32] >= clock) return true;
    return lane.known && other / 1024 == lane.number / 1024 && (*lane.known)[other % 1024] >= clock;
}

// The same for an access of any thread of the cluster that had arrived at `arrived` cluster barriers before.
inline bool ordered_in_cluster(const Lane& lane, uint32_t arrived) {
    return lane.cluster_waited > arrived;
}

// Is the last write, by a thread of this block, ordered before the current thread?
inline bool write_ordered(const AccessTag& tag, const Lane& lane) {
    return tag.write_epoch != machine.block->epoch || tag.writer == lane.number ||
           ordered_by_clock(lane, tag.writer, tag.write_clock) || ordered_in_cluster(lane, tag.write_cluster);
}

// Is what thread `linear` of this block did at `stamp` ordered before the current thread?
inline bool stamp_ordered(const Lane& lane, uint32_t linear, const Stamp& stamp) {
    if (stamp.epoch == 0) return true;
    if (stamp.clock == Stamp::unfinished) return false;
    return stamp.epoch != machine.block->epoch || linear == lane.linear ||
           ordered_by_clock(lane, lane_number(machine.block->rank, linear), stamp.clock) ||
           ordered_in_cluster(lane, stamp.cluster);
}

inline Stamp stamp_of(const Lane& lane) {
    return Stamp{machine.block->epoch, lane.warp->clock[lane.lane], lane.cluster_arrived};
}

inline void set_stamp(Stamps& stamps, const Lane& lane, const Stamp& stamp) {
    if (stamps.empty()) stamps.resize(machine.threads);
    stamps[lane.linear] = stamp;
}

inline bool has_stamp(const Stamps& stamps, const Lane& lane) {
    return !stamps.empty() && stamps[lane.linear].epoch;
}

inline void join_clocks(Clocks& into, const Clocks& from) {
    for (size_t thread = 0; thread < into.size(); ++thread)
        into[thread] = std::max(into[thread], from[thread]);
}

// The lane learns what somebody else knew. Many lanes learn the same, so the last result is kept.
inline void learn(Lane& lane, const KnownClocks& other) {
    if (!other || lane.known == other) return;
    if (!lane.known) {
        lane.known = other;
        return;
    }
    LastJoin& last = machine.last_join;
    if (last.first != lane.known || last.second != other) {
        auto result = std::make_shared<Clocks>(*lane.known);
        join_clocks(*result, *other);
        last = LastJoin{lane.known, other, std::move(result)};
    }
    lane.known = last.result;
}

// What the lane knows and has done goes into `clocks`; what it does from now on does not.
inline void release_clocks(Lane& lane, std::shared_ptr<Clocks>& clocks) {
    Warp& warp = *lane.warp;
    if (!clocks) clocks = std::make_shared<Clocks>(machine.threads);
    if (lane.known) join_clocks(*clocks, *lane.known);
    const uint32_t first = lane.linear - lane.lane, count = std::min(32u, machine.threads - first);
    for (uint32_t other = 0; other < count; ++other)
        (*clocks)[first + other] = std::max((*clocks)[first + other], warp.seen[lane.lane][other]);
    (*clocks)[lane.linear] = warp.clock[lane.lane];
    warp.clock[lane.lane] = ++warp.last_clock;
}

// What one of the warps has done up to here gets clocks of its own.
inline void advance_clocks(Warp& warp) {
    std::fill_n(warp.clock, 32, ++warp.last_clock);
}

}  // namespace sm70_emulator
