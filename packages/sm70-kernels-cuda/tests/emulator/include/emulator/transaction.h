// Copies from global to shared memory, and values sent to a peer's, that signal a barrier when their bytes
// have arrived, sm_90. Each barrier goes from phase to phase: one ends with the last of its arrivals and
// announced bytes. The bytes move when the first wait for their phase completes, as late as they may; until
// then the destination is poisoned. A wait passes on what the threads that arrived knew.
#pragma once
#include <cstring>
#include <type_traits>

#include "emulator/cluster.h"
#include "emulator/global_memory.h"
#include "emulator/shared_memory.h"

namespace sm70_emulator {

// PTX ISA, mbarrier: the count of pending bytes has 20 bits.
constexpr uint32_t largest_transaction_bytes = (1u << 20) - 1;

class TransactionBarrier {
  public:
    TransactionBarrier(const SharedSpan<unsigned long long>& span, unsigned index, Site site = Site::here())
        : offset_(span.range("TransactionBarrier", index, 1, site)) {}

    // For this many arrivals in each phase.
    void initialize(unsigned arrivals = 1, Site site = Site::here()) const {
        if (arrivals == 0 || arrivals > largest_transaction_bytes)
            fail_here(
                "initialize",
                format("%u arrivals; 1 to %u are allowed", arrivals, largest_transaction_bytes),
                site);
        Block& block = *machine.block;
        write_barrier({"TransactionBarrier::initialize", offset_, 8, site}, block);
        Transaction transaction;
        transaction.offset = offset_;
        transaction.arrivals = arrivals;
        begin_phase(block, transaction, 0);
        block.transactions.push_back(transaction);
    }

    // Of all barriers that this thread has initialised. Other threads come after this, not after initialize.
    static void make_visible() {
        Block& block = *machine.block;
        const Lane& lane = *machine.current;
        for (Transaction& transaction : block.transactions) {
            if (first_tag(block, transaction.offset).writer != lane.number || transaction.visible) continue;
            transaction.visible = true;
            const SharedAccess access{"TransactionBarrier::make_visible", transaction.offset, 8, Site{}};
            for_each_tag(block.shared, access, [&](AccessTag& tag) {
                set_writer(tag, lane, Origin::barrier, block.epoch);
            });
        }
    }

    // One of the phase's arrivals. Whoever waits for the phase comes after what this thread has done or
    // learnt.
    void arrive(Site site = Site::here()) const {
        Block& block = *machine.block;
        count_arrival("arrive", block, use(block, {"TransactionBarrier::arrive", offset_, 8, site}), 0, site);
    }

    // The same, with bytes that the phase waits for as well.
    void expect(unsigned bytes, Site site = Site::here()) const {
        Block& block = *machine.block;
        count_arrival(
            "expect", block, use(block, {"TransactionBarrier::expect", offset_, 8, site}), bytes, site);
    }

    void copy(
        const SharedSpan<uint4>& to,
        unsigned index,
        const void* from,
        unsigned bytes,
        Site site = Site::here()) const {
        if (bytes == 0 || bytes % 16)
            fail_here("copy", format("%u bytes; a positive multiple of 16 is allowed", bytes), site);
        Block& block = *machine.block;
        const uint32_t phase = use(block, {"TransactionBarrier::copy", offset_, 8, site}).current;
        check_source(from, bytes, site);
        const uint32_t offset = to.range("bulk copy", index, bytes / 16, site);
        write_copy({"bulk copy", offset, bytes, site}, block, phase);
        add_copy("copy", block, {offset, from, bytes, {}}, site);
    }

