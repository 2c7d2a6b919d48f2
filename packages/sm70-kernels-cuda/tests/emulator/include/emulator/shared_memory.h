// Dynamic shared memory behind SharedSpan, which checks bounds, alignment, uninitialised reads and data
// races.
//
// Each 4-byte word has one AccessTag: the last writer and the readers since, with the block barrier epoch and
// the thread's clock of the access. Two accesses by different threads are ordered when a __syncthreads lies
// between them, or a chain of __syncwarp, warpgroup_sync and arrivals at TransactionBarriers that the next
// thread of the chain has waited for, or when the first came before the thread's arrival at a cluster barrier
// that the second thread has waited for; otherwise, if one of them writes, that is a race. Words that see
// narrower accesses switch to one tag per byte. Reads of what a copy brought are also kept in its Phase,
// where those of several warps are told apart.
#pragma once
#include <type_traits>

#include "emulator/ordering.h"
#include "emulator/phases.h"
#include "emulator/scheduler.h"

namespace sm70_emulator {

[[noreturn]] __attribute__((noinline, cold)) inline void fail_race(
    const SharedAccess& access, const char* kind, uint32_t other, const char* did) {
    fail_shared(
        access,
        std::string(kind) + " race: " + numbered_text(other) + " " + did +
            " it and no barrier orders the two");
}

// What was written in another way than by a store of this block has rules of its own.
__attribute__((noinline)) inline void check_origin(
    const AccessTag& tag, const SharedAccess& access, const char* race, const char* participle) {
    const Lane& lane = *machine.current;
    if (tag.origin == Origin::barrier) fail_shared(access, "a TransactionBarrier lies there");
    if (tag.origin == Origin::copy)
        check_waited(machine.block->phases[tag.transaction], lane, tag.writer, access, participle);
    if (tag.origin == Origin::peer && !ordered_in_cluster(lane, tag.write_cluster))
        fail_shared(
            access,
            std::string(race) + " race: " + numbered_text(tag.writer) +
                " stored it with store_peer and no cluster barrier orders the two");
}

// From "these lanes of one warp at one clock" to a list of all threads.
inline void list_readers(AccessTag& tag) {
    Clocks& clocks = machine.block->shared.listed[&tag];
    clocks.assign(machine.threads, 0);
    for (uint32_t rest = tag.read_mask; rest; rest &= rest - 1)
        clocks[(32u * tag.read_warp + static_cast<uint32_t>(__builtin_ctz(rest))) % 1024] = tag.read_clock;
    tag.readers = Readers::listed;
}

// The set of readers has become more than "these lanes of one warp at one clock".
__attribute__((noinline)) inline void widen_readers(AccessTag& tag, const Lane& lane) {
    if (tag.readers == Readers::several_warps) return;
    const bool same_warp = tag.read_warp == lane.number / 32;
    if (tag.origin == Origin::copy || (!same_warp && !machine.lists_readers)) {
        tag.readers = Readers::several_warps;
        if (!same_warp) tag.read_clock = lane.number;
        return;
    }
    const uint32_t clock = lane.warp->clock[lane.lane];
    if (tag.readers == Readers::one_warp) {
        bool all_before = true;
        for (uint32_t rest = tag.read_mask; rest && all_before; rest &= rest - 1)
            all_before = ordered_by_clock(
                lane, 32u * tag.read_warp + static_cast<uint32_t>(__builtin_ctz(rest)), tag.read_clock);
        if (all_before) {  // whoever is ordered after this read is ordered after those, too
            tag.read_warp = static_cast<uint8_t>(lane.number / 32);
            tag.read_clock = clock;
            tag.read_mask = lane.bit;
            return;
        }
        list_readers(tag);
    }
    machine.block->shared.listed[&tag][lane.linear] = clock;
}

inline void note_read_of_origin(const AccessTag& tag, const SharedAccess& access) {
    check_origin(tag, access, "read-after-write", "read");
    const Lane& lane = *machine.current;
    if (tag.origin == Origin::copy)
        set_stamp(machine.block->phases[tag.transaction].loads, lane, stamp_of(lane));
}

inline void note_read(AccessTag& tag, const SharedAccess& access) {
    const Lane& lane = *machine.current;
    if (tag.write_epoch == 0)
        fail_shared(access, "uninitialised read: nothing in this block has written it yet");
    if (tag.origin != Origin::block)
        note_read_of_origin(tag, access);
    else if (!write_ordered(tag, lane))
        fail_race(access, "read-after-write", tag.writer, "wrote");
    const uint32_t clock = lane.warp->clock[lane.lane], epoch = machine.block->epoch;
    // Whoever is ordered after this read is ordered after those of earlier epochs and cluster barriers, too.
    if (tag.read_epoch != epoch || lane.cluster_waited >= tag.read_cluster) {
        tag.read_epoch = epoch;
        tag.read_warp = static_cast<uint8_t>(lane.number / 32);
        tag.read_clock = clock;
        tag.read_mask = lane.bit;
        tag.readers = Readers::one_warp;
    } else if (
        tag.readers == Readers::one_warp && tag.read_warp == lane.number / 32 && tag.read_clock == clock) {
        tag.read_mask |= lane.bit;
    } else {
        widen_readers(tag, lane);
    }
    tag.read_cluster = std::max(tag.read_cluster, lane.cluster_arrived + 1);
}

[[noreturn]] __attribute__((noinline, cold)) inline void fail_several_readers(
    const AccessTag& tag, const SharedAccess& access) {
    const Lane& lane = *machine.current;
    const uint32_t first = 32u * tag.read_warp + static_cast<uint32_t>(__builtin_ctz(tag.read_mask));
    fail_race(access, "write-after-read", tag.read_warp == lane.number / 32 ? tag.read_clock : first, "read");
}

inline void check_reader(const SharedAccess& access, uint32_t reader, uint32_t clock) {
    const Lane& lane = *machine.current;
    if (reader != lane.number && !ordered_by_clock(lane, reader, clock))
        fail_race(access, "write-after-read", reader, "read");
}

// A write must come after all reads of the current epoch.
__attribute__((noinline)) inline void check_readers(const AccessTag& tag, const SharedAccess& access) {
    const Lane& lane = *machine.current;
    if (lane.cluster_waited >= tag.read_cluster) return;
    if (tag.readers == Readers::several_warps) {
        if (tag.origin != Origin::copy) fail_several_readers(tag, access);
        check_loads(machine.block->phases[tag.transaction], access);
    } else if (tag.readers == Readers::listed) {
        const Clocks& clocks = machine.block->shared.listed[&tag];
        for (uint32_t other = 0; other < clocks.size(); ++other)
            if (clocks[other]) check_reader(access, lane_number(machine.block->rank, other), clocks[other]);
    } else {
        for (uint32_t rest = tag.read_mask; rest; rest &= rest - 1)
            check_reader(
                access, 32u * tag.read_warp + static_cast<uint32_t>(__builtin_ctz(rest)), tag.read_clock);
    }
}

inline void set_writer(AccessTag& tag, const Lane& lane, Origin origin, uint32_t epoch) {
    tag.write_epoch = epoch;
    tag.write_clock = lane.warp->clock[lane.lane];
    tag.write_cluster = lane.cluster_arrived;
    tag.writer = static_cast<uint16_t>(lane.number);
    tag.origin = origin;
    tag.read_epoch = 0;
    tag.read_cluster = 0;
}

inline void note_write_over_origin(const AccessTag& tag, const SharedAccess& access) {
    check_origin(tag, access, "write-after-write", "written");
    if (tag.origin == Origin::copy) check_products(machine.block->phases[tag.transaction], access);
}

inline void note_write(AccessTag& tag, const SharedAccess& access) {
    const Lane& lane = *machine.current;
    if (tag.origin != Origin::block)
        note_write_over_origin(tag, access);
    else if (!write_ordered(tag, lane))
        fail_race(access, "write-after-write", tag.writer, "wrote");
    if (tag.read_epoch == machine.block->epoch) check_readers(tag, access);
    set_writer(tag, lane, Origin::block, machine.block->epoch);
}

// Switches a word to one tag per byte; each byte inherits what the word saw.
__attribute__((noinline)) inline void make_fine(SharedArena& shared, uint32_t word) {
    AccessTag& tag = shared.words[word];
    for (uint32_t byte = 0; byte < 4; ++byte) {
        AccessTag& part = shared.fine[4 * word + byte];
        part = tag;
        if (tag.readers == Readers::listed) shared.listed[&part] = Clocks(shared.listed[&tag]);
    }
    tag.fine = 1;
}

// Calls `note` with each tag of the access's bytes.
template <class Note>
inline void for_each_tag(SharedArena& shared, const SharedAccess& access, Note note) {
    const uint32_t end = access.offset + access.bytes;
    for (uint32_t byte = access.offset; byte < end;) {
        const uint32_t word = byte / 4;
        const bool whole = byte % 4 == 0 && end - byte >= 4;
        if (whole && !shared.words[word].fine) {
            note(shared.words[word]);
            byte += 4;
            continue;
        }
        if (!shared.words[word].fine) make_fine(shared, word);
        for (const uint32_t stop = std::min(end, 4 * word + 4); byte < stop; ++byte) note(shared.fine[byte]);
    }
}

// First byte of the block's dynamic shared memory. Only a base for SharedSpan: a plain access through it is
// unchecked.
inline unsigned char* dynamic_shared() {
    return machine.block->shared.base;
}

// An index that knows where it is used: operator[] has no room for a second parameter.
struct SharedIndex {
    template <class Integer, class = std::enable_if_t<std::is_integral<Integer>::value>>
    SharedIndex(Integer index, Site site = Site::here()) : value(static_cast<uint32_t>(index)), site(site) {}

