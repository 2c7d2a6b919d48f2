// Warp collectives: __syncwarp, shuffles, ballot. The lane that arrives last does the work for all lanes of
// the mask.
#pragma once
#include <algorithm>
#include <type_traits>

#include "emulator/ordering.h"
#include "emulator/scheduler.h"

namespace sm70_emulator {

using Complete = void (*)(Warp& warp, uint32_t mask);

template <class Action>
inline void for_each_lane(uint32_t mask, Action action) {
    for (; mask; mask &= mask - 1) action(__builtin_ctz(mask));
}

inline void check_mask(const Lane& lane, const Call& call) {
    const Warp& warp = *lane.warp;
    const char* name = operation_name(call.operation);
    if (!(call.mask & lane.bit))
        fail(
            format("%s with mask 0x%08x, which leaves out the calling lane %u", name, call.mask, lane.lane),
            call.site);
    if (call.mask & ~warp.existing)
        fail(
            format(
                "%s with mask 0x%08x names lanes %s, which the block does not have",
                name,
                call.mask,
                lane_list(call.mask & ~warp.existing).c_str()),
            call.site);
    if (call.mask & warp.exited)
        fail(
            format(
                "%s with mask 0x%08x names lanes %s, which have exited",
                name,
                call.mask,
                lane_list(call.mask & warp.exited).c_str()),
            call.site);
}

// Two lanes that name each other must make the same call.
inline void check_agreement(const Lane& lane, const Lane& other) {
    const Call &mine = lane.call, &theirs = other.call;
    const bool mutual = (mine.mask & other.bit) && (theirs.mask & lane.bit);
    if (!mutual || mine.matches(theirs)) return;
    fail(
        format(
            "%s with mask 0x%08x and %u-byte operands, but lane %u waits for this lane at %s with mask "
            "0x%08x and "
            "%u-byte operands%s",
            operation_name(mine.operation),
            mine.mask,
            mine.operand_bytes,
            other.lane,
            operation_name(theirs.operation),
            theirs.mask,
            theirs.operand_bytes,
            theirs.site.text().c_str()),
        mine.site);
}

// Lanes, the caller's included, that have arrived at the caller's collective.
inline uint32_t arrived_with(const Lane& lane) {
    Warp& warp = *lane.warp;
    if (warp.waiting == 0) {
        warp.uniform = true;
        return lane.bit;
    }
    if (warp.uniform && lane.call.matches(warp.lanes[__builtin_ctz(warp.waiting)].call))
        return warp.waiting | lane.bit;
    warp.uniform = false;
    uint32_t arrived = lane.bit;
    for_each_lane(warp.waiting, [&](int index) {
        const Lane& other = warp.lanes[index];
        check_agreement(lane, other);
        if (lane.call.matches(other.call)) arrived |= other.bit;
    });
    return arrived;
}

inline void collective(const Call& call, Complete complete) {
    Lane& lane = *machine.current;
    Warp& warp = *lane.warp;
    lane.call = call;
    check_mask(lane, call);
    if ((arrived_with(lane) & call.mask) == call.mask) {
        complete(warp, call.mask);
        warp.waiting &= ~call.mask;
        warp.ready |= call.mask;
        return;
    }
    warp.waiting |= lane.bit;
    suspend(lane);
}

// What one lane has learnt across warps, all of them know.
inline void share_known(Warp& warp, uint32_t mask) {
    Lane& first = warp.lanes[__builtin_ctz(mask)];
    for_each_lane(mask, [&](int lane) { learn(first, warp.lanes[lane].known); });
    for_each_lane(mask, [&](int lane) { warp.lanes[lane].known = first.known; });
}

// Only __syncwarp orders memory: shuffles, votes and mma imply no memory barrier (CUDA C++ programming
// guide).
inline void complete_sync_warp(Warp& warp, uint32_t mask) {
    uint32_t joined[32] = {};
    for_each_lane(mask, [&](int lane) {
        for (int other = 0; other < 32; ++other)
            joined[other] = std::max(joined[other], warp.seen[lane][other]);
    });
    for_each_lane(mask, [&](int lane) { joined[lane] = std::max(joined[lane], warp.clock[lane]); });
    ++warp.last_clock;
    for_each_lane(mask, [&](int lane) {
        std::copy_n(joined, 32, warp.seen[lane]);
        warp.clock[lane] = warp.last_clock;
    });
    share_known(warp, mask);
}

inline void sync_warp(uint32_t mask, Site site) {
    Call call;
    call.operation = Operation::sync_warp;
    call.mask = mask;
    call.site = site;
    collective(call, complete_sync_warp);
}

inline void complete_shuffle(Warp& warp, uint32_t mask) {
    for_each_lane(mask, [&](int index) {
        const Lane& lane = warp.lanes[index];
        const int source = lane.call.source_lane;
        if (!(mask >> source & 1))
            fail(
                format(
                    "%s with mask 0x%08x: lane %d reads lane %d, which the mask leaves out",
                    operation_name(lane.call.operation),
                    mask,
                    index,
                    source),
                lane.call.site);
        std::memcpy(lane.call.output, warp.lanes[source].call.input, lane.call.operand_bytes);
    });
}

inline void check_width(Operation operation, int width, Site site) {
    if (width < 1 || width > 32 || (width & (width - 1)))
        fail(
            format(
                "%s with width %d; a power of two from 1 to 32 is allowed", operation_name(operation), width),
            site);
}

template <class T>
T shuffle(Operation operation, uint32_t mask, const T& value, int source_lane, Site site) {
    static_assert(std::is_trivially_destructible<T>::value && sizeof(T) <= 8, "shuffles move up to 8 bytes");
    T result;
    Call call;
    call.operation = operation;
    call.mask = mask;
    call.operand_bytes = sizeof(T);
    call.source_lane = source_lane;
    call.input = &value;
    call.output = &result;
    call.site = site;
    collective(call, complete_shuffle);
    return result;
}

// First lane of the calling lane's segment of `width` lanes.
inline int segment_start(int width) {
    return static_cast<int>(machine.current->lane) & ~(width - 1);
}

template <class T>
T shuffle_index(uint32_t mask, const T& value, int source, int width, Site site) {
    check_width(Operation::shuffle, width, site);
    return shuffle(Operation::shuffle, mask, value, segment_start(width) | (source & (width - 1)), site);
}

// Lanes may read earlier segments but not later ones.
template <class T>
T shuffle_xor(uint32_t mask, const T& value, int lane_mask, int width, Site site) {
    check_width(Operation::shuffle_xor, width, site);
    const int lane = static_cast<int>(machine.current->lane), source = (lane ^ lane_mask) & 31;
    return shuffle(
        Operation::shuffle_xor, mask, value, source < segment_start(width) + width ? source : lane, site);
}

template <class T>
T shuffle_down(uint32_t mask, const T& value, unsigned delta, int width, Site site) {
    check_width(Operation::shuffle_down, width, site);
    const int lane = static_cast<int>(machine.current->lane), source = lane + static_cast<int>(delta & 31);
    return shuffle(
        Operation::shuffle_down, mask, value, source < segment_start(width) + width ? source : lane, site);
}

template <class T>
T shuffle_up(uint32_t mask, const T& value, unsigned delta, int width, Site site) {
    check_width(Operation::shuffle_up, width, site);
    const int lane = static_cast<int>(machine.current->lane), source = lane - static_cast<int>(delta & 31);
    return shuffle(Operation::shuffle_up, mask, value, source >= segment_start(width) ? source : lane, site);
}

inline void complete_ballot(Warp& warp, uint32_t mask) {
    uint32_t votes = 0;
    for_each_lane(mask, [&](int lane) {
        votes |= static_cast<uint32_t>(*static_cast<const int*>(warp.lanes[lane].call.input) != 0) << lane;
    });
    for_each_lane(mask, [&](int lane) { *static_cast<uint32_t*>(warp.lanes[lane].call.output) = votes; });
}

inline uint32_t ballot(uint32_t mask, int predicate, Site site) {
    uint32_t votes = 0;
    Call call;
    call.operation = Operation::ballot;
    call.mask = mask;
    call.input = &predicate;
    call.output = &votes;
    call.site = site;
    collective(call, complete_ballot);
    return votes;
}

}  // namespace sm70_emulator