    // PTX st.async: into the span's element of another block, counted on the barrier in this one's place
    // there.
    template <class T>
    void send(
        const SharedSpan<T>& to,
        unsigned index,
        const std::common_type_t<T>& value,  // not deduced
        unsigned rank,
        Site site = Site::here()) const {
        static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "st.async stores 4, 8 or 16 bytes");
        const char* verb = "TransactionBarrier::send";
        const SharedAccess access{verb, to.range(verb, index, 1, site), sizeof value, site};
        Block& own = *machine.block;
        Block& block = rank == own.rank ? own : find_peer(verb, rank, site);
        const uint32_t phase = use(block, {verb, offset_, 8, site}).current;
        block.phases[phase].has_sends = true;
        if (&block == &own)
            write_copy(access, block, phase);
        else
            for_each_tag(block.shared, access, [&](AccessTag& tag) {
                note_peer_write(tag, access, block);
                tag.origin = Origin::copy;
                tag.transaction = phase;
            });
        PendingCopy copy{access.offset, nullptr, sizeof value, {}};
        std::memcpy(copy.value, &value, sizeof value);
        add_copy("send", block, copy, site);
    }

    // Until the phase with this parity is over: the current one, or at once where that has the other parity.
    // The phase before the first has parity 1.
    void wait(unsigned parity = 0, Site site = Site::here()) const {
        if (parity > 1) fail_here("wait", format("parity %u; 0 and 1 are allowed", parity), site);
        Block& block = *machine.block;
        const uint32_t index = index_of(block, use(block, {"TransactionBarrier::wait", offset_, 8, site}));
        const uint32_t awaited = block.phases[block.transactions[index].current].number;
        if (awaited % 2 == parity) suspend_until_over(block, index, awaited, site);
        const uint32_t previous = block.transactions[index].previous;
        if (previous == Transaction::none) return;
        Lane& lane = *machine.current;
        Phase& phase = block.phases[previous];
        land(phase);
        if (!has_stamp(phase.waited, lane)) set_stamp(phase.waited, lane, stamp_of(lane));
        learn(lane, phase.arrival);
    }

  private:
    static AccessTag& first_tag(Block& block, uint32_t offset) {
        SharedArena& shared = block.shared;
        AccessTag& word = shared.words[offset / 4];
        return word.fine ? shared.fine[offset] : word;
    }

    static uint32_t index_of(const Block& block, const Transaction& transaction) {
        return static_cast<uint32_t>(&transaction - block.transactions.data());
    }

    static bool complete(const Transaction& transaction, const Phase& phase) {
        return phase.arrived == transaction.arrivals && phase.copied == phase.expected;
    }

    static void begin_phase(Block& block, Transaction& transaction, uint32_t number) {
        transaction.current = static_cast<uint32_t>(block.phases.size());
        block.phases.emplace_back();
        block.phases.back().number = number;
        block.phases.back().barrier_offset = transaction.offset;
    }

    void suspend_until_over(Block& block, uint32_t index, uint32_t awaited, Site site) const {
        Lane& lane = *machine.current;
        const auto current = [&] { return block.phases[block.transactions[index].current].number; };
        while (current() == awaited) {
            lane.transaction = index;
            lane.awaited_phase = awaited;
            lane.wait_site = site;
            lane.warp->at_transaction |= lane.bit;
            suspend(lane);
        }
        if (current() != awaited + 1)
            fail_here(
                "wait",
                format(
                    "phase %u was over before this thread, which waits for phase %u, had seen the end of "
                    "that: "
                    "on a GPU it may wait for ever",
                    current() - 1,
                    awaited),
                site);
    }

    // The rules of a store, then another kind of writer.
    static void write_barrier(const SharedAccess& access, Block& block) {
        for_each_tag(block.shared, access, [&](AccessTag& tag) {
            note_write(tag, access);
            tag.origin = Origin::barrier;
            tag.transaction = static_cast<uint32_t>(block.transactions.size());
        });
    }

    // The same, but an earlier copy to the same place has rules of its own.
    static void write_copy(const SharedAccess& access, Block& block, uint32_t phase) {
        uint32_t checked = Transaction::none;
        for_each_tag(block.shared, access, [&](AccessTag& tag) {
            if (tag.origin != Origin::copy) {
                note_write(tag, access);
            } else {
                if (tag.transaction != checked) check_overwrite(block.phases[tag.transaction], access);
                checked = tag.transaction;
            }
            set_writer(tag, *machine.current, Origin::copy, block.epoch);
            tag.transaction = phase;
        });
    }