    uint32_t value;
    Site site;
};

template <class T>
class SharedSpan;

// What SharedSpan::operator[] returns: reads and writes go through load and store.
template <class T>
class SharedReference {
  public:
    SharedReference(const SharedSpan<T>& span, SharedIndex index) : span_(span), index_(index) {}
    SharedReference(const SharedReference&) = default;

    operator T() const { return span_.load(index_.value, index_.site); }
    const SharedReference& operator=(T value) const {
        span_.store(index_.value, value, index_.site);
        return *this;
    }
    const SharedReference& operator=(const SharedReference& other) const {
        return *this = static_cast<T>(other);
    }
    const SharedReference& operator+=(T value) const {
        return *this = static_cast<T>(static_cast<T>(*this) + value);
    }
    const SharedReference& operator-=(T value) const {
        return *this = static_cast<T>(static_cast<T>(*this) - value);
    }
    const SharedReference& operator*=(T value) const {
        return *this = static_cast<T>(static_cast<T>(*this) * value);
    }

  private:
    const SharedSpan<T>& span_;
    SharedIndex index_;
};

// `count` elements of T in dynamic shared memory. The README of this folder has the GPU's version.
template <class T>
class SharedSpan {
    // Not is_trivially_copyable: __half2 has a copy constructor of its own.
    static_assert(std::is_trivially_destructible<T>::value, "shared memory holds plain data");

