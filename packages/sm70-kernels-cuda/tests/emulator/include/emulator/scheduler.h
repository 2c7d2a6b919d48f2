// Runs the clusters of a launch one after another; a cluster is one block unless the launch says more. Every
// thread of the cluster is a fiber, which gives way only where the CUDA thread would wait: at barriers and at
// warp collectives.
#pragma once
#include <algorithm>
#include <utility>

#include "emulator/liveness.h"
#include "emulator/ordering.h"

namespace sm70_emulator {

// sm_70 can give one block 96 KiB; more is certainly a mistake.
constexpr size_t largest_dynamic_shared_bytes = 98304;
// The same for a launch with a cluster size, which needs sm_90.
constexpr size_t largest_dynamic_shared_bytes_sm90 = 232448;
// More needs a permission that not every GPU of compute capability 9.0 can give.
constexpr uint32_t largest_cluster = 8;

inline void resume_another(Lane& from) {
    const uint32_t ready = from.warp->ready;
    if (!machine.stacks.intact(from.stack) && machine.error.empty())
        machine.error =
            "kernel '" + machine.kernel + "': " + thread_text(from) + ": the fiber's stack overflowed";
    if (ready && machine.error.empty()) {
        machine.current = &from.warp->lanes[__builtin_ctz(ready)];
        switch_context(from.context, machine.current->context);
    } else {
        machine.current = nullptr;
        switch_context(from.context, machine.scheduler);
    }
}

// The calling thread has entered one of the waiting sets: run others until somebody makes it ready again.
inline void suspend(Lane& lane) {
    lane.warp->ready &= ~lane.bit;
    lane.polls = 0;
    resume_another(lane);
}

inline void block_barrier(Site site) {
    Lane& lane = *machine.current;
    Block& block = *machine.block;
    const uint32_t exited = machine.threads - block.live;
    if (exited)
        fail(
            format(
                "divergent barrier: __syncthreads, but %u of the block's %u threads exited before it",
                exited,
                machine.threads),
            site);
    if (block.barrier_arrived == 0) {
        block.barrier_site = site;
        block.barrier_first = &lane;
    } else if (site != block.barrier_site) {
        fail(
            "divergent barrier: this thread is at __syncthreads" + site.text() + ", but " +
            thread_text(*block.barrier_first) + " waits at another one" + block.barrier_site.text());
    }
    if (++block.barrier_arrived == machine.threads) {
        block.barrier_arrived = 0;
        ++block.epoch;
        for (Warp& warp : block.warps) {
            advance_clocks(warp);
            warp.ready |= std::exchange(warp.at_barrier, 0);
        }
        return;
    }
    lane.warp->at_barrier |= lane.bit;
    suspend(lane);
}

inline void run_lane() {
    Lane& lane = *machine.current;
    try {
        machine.body();
        check_exit(lane);
    } catch (const std::exception& error) {
        machine.error = error.what();
    } catch (...) {
        machine.error =
            "kernel '" + machine.kernel + "': " + thread_text(lane) + ": an exception of unknown type";
    }
    lane.warp->ready &= ~lane.bit;
    lane.warp->exited |= lane.bit;
    --machine.block->live;
    resume_another(lane);
    std::abort();  // an exited thread is never made ready again
}

inline void prepare_warps(Block& block) {
    for (size_t index = 0; index < block.warps.size(); ++index) {
        Warp& warp = block.warps[index];
        warp = Warp{};
        const uint32_t count = std::min<uint32_t>(32, machine.threads - 32 * static_cast<uint32_t>(index));
        warp.lanes = &block.lanes[32 * index];
        warp.existing = warp.ready = count == 32 ? ~0u : (1u << count) - 1;
        std::fill_n(warp.clock, 32, 1u);
    }
}

inline void prepare_lane(Block& block, uint32_t linear) {
    const dim3 size = machine.block_size;
    Lane& lane = block.lanes[linear];
    lane.thread = uint3{linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
    lane.linear = linear;
    lane.number = lane_number(block.rank, linear);
    lane.stack = size_t{block.rank} * machine.threads + linear;
    lane.lane = linear % 32;
    lane.bit = 1u << lane.lane;
    lane.warp = &block.warps[linear / 32];
    lane.polls = 0;
    lane.cluster_arrived = lane.cluster_waited = 0;
    lane.previous_finished = false;
    lane.known.reset();
    const StackPool& stacks = machine.stacks;
    stacks.mark(lane.stack);
    prepare_context(lane.context, stacks.low(lane.stack), stacks.high(lane.stack), run_lane);
}

inline void prepare_block(Block& block) {
    block.live = machine.threads;
    block.epoch = 1;
    block.barrier_arrived = 0;
    block.transactions.clear();
    block.phases.clear();
    block.warpgroups.assign(machine.threads / 128, Warpgroup{});
    block.peer_store = PeerStore{};
    prepare_warps(block);
    for (uint32_t linear = 0; linear < machine.threads; ++linear) prepare_lane(block, linear);
    SharedArena& shared = block.shared;
    std::fill_n(shared.base, shared.bytes, static_cast<unsigned char>(0xCD));
    std::memset(static_cast<void*>(shared.words.data()), 0, shared.words.size() * sizeof(AccessTag));
    shared.listed.clear();
}

// Lets every warp of the block run until it waits; says whether one could.
inline bool run_warps(Block& block) {
    bool progress = false;
    machine.block = &block;
    for (Warp& warp : block.warps) {
        if (!warp.ready) continue;
        progress = true;
        machine.current = &warp.lanes[__builtin_ctz(warp.ready)];
        switch_context(machine.scheduler, machine.current->context);
        if (!machine.error.empty()) throw KernelError(machine.error);
    }
    return progress;
}

// Runs the blocks from `first` on along x, as many as the cluster has.
inline void run_cluster(uint3 first, uint32_t first_number) {
    machine.cluster.arrived = machine.cluster.completed = 0;
    for (Block& block : machine.blocks) {
        block.index = uint3{first.x + block.rank, first.y, first.z};
        block.number = first_number + block.rank;
        prepare_block(block);
    }
    const auto live = [](const Block& block) { return block.live != 0; };
    while (std::any_of(machine.blocks.begin(), machine.blocks.end(), live)) {
        bool progress = false;
        for (Block& block : machine.blocks) progress |= run_warps(block);
        if (!progress) fail_deadlock();
    }
}

inline void prepare_buffers(BufferList buffers) {
    machine.buffers.clear();
    machine.follows_previous_kernel = false;
    for (int index = 0; index < buffers.count; ++index) {
        const Buffer& given = buffers.data[index];
        GlobalBuffer buffer;
        buffer.begin = reinterpret_cast<uintptr_t>(given.address);
        buffer.end = buffer.begin + given.bytes;
        buffer.writable = given.writable != 0;
        buffer.from_previous_kernel = given.from_previous_kernel != 0;
        machine.follows_previous_kernel |= buffer.from_previous_kernel;
        buffer.name = given.name;
        if (buffer.writable) {
            // calloc, not a vector: untouched pages of a large log stay uncommitted.
            void* log = std::calloc(given.bytes ? given.bytes : 1, sizeof(WriteEntry));
            if (!log) throw std::bad_alloc();
            buffer.writes.reset(static_cast<WriteEntry*>(log));
        }
        machine.buffers.push_back(std::move(buffer));
    }
}

inline void check_configuration(dim3 grid, dim3 block) {
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (threads == 0 || threads > 1024 || block.z > 64)
        throw KernelError(format(
            "kernel '%s': a block of %ux%ux%u threads; 1 to 1024 are allowed, z at most 64",
            machine.kernel.c_str(),
            block.x,
            block.y,
            block.z));
    if (blocks == 0 || blocks * threads >= UINT32_MAX || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535)
        throw KernelError(format(
            "kernel '%s': a grid of %ux%ux%u blocks; y and z can be 1 to 65535, and the emulator "
            "numbers threads of a launch with 32 bits",
            machine.kernel.c_str(),
            grid.x,
            grid.y,
            grid.z));
}

inline void check_shared_bytes(const char* device, size_t largest, size_t dynamic_shared_bytes) {
    if (dynamic_shared_bytes > largest)
        throw KernelError(format(
            "kernel '%s': %zu bytes of dynamic shared memory; %s has at most %zu",
            machine.kernel.c_str(),
            dynamic_shared_bytes,
            device,
            largest));
}

inline void check_cluster(dim3 grid, uint32_t cluster_size) {
    if (cluster_size == 0 || cluster_size > largest_cluster)
        throw KernelError(format(
            "kernel '%s': a cluster of %u blocks; 1 to %u are allowed",
            machine.kernel.c_str(),
            cluster_size,
            largest_cluster));
    if (grid.x % cluster_size)
        throw KernelError(format(
            "kernel '%s': a grid of %u blocks along x, which is no multiple of the cluster's %u blocks",
            machine.kernel.c_str(),
            grid.x,
            cluster_size));
}

inline void prepare_shared(SharedArena& shared, size_t dynamic_shared_bytes) {
    shared.bytes = static_cast<uint32_t>(dynamic_shared_bytes);
    shared.storage.resize(dynamic_shared_bytes + 256);
    shared.base = shared.storage.data() + (-reinterpret_cast<uintptr_t>(shared.storage.data()) & 255);
    shared.words.resize((dynamic_shared_bytes + 3) / 4);
    shared.fine.resize(4 * shared.words.size());
}

inline void prepare_launch(dim3 grid, dim3 block, size_t dynamic_shared_bytes, BufferList buffers) {
    machine.error.clear();
    machine.current = nullptr;
    machine.last_join = LastJoin{};
    machine.grid_size = grid;
    machine.block_size = block;
    machine.threads = block.x * block.y * block.z;
    const uint32_t cluster_size = machine.cluster.size;
    machine.stacks.reserve(size_t{cluster_size} * machine.threads);
    machine.lanes = std::vector<Lane>(size_t{cluster_size} * machine.threads);
    machine.blocks.resize(cluster_size);
    for (uint32_t rank = 0; rank < cluster_size; ++rank) {
        Block& each = machine.blocks[rank];
        each.rank = rank;
        each.lanes = &machine.lanes[size_t{rank} * machine.threads];
        each.warps.resize((machine.threads + 31) / 32);
        prepare_shared(each.shared, dynamic_shared_bytes);
    }
    prepare_buffers(buffers);
    const size_t blocks = size_t{grid.x} * grid.y * grid.z;
    machine.fences.assign(blocks * machine.threads, 0);
    machine.block_atomics.assign(blocks, 0);
}

inline void run_grid(std::function<void()> body) {
    const dim3 grid = machine.grid_size;
    const uint32_t cluster_size = machine.cluster.size;
    machine.body = std::move(body);
    uint32_t number = 0;
    for (uint32_t z = 0; z < grid.z; ++z)
        for (uint32_t y = 0; y < grid.y; ++y)
            for (uint32_t x = 0; x < grid.x; x += cluster_size, number += cluster_size)
                run_cluster(uint3{x, y, z}, number);
}

// Runs `body` once per thread of the grid. Throws KernelError at the first thing a check finds; what the
// other threads hold on their stacks is then dropped, not destroyed (device code owns nothing).
template <class Body>
void launch(
    const char* name, dim3 grid, dim3 block, size_t dynamic_shared_bytes, BufferList buffers, Body body) {
    const std::lock_guard<std::mutex> lock(machine.launching);
    machine.kernel = name;
    check_configuration(grid, block);
    check_shared_bytes("sm_70", largest_dynamic_shared_bytes, dynamic_shared_bytes);
    machine.cluster.size = 1;
    machine.lists_readers = false;
    prepare_launch(grid, block, dynamic_shared_bytes, buffers);
    run_grid(body);
}

// The same for sm_90: `cluster_size` blocks along x run together.
template <class Body>
void launch(
    const char* name,
    dim3 grid,
    dim3 block,
    size_t dynamic_shared_bytes,
    BufferList buffers,
    Body body,
    uint32_t cluster_size) {
    const std::lock_guard<std::mutex> lock(machine.launching);
    machine.kernel = name;
    check_configuration(grid, block);
    check_shared_bytes("sm_90", largest_dynamic_shared_bytes_sm90, dynamic_shared_bytes);
    check_cluster(grid, cluster_size);
    machine.cluster.size = cluster_size;
    machine.lists_readers = true;
    prepare_launch(grid, block, dynamic_shared_bytes, buffers);
    run_grid(body);
}

// Runs `action` for a C caller: null, or the error's text, valid until the next call.
template <class Action>
const char* error_text_of(Action action) {
    static std::string text;
    try {
        action();
        return nullptr;
    } catch (const std::exception& error) {
        text = error.what();
    } catch (...) {
        text = "an exception of unknown type";
    }
    return text.c_str();
}

}  // namespace sm70_emulator