    void count_arrival(
        const char* method, Block& block, Transaction& transaction, uint32_t bytes, Site site) const {
        Phase& phase = block.phases[transaction.current];
        if (phase.arrived == transaction.arrivals)
            fail_here(
                method,
                format(
                    "one arrival too many: phase %u has had its %u and waits for bytes",
                    phase.number,
                    transaction.arrivals),
                site);
        if (phase.expected + bytes > largest_transaction_bytes)
            fail_here(
                method,
                format(
                    "%llu bytes; at most %u",
                    static_cast<unsigned long long>(phase.expected + bytes),
                    largest_transaction_bytes),
                site);
        release_clocks(*machine.current, phase.arrival);
        ++phase.arrived;
        phase.expected += bytes;
        check_count(method, block, transaction, site);
    }

    // The state of the barrier in this place of a block, for a thread that may use it.
    Transaction& use(Block& block, const SharedAccess& access) const {
        const Lane& lane = *machine.current;
        const AccessTag& tag = first_tag(block, offset_);
        if (tag.write_epoch == 0 || tag.origin != Origin::barrier)
            fail_shared(access, "the barrier is used before initialize");
        Transaction& transaction = block.transactions[tag.transaction];
        if (!transaction.visible)
            fail_shared(
                access,
                "the barrier is used before make_visible by " + numbered_text(tag.writer) +
                    ", which initialised it");
        if (&block == machine.block ? !write_ordered(tag, lane)
                                    : !ordered_in_cluster(lane, tag.write_cluster))
            fail_shared(
                access,
                "race: " + numbered_text(tag.writer) + " initialised it and no barrier orders the two");
        return transaction;
    }

    void add_copy(const char* method, Block& block, const PendingCopy& copy, Site site) const {
        Transaction& transaction = block.transactions[first_tag(block, offset_).transaction];
        Phase& phase = block.phases[transaction.current];
        phase.copied += copy.bytes;
        std::memset(block.shared.base + copy.offset, 0xCD, copy.bytes);
        phase.copies.push_back(copy);
        phase.copy_site = site;
        check_count(method, block, transaction, site);
    }

    [[noreturn]] void fail_here(const char* method, const std::string& what, Site site) const {
        fail(format("TransactionBarrier::%s at byte %u: ", method, offset_) + what, site);
    }

    // After every change of a count: the end of a phase wakes the waiting lanes, which look again.
    void check_count(const char* method, Block& block, Transaction& transaction, Site site) const {
        const Phase& phase = block.phases[transaction.current];
        if (phase.arrived == transaction.arrivals && phase.copied > phase.expected)
            fail_here(
                method,
                format(
                    "copies of %llu bytes, but %llu are expected",
                    static_cast<unsigned long long>(phase.copied),
                    static_cast<unsigned long long>(phase.expected)),
                site);
        if (!complete(transaction, phase)) return;
        transaction.previous = transaction.current;
        begin_phase(block, transaction, phase.number + 1);
        for (Warp& warp : block.warps) warp.ready |= std::exchange(warp.at_transaction, 0);
    }

    static void check_source(const void* from, uint32_t bytes, Site site) {
        const GlobalAccess access{"bulk copy", reinterpret_cast<uintptr_t>(from), bytes, site};
        const GlobalBuffer& buffer = find_buffer(access, 16);
        check_previous_read(access, buffer);
        if (!buffer.writable) return;
        const WriteEntry* entries = &buffer.writes[access.address - buffer.begin];
        for (uint32_t byte = 0; byte < bytes; ++byte)
            if (entries[byte].writer_plus_one)
                fail_global(
                    access,
                    &buffer,
                    launch_thread_text(entries[byte].writer_plus_one - 1) +
                        " wrote it in this launch; copies of that need a proxy fence, which is not offered");
    }

    static void land(Phase& phase) {
        phase.landed = true;
        for (const PendingCopy& copy : phase.copies)
            std::memcpy(
                machine.block->shared.base + copy.offset,
                copy.from ? copy.from : static_cast<const void*>(copy.value),
                copy.bytes);
        phase.copies.clear();
    }

    uint32_t offset_;
};

}  // namespace sm70_emulator