  public:
    SharedSpan(unsigned char* base, uint32_t count, Site site = Site::here()) : count_(count) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(base),
                        arena = reinterpret_cast<uintptr_t>(machine.block->shared.base);
        const uint64_t bytes = uint64_t{count} * sizeof(T);
        if (address < arena || address - arena + bytes > machine.block->shared.bytes)
            fail(
                format(
                    "shared span of %llu bytes at byte %lld of dynamic shared memory, of which the launch "
                    "gave %u bytes",
                    static_cast<unsigned long long>(bytes),
                    static_cast<long long>(address - arena),
                    machine.block->shared.bytes),
                site);
        offset_ = static_cast<uint32_t>(address - arena);
        if (offset_ % alignof(T))
            fail(
                format(
                    "shared span at byte %u of dynamic shared memory; its elements need a multiple of %zu",
                    offset_,
                    alignof(T)),
                site);
    }

    uint32_t size() const { return count_; }
    T load(uint32_t index, Site site = Site::here()) const { return load_vector<T>(index, site); }
    void store(uint32_t index, T value, Site site = Site::here()) const {
        store_vector<T>(index, value, site);
    }
    SharedReference<T> operator[](SharedIndex index) const { return SharedReference<T>(*this, index); }

    // sizeof(V) bytes from element `index` on, at an address that is a multiple of sizeof(V).
    template <class V>
    V load_vector(uint32_t index, Site site = Site::here()) const {
        const SharedAccess access{"load", locate<V>("load", index, site), sizeof(V), site};
        SharedArena& shared = machine.block->shared;
        for_each_tag(shared, access, [&](AccessTag& tag) { note_read(tag, access); });
        V value;
        std::memcpy(static_cast<void*>(&value), shared.base + access.offset, sizeof(V));
        return value;
    }

    template <class V>
    void store_vector(uint32_t index, V value, Site site = Site::here()) const {
        const SharedAccess access{"store", locate<V>("store", index, site), sizeof(V), site};
        SharedArena& shared = machine.block->shared;
        for_each_tag(shared, access, [&](AccessTag& tag) { note_write(tag, access); });
        std::memcpy(shared.base + access.offset, &value, sizeof(V));
    }

    SharedSpan subspan(uint32_t first, uint32_t count, Site site = Site::here()) const {
        if (first > count_ || count > count_ - first)
            fail(
                format("shared subspan of %u elements from element %u of a span of %u", count, first, count_),
                site);
        return SharedSpan(machine.block->shared.base + offset_ + first * sizeof(T), count, site);
    }

    // First byte, in the block's dynamic shared memory, of elements that must lie in the span.
    uint32_t range(const char* verb, uint32_t index, uint32_t elements, Site site) const {
        if (index >= count_ || elements > count_ - index)
            fail(
                format(
                    "shared %s out of bounds: elements %u to %llu of a span of %u",
                    verb,
                    index,
                    static_cast<unsigned long long>(index) + elements - 1,
                    count_),
                site);
        return offset_ + index * static_cast<uint32_t>(sizeof(T));
    }

  private:
    template <class V>
    uint32_t locate(const char* verb, uint32_t index, Site site) const {
        static_assert(
            sizeof(V) % sizeof(T) == 0 && sizeof(V) <= 16, "a vector of whole elements, at most 16 bytes");
        constexpr uint32_t elements = sizeof(V) / sizeof(T);
        const uint32_t offset = range(verb, index, elements, site);
        if (offset % alignof(V) || ((sizeof(V) & (sizeof(V) - 1)) == 0 && offset % sizeof(V)))
            fail(format("misaligned shared %s of %zu bytes at byte %u", verb, sizeof(V), offset), site);
        return offset;
    }

    uint32_t offset_ = 0;
    uint32_t count_;
};

}  // namespace sm70_emulator
