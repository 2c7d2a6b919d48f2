// Runs the blocks of a launch one after another, the threads of a block as fibers. A fiber gives way only
// where the CUDA thread would wait: at __syncthreads and at warp collectives.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "emulator/machine.h"

namespace sm70_emulator {

// sm_70 can give one block 96 KiB; more is certainly a mistake.
constexpr size_t largest_dynamic_shared_bytes = 98304;

inline void resume_another(Lane& from) {
    const uint32_t ready = from.warp->ready;
    if (!machine.stacks.intact(from.linear) && machine.error.empty())
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
    const uint32_t exited = machine.threads - machine.live;
    if (exited)
        fail(
            format(
                "divergent barrier: __syncthreads, but %u of the block's %u threads exited before it",
                exited,
                machine.threads),
            site);
    if (machine.barrier_arrived == 0) {
        machine.barrier_site = site;
        machine.barrier_first = &lane;
    } else if (site != machine.barrier_site) {
        fail(
            "divergent barrier: this thread is at __syncthreads" + site.text() + ", but " +
            thread_text(*machine.barrier_first) + " waits at another one" + machine.barrier_site.text());
    }
    if (++machine.barrier_arrived == machine.threads) {
        machine.barrier_arrived = 0;
        ++machine.epoch;
        for (Warp& warp : machine.warps) warp.ready |= std::exchange(warp.at_barrier, 0);
        return;
    }
    lane.warp->at_barrier |= lane.bit;
    suspend(lane);
}

// A thread may end only when nobody waits for it.
inline void check_exit(Lane& lane) {
    if (machine.barrier_arrived)
        fail(
            format(
                "divergent barrier: this thread exits, but %u of the block's %u threads wait at "
                "__syncthreads",
                machine.barrier_arrived,
                machine.threads),
            machine.barrier_site);
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
    --machine.live;
    resume_another(lane);
    std::abort();  // an exited thread is never made ready again
}

// Nobody can run and somebody waits: say who waits where.
[[noreturn]] inline void fail_deadlock() {
    std::string text = "deadlock:";
    if (machine.barrier_arrived)
        text += format(
            " %u of %u threads wait at __syncthreads%s;",
            machine.barrier_arrived,
            machine.threads,
            machine.barrier_site.text().c_str());
    for (const Warp& warp : machine.warps) {
        if (!warp.waiting) continue;
        const Lane& first = warp.lanes[__builtin_ctz(warp.waiting)];
        uint32_t same = 0;
        for (uint32_t rest = warp.waiting; rest; rest &= rest - 1)
            if (warp.lanes[__builtin_ctz(rest)].call.matches(first.call)) same |= rest & -rest;
        text += format(
            " warp %u: lanes %s wait at %s with mask 0x%08x%s, and lanes %s of that mask never arrive;",
            first.linear / 32,
            lane_list(same).c_str(),
            operation_name(first.call.operation),
            first.call.mask,
            first.call.site.text().c_str(),
            lane_list(first.call.mask & ~same).c_str());
        break;
    }
    text.pop_back();
    fail(text);
}

inline void prepare_block() {
    machine.live = machine.threads;
    machine.epoch = 1;
    machine.barrier_arrived = 0;
    const dim3 size = machine.block_size;
    for (size_t index = 0; index < machine.warps.size(); ++index) {
        Warp& warp = machine.warps[index];
        warp = Warp{};
        const uint32_t count = std::min<uint32_t>(32, machine.threads - 32 * static_cast<uint32_t>(index));
        warp.lanes = &machine.lanes[32 * index];
        warp.existing = warp.ready = count == 32 ? ~0u : (1u << count) - 1;
        std::fill_n(warp.clock, 32, 1u);
    }
    for (uint32_t linear = 0; linear < machine.threads; ++linear) {
        Lane& lane = machine.lanes[linear];
        lane.thread = uint3{linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
        lane.linear = linear;
        lane.lane = linear % 32;
        lane.bit = 1u << lane.lane;
        lane.warp = &machine.warps[linear / 32];
        lane.polls = 0;
        machine.stacks.mark(linear);
        prepare_context(lane.context, machine.stacks.low(linear), machine.stacks.high(linear), run_lane);
    }
    SharedArena& shared = machine.shared;
    std::fill_n(shared.base, shared.bytes, static_cast<unsigned char>(0xCD));
    std::memset(static_cast<void*>(shared.words.data()), 0, shared.words.size() * sizeof(AccessTag));
    shared.listed.clear();
}

inline void run_block() {
    prepare_block();
    while (machine.live) {
        bool progress = false;
        for (Warp& warp : machine.warps) {
            if (!warp.ready) continue;
            progress = true;
            machine.current = &warp.lanes[__builtin_ctz(warp.ready)];
            switch_context(machine.scheduler, machine.current->context);
            if (!machine.error.empty()) throw KernelError(machine.error);
        }
        if (!progress) fail_deadlock();
    }
}

inline void prepare_buffers(BufferList buffers) {
    machine.buffers.clear();
    for (int index = 0; index < buffers.count; ++index) {
        const Buffer& given = buffers.data[index];
        GlobalBuffer buffer;
        buffer.begin = reinterpret_cast<uintptr_t>(given.address);
        buffer.end = buffer.begin + given.bytes;
        buffer.writable = given.writable != 0;
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

inline void check_configuration(dim3 grid, dim3 block, size_t dynamic_shared_bytes) {
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
    if (dynamic_shared_bytes > largest_dynamic_shared_bytes)
        throw KernelError(format(
            "kernel '%s': %zu bytes of dynamic shared memory; sm_70 has at most %zu",
            machine.kernel.c_str(),
            dynamic_shared_bytes,
            largest_dynamic_shared_bytes));
}

inline void prepare_launch(dim3 grid, dim3 block, size_t dynamic_shared_bytes, BufferList buffers) {
    check_configuration(grid, block, dynamic_shared_bytes);
    machine.error.clear();
    machine.current = nullptr;
    machine.grid_size = grid;
    machine.block_size = block;
    machine.threads = block.x * block.y * block.z;
    machine.stacks.reserve(machine.threads);
    machine.lanes = std::vector<Lane>(machine.threads);
    machine.warps.resize((machine.threads + 31) / 32);
    SharedArena& shared = machine.shared;
    shared.bytes = static_cast<uint32_t>(dynamic_shared_bytes);
    shared.storage.resize(dynamic_shared_bytes + 256);
    shared.base = shared.storage.data() + (-reinterpret_cast<uintptr_t>(shared.storage.data()) & 255);
    shared.words.resize((dynamic_shared_bytes + 3) / 4);
    shared.fine.resize(4 * shared.words.size());
    prepare_buffers(buffers);
    const size_t blocks = size_t{grid.x} * grid.y * grid.z;
    machine.fences.assign(blocks * machine.threads, 0);
    machine.block_atomics.assign(blocks, 0);
}

// Runs `body` once per thread of the grid. Throws KernelError at the first thing a check finds; what the
// other threads hold on their stacks is then dropped, not destroyed (device code owns nothing).
template <class Body>
void launch(
    const char* name, dim3 grid, dim3 block, size_t dynamic_shared_bytes, BufferList buffers, Body body) {
    const std::lock_guard<std::mutex> lock(machine.launching);
    machine.kernel = name;
    prepare_launch(grid, block, dynamic_shared_bytes, buffers);
    machine.body = body;
    machine.block_number = 0;
    for (uint32_t z = 0; z < grid.z; ++z)
        for (uint32_t y = 0; y < grid.y; ++y)
            for (uint32_t x = 0; x < grid.x; ++x, ++machine.block_number) {
                machine.block_index = uint3{x, y, z};
                run_block();
            }
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
