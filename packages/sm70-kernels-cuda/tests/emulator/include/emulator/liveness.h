// What may not happen to waiting threads: that somebody exits whom they wait for, or that nobody can run.
#pragma once
#include "emulator/machine.h"

namespace sm70_emulator {

inline uint32_t threads_of_cluster() {
    return machine.cluster.size * machine.threads;
}

inline void check_exit_from_barrier() {
    const Block& block = *machine.block;
    if (block.barrier_arrived)
        fail(
            format(
                "divergent barrier: this thread exits, but %u of the block's %u threads wait at "
                "__syncthreads",
                block.barrier_arrived,
                machine.threads),
            block.barrier_site);
}

inline void check_exit_from_warp(const Lane& lane) {
    for (uint32_t rest = lane.warp->waiting; rest; rest &= rest - 1) {
        const Lane& other = lane.warp->lanes[__builtin_ctz(rest)];
        if (other.call.mask & lane.bit)
            fail(
                format(
                    "this lane exits, but lane %u waits for it at %s with mask 0x%08x",
                    other.lane,
                    operation_name(other.call.operation),
                    other.call.mask),
                other.call.site);
    }
}

inline void check_exit_from_cluster(const Lane& lane) {
    if (lane.cluster_arrived != lane.cluster_waited)
        fail("this thread exits after cluster_arrive without cluster_wait", lane.warp->cluster_arrive.site);
    if (machine.cluster.arrived)
        fail(format(
            "divergent cluster barrier: this thread exits, but %u of the cluster's %u threads have "
            "arrived",
            machine.cluster.arrived,
            threads_of_cluster()));
}

inline void check_exit_from_warpgroup(const Lane& lane) {
    const Products& products = lane.warp->products;
    if (!products.pending.empty())
        fail(
            format(
                "this thread exits after warpgroup_multiply without warpgroup_wait: %zu products are pending",
                products.pending.size()),
            products.pending.front().site);
    const std::vector<Warpgroup>& warpgroups = machine.block->warpgroups;
    if (lane.linear / 128 >= warpgroups.size()) return;
    const Warpgroup& warpgroup = warpgroups[lane.linear / 128];
    if (warpgroup.arrived)
        fail(
            format(
                "divergent barrier: this thread exits, but %u of its warpgroup's 128 threads wait at "
                "warpgroup_sync",
                warpgroup.arrived),
            warpgroup.site);
}

// The last thread exits: no warp may have made fewer calls of its warpgroup than another.
inline void check_equal_calls(const Block& block) {
    for (uint32_t warp = 0; warp < 4 * block.warpgroups.size(); ++warp) {
        const Warpgroup& warpgroup = block.warpgroups[warp / 4];
        const uint32_t calls = block.warps[warp].products.calls;
        if (calls != warpgroup.calls.size())
            fail(
                format(
                    "warp %u exited after %u warpgroup calls, but another warp of its warpgroup goes on with "
                    "%s",
                    warp,
                    calls,
                    operation_name(warpgroup.calls[calls].operation)),
                warpgroup.calls[calls].site);
    }
}

// The block's shared memory ends with its last thread: nothing may still be on its way there.
inline void check_exit_of_block(const Lane& lane) {
    const Block& block = *machine.block;
    const PeerStore& store = block.peer_store;
    if (store.cluster_plus_one > lane.cluster_waited)
        fail(
            "the block exits, but a store_peer of " + numbered_text(store.writer) +
                " may come later: no cluster barrier orders the two",
            store.site);
    for (const Phase& phase : block.phases)
        if (!phase.copies.empty())
            fail(
                format(
                    "the block exits, but nobody has waited for the copies of the TransactionBarrier at "
                    "byte %u in its phase %u",
                    phase.barrier_offset,
                    phase.number),
                phase.copy_site);
    check_equal_calls(block);
}

// A thread may end only when nobody waits for it.
inline void check_exit(const Lane& lane) {
    check_exit_from_barrier();
    check_exit_from_warp(lane);
    check_exit_from_warpgroup(lane);
    check_exit_from_cluster(lane);
    if (machine.block->live == 1) check_exit_of_block(lane);
}

inline std::string collective_wait_text(const Warp& warp) {
    const Lane& first = warp.lanes[__builtin_ctz(warp.waiting)];
    uint32_t same = 0;
    for (uint32_t rest = warp.waiting; rest; rest &= rest - 1)
        if (warp.lanes[__builtin_ctz(rest)].call.matches(first.call)) same |= rest & -rest;
    return format(
        " warp %u: lanes %s wait at %s with mask 0x%08x%s, and lanes %s of that mask never arrive;",
        first.linear / 32,
        lane_list(same).c_str(),
        operation_name(first.call.operation),
        first.call.mask,
        first.call.site.text().c_str(),
        lane_list(first.call.mask & ~same).c_str());
}

inline std::string phase_state_text(const Transaction& transaction, const Phase& phase) {
    if (phase.arrived < transaction.arrivals && phase.expected == 0)
        return transaction.arrivals == 1
                   ? "was never told what to expect"
                   : format("got %u of %u arrivals", phase.arrived, transaction.arrivals);
    return format(
        "expects %llu bytes and got copies of %llu%s",
        static_cast<unsigned long long>(phase.expected),
        static_cast<unsigned long long>(phase.copied),
        phase.arrived < transaction.arrivals
            ? format(", with %u of %u arrivals", phase.arrived, transaction.arrivals).c_str()
            : "");
}

inline std::string transaction_wait_text(const Block& block, const Warp& warp) {
    const Lane& first = warp.lanes[__builtin_ctz(warp.at_transaction)];
    const Transaction& transaction = block.transactions[first.transaction];
    return format(
        " %s waits%s for the TransactionBarrier at byte %u, which %s in its phase %u;",
        thread_text(first).c_str(),
        first.wait_site.text().c_str(),
        transaction.offset,
        phase_state_text(transaction, block.phases[transaction.current]).c_str(),
        first.awaited_phase);
}

inline std::string warpgroup_wait_text(const Block& block) {
    std::string text;
    for (uint32_t index = 0; index < block.warpgroups.size(); ++index)
        if (block.warpgroups[index].arrived)
            text += format(
                " %u of 128 threads of warpgroup %u wait at warpgroup_sync%s;",
                block.warpgroups[index].arrived,
                index,
                block.warpgroups[index].site.text().c_str());
    return text;
}

inline std::string cluster_wait_text(const Warp& warp) {
    const Lane& first = warp.lanes[__builtin_ctz(warp.at_cluster)];
    return format(
        " %s waits at cluster_wait%s, and %u of the cluster's %u threads have arrived;",
        thread_text(first).c_str(),
        first.wait_site.text().c_str(),
        machine.cluster.arrived,
        threads_of_cluster());
}

// Who waits where in one block: the block barrier, and the first of each other kind.
inline std::string block_wait_text(const Block& block) {
    std::string text;
    if (block.barrier_arrived)
        text += format(
            " %u of %u threads wait at __syncthreads%s;",
            block.barrier_arrived,
            machine.threads,
            block.barrier_site.text().c_str());
    text += warpgroup_wait_text(block);
    const auto add_first = [&](uint32_t Warp::* set, auto describe) {
        for (const Warp& warp : block.warps) {
            if (!(warp.*set)) continue;
            text += describe(warp);
            return;
        }
    };
    add_first(&Warp::waiting, collective_wait_text);
    add_first(&Warp::at_transaction, [&](const Warp& warp) { return transaction_wait_text(block, warp); });
    add_first(&Warp::at_cluster, cluster_wait_text);
    return text;
}

// Nobody can run and somebody waits: say who waits where.
[[noreturn]] inline void fail_deadlock() {
    std::string text = "deadlock:";
    const Block* first = nullptr;
    for (Block& block : machine.blocks) {
        const std::string waits = block_wait_text(block);
        if (waits.empty()) continue;
        if (first)
            text += " " + block_text(block.number) + ":";
        else
            first = machine.block = &block;
        text += waits;
    }
    text.pop_back();
    fail(text);
}

}  // namespace sm70_emulator
