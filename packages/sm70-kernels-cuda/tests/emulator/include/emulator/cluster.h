// Thread-block clusters, sm_90: the barrier of all threads of the cluster's blocks, and stores to another
// block's shared memory.
#pragma once
#include <utility>

#include "emulator/scheduler.h"
#include "emulator/shared_memory.h"

namespace sm70_emulator {

inline unsigned cluster_rank() {
    return machine.block->rank;
}

// Blocks of the cluster; 1 in a launch without clusters.
inline unsigned cluster_size() {
    return machine.cluster.size;
}

// PTX: the calls are `.aligned`, so all lanes of a warp must make the same one.
inline void check_aligned(AlignedCall& call, const Lane& lane, const char* name, Site site) {
    if (call.lanes == 0)
        call.site = site;
    else if (site != call.site)
        fail(
            std::string("divergent ") + name +
                ": all lanes of a warp must make the same call, and another lane of this warp made the one" +
                call.site.text(),
            site);
    call.lanes |= lane.bit;
    if (call.lanes == lane.warp->existing) call.lanes = 0;
}

inline void check_nobody_exited(Site site) {
    for (const Block& block : machine.blocks)
        if (block.live != machine.threads)
            fail(
                format(
                    "divergent cluster barrier: cluster_arrive, but %u of the %u threads of %s exited before "
                    "it",
                    machine.threads - block.live,
                    machine.threads,
                    block_text(block.number).c_str()),
                site);
}

inline void cluster_arrive(Site site = Site::here()) {
    Lane& lane = *machine.current;
    Cluster& cluster = machine.cluster;
    if (lane.cluster_arrived != lane.cluster_waited)
        fail("a second cluster_arrive before cluster_wait", site);
    check_aligned(lane.warp->cluster_arrive, lane, "cluster_arrive", site);
    check_nobody_exited(site);
    ++lane.cluster_arrived;
    if (++cluster.arrived < threads_of_cluster()) return;
    cluster.arrived = 0;
    ++cluster.completed;
    for (Block& block : machine.blocks)
        for (Warp& warp : block.warps) warp.ready |= std::exchange(warp.at_cluster, 0);
}

inline void cluster_wait(Site site = Site::here()) {
    Lane& lane = *machine.current;
    if (lane.cluster_arrived == lane.cluster_waited) fail("cluster_wait without cluster_arrive", site);
    check_aligned(lane.warp->cluster_wait, lane, "cluster_wait", site);
    if (machine.cluster.completed < lane.cluster_arrived) {
        lane.wait_site = site;
        lane.warp->at_cluster |= lane.bit;
        suspend(lane);
    }
    ++lane.cluster_waited;
}

// Only cluster barriers order a peer's store and what the block itself does with the element.
inline void note_peer_write(AccessTag& tag, const SharedAccess& access, const Block& peer) {
    const Lane& lane = *machine.current;
    if (tag.origin == Origin::barrier) fail_shared(access, "a TransactionBarrier lies there");
    if (tag.origin == Origin::copy) {
        const Phase& phase = peer.phases[tag.transaction];
        if (!phase.landed)
            fail_shared(
                access, "written before the copy was waited for: a copy to the peer is on its way there");
        check_peer_products(phase, access, peer.rank);
    }
    if (tag.write_epoch && tag.writer != lane.number && !ordered_in_cluster(lane, tag.write_cluster))
        fail_shared(
            access,
            "write-after-write race: " + numbered_text(tag.writer) +
                " wrote it and no cluster barrier orders the two");
    if (lane.cluster_waited < tag.read_cluster)
        fail_shared(
            access,
            "write-after-read race: " +
                numbered_text(32u * tag.read_warp + static_cast<uint32_t>(__builtin_ctz(tag.read_mask))) +
                " read it and no cluster barrier orders the two");
    set_writer(tag, lane, Origin::peer, peer.epoch);
}

inline Block& find_peer(const char* verb, unsigned rank, Site site) {
    const Lane& lane = *machine.current;
    if (rank >= machine.cluster.size)
        fail(format("%s to rank %u of a cluster of %u blocks", verb, rank, machine.cluster.size), site);
    Block& peer = machine.blocks[rank];
    if (lane.cluster_waited == 0)
        fail(
            std::string(verb) + " before the first cluster barrier: " + block_text(peer.number) +
                " may not have started",
            site);
    if (peer.live == 0)
        fail(std::string(verb) + " to " + block_text(peer.number) + ", which has exited", site);
    return peer;
}

inline void store_peer(
    const SharedSpan<float>& span, unsigned index, float value, unsigned rank, Site site = Site::here()) {
    if (rank == machine.block->rank) return span.store(index, value, site);
    const SharedAccess access{"store_peer", span.range("store_peer", index, 1, site), sizeof value, site};
    const Lane& lane = *machine.current;
    Block& peer = find_peer("store_peer", rank, site);
    for_each_tag(peer.shared, access, [&](AccessTag& tag) { note_peer_write(tag, access, peer); });
    if (lane.cluster_arrived + 1 >= peer.peer_store.cluster_plus_one)
        peer.peer_store = PeerStore{lane.cluster_arrived + 1, lane.number, site};
    std::memcpy(peer.shared.base + access.offset, &value, sizeof value);
}

}  // namespace sm70_emulator
