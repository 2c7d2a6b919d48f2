// Global memory: loads, stores and atomics reach only the buffers that the host registered for the launch.
#pragma once
#include <algorithm>
#include <type_traits>

#include "emulator/scheduler.h"

namespace sm70_emulator {

// Reads of writable memory that a thread may make without giving way. More is a loop that waits for another
// thread, which never runs: clusters follow one another and threads change only at barriers and warp
// collectives.
constexpr uint32_t poll_limit = 1u << 24;

struct GlobalAccess {
    const char* verb;
    uintptr_t address;
    uint32_t bytes;
    Site site;
};

inline uint32_t launch_thread(const Lane& lane) {
    return machine.block->number * machine.threads + lane.linear;
}

[[noreturn]] __attribute__((noinline, cold)) inline void fail_global(
    const GlobalAccess& access, const GlobalBuffer* buffer, const std::string& what) {
    const std::string place = buffer ? format(
                                           " at byte %llu of '%s'",
                                           static_cast<unsigned long long>(access.address - buffer->begin),
                                           buffer->name.c_str())
                                     : "";
    fail(format("global %s of %u bytes", access.verb, access.bytes) + place + ": " + what, access.site);
}

// An address in no buffer: name the nearest one.
[[noreturn]] __attribute__((noinline, cold)) inline void fail_outside(const GlobalAccess& access) {
    const GlobalBuffer* nearest = nullptr;
    uintptr_t least = UINTPTR_MAX;
    for (const GlobalBuffer& buffer : machine.buffers) {
        const uintptr_t distance = access.address < buffer.begin ? buffer.begin - access.address
                                   : access.address < buffer.end ? 0
                                                                 : access.address - buffer.end;
        if (distance >= least) continue;
        least = distance;
        nearest = &buffer;
    }
    if (!nearest) fail_global(access, nullptr, "out of bounds: the launch registered no buffers");
    fail_global(
        access,
        nullptr,
        format(
            "out of bounds: no registered buffer holds it; the nearest is '%s' of %llu bytes, and the access "
            "starts at byte %lld of it",
            nearest->name.c_str(),
            static_cast<unsigned long long>(nearest->end - nearest->begin),
            static_cast<long long>(access.address - nearest->begin)));
}

// The buffer that holds all bytes of an access at a multiple of `alignment`.
inline GlobalBuffer& find_buffer(const GlobalAccess& access, uint32_t alignment) {
    for (GlobalBuffer& buffer : machine.buffers)
        if (access.address >= buffer.begin && access.address < buffer.end &&
            access.bytes <= buffer.end - access.address) {
            if (access.address % alignment)
                fail_global(
                    access, &buffer, format("misaligned: the address must be a multiple of %u", alignment));
            return buffer;
        }
    fail_outside(access);
}

inline GlobalBuffer& find_buffer(const GlobalAccess& access) {
    return find_buffer(access, access.bytes);
}

// The kernel before may run until the thread has waited for it: what it writes is not there yet.
inline void check_previous_read(const GlobalAccess& access, const GlobalBuffer& buffer) {
    if (buffer.from_previous_kernel && !machine.current->previous_finished)
        fail_global(
            access,
            &buffer,
            "read before the previous kernel has finished: this thread has not called "
            "wait_for_previous_kernel");
}

// And what it reads may not be overwritten yet.
inline void check_previous_write(const GlobalAccess& access, const GlobalBuffer& buffer) {
    if (machine.follows_previous_kernel && !machine.current->previous_finished)
        fail_global(
            access,
            &buffer,
            "written before the previous kernel has finished: this thread has not called "
            "wait_for_previous_kernel");
}

inline std::string launch_thread_text(uint32_t number) {
    return block_text(number / machine.threads) + " " + thread_text(machine.lanes[number % machine.threads]);
}

inline void count_poll(const GlobalAccess& access, const GlobalBuffer& buffer) {
    if (++machine.current->polls > poll_limit)
        fail_global(
            access,
            &buffer,
            format(
                "%u accesses without a barrier between: a loop that waits for another thread does not end "
                "here",
                poll_limit));
}

// A byte written in this launch by another thread may be read after a __syncthreads of the same block, after
// a cluster barrier of the same cluster, or across blocks after store, __threadfence, atomic in the writer's
// block and an atomic in the reader's block.
inline void check_visible(const GlobalAccess& access, const GlobalBuffer& buffer, const WriteEntry& entry) {
    const uint32_t writer = entry.writer_plus_one - 1;
    const uint32_t block = writer / machine.threads, own = machine.block->number;
    // The cluster divides the grid's x, so its blocks have consecutive numbers.
    if (block / machine.cluster.size == own / machine.cluster.size &&
        machine.current->cluster_waited > entry.cluster)
        return;
    if (block == own) {
        if (entry.epoch == machine.block->epoch)
            fail_global(
                access,
                &buffer,
                "read-after-write race: " + launch_thread_text(writer) +
                    " wrote it and no __syncthreads orders the two");
    } else if (machine.fences[writer] == entry.fences) {
        fail_global(access, &buffer, launch_thread_text(writer) + " wrote it without a __threadfence after");
    } else if (!machine.block_atomics[block] || !machine.block_atomics[own]) {
        fail_global(
            access,
            &buffer,
            launch_thread_text(writer) + " wrote it and no atomic in both blocks orders the two");
    }
}

inline void note_load(const GlobalAccess& access, const GlobalBuffer& buffer) {
    count_poll(access, buffer);
    const uint32_t self_plus_one = launch_thread(*machine.current) + 1;
    const WriteEntry* entries = &buffer.writes[access.address - buffer.begin];
    for (uint32_t byte = 0; byte < access.bytes; ++byte)
        if (entries[byte].writer_plus_one && entries[byte].writer_plus_one != self_plus_one)
            check_visible(access, buffer, entries[byte]);
}

inline void note_store(const GlobalAccess& access, GlobalBuffer& buffer) {
    if (!buffer.writable) fail_global(access, &buffer, "the buffer is registered as read-only");
    check_previous_write(access, buffer);
    const uint32_t self = launch_thread(*machine.current);
    WriteEntry* entries = &buffer.writes[access.address - buffer.begin];
    for (uint32_t byte = 0; byte < access.bytes; ++byte) {
        if (entries[byte].writer_plus_one && entries[byte].writer_plus_one != self + 1)
            fail_global(
                access,
                &buffer,
                "write-write race: " + launch_thread_text(entries[byte].writer_plus_one - 1) +
                    " wrote it in the same launch");
        entries[byte] = WriteEntry{
            self + 1, machine.block->epoch, machine.fences[self], machine.current->cluster_arrived};
    }
}

template <class T>
constexpr void require_loadable() {
    static_assert(
        std::is_trivially_destructible<T>::value && sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0,
        "global memory is accessed in 1, 2, 4, 8 or 16 bytes");
}

template <class T>
T load_global(const void* pointer, Site site = Site::here()) {
    require_loadable<T>();
    const GlobalAccess access{"load", reinterpret_cast<uintptr_t>(pointer), sizeof(T), site};
    const GlobalBuffer& buffer = find_buffer(access);
    check_previous_read(access, buffer);
    if (buffer.writable) note_load(access, buffer);
    T value;
    std::memcpy(static_cast<void*>(&value), pointer, sizeof(T));
    return value;
}

template <class T>
void store_global(void* pointer, T value, Site site = Site::here()) {
    require_loadable<T>();
    const GlobalAccess access{"store", reinterpret_cast<uintptr_t>(pointer), sizeof(T), site};
    note_store(access, find_buffer(access));
    std::memcpy(pointer, &value, sizeof(T));
}

template <class T>
T atomic_add(T* pointer, T value, Site site) {
    const GlobalAccess access{"atomicAdd", reinterpret_cast<uintptr_t>(pointer), sizeof(T), site};
    const GlobalBuffer& buffer = find_buffer(access);
    if (!buffer.writable) fail_global(access, &buffer, "the buffer is registered as read-only");
    check_previous_write(access, buffer);
    count_poll(access, buffer);
    machine.block_atomics[machine.block->number] = 1;
    T before;
    std::memcpy(&before, pointer, sizeof(T));
    // Signed overflow wraps on the GPU.
    using Sum = std::conditional_t<std::is_same<T, int>::value, unsigned, T>;
    const T after = static_cast<T>(static_cast<Sum>(before) + static_cast<Sum>(value));
    std::memcpy(pointer, &after, sizeof(T));
    return before;
}

inline void thread_fence() {
    ++machine.fences[launch_thread(*machine.current)];
}

}  // namespace sm70_emulator
