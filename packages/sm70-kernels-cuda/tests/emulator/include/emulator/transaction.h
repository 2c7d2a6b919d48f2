// Copies from global to shared memory, and values sent to a peer's, that signal a barrier when their bytes
// have arrived, sm_90. Each barrier has one phase. The bytes move when the first wait completes, as late as
// they may; until then the destination is poisoned.
#pragma once
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

    void initialize(Site site = Site::here()) const {
        const SharedAccess access{"TransactionBarrier::initialize", offset_, 8, site};
        Block& block = *machine.block;
        const uint32_t transaction = static_cast<uint32_t>(block.transactions.size());
        write_as(access, Origin::barrier, transaction);
        block.transactions.emplace_back();
        block.transactions.back().offset = offset_;
        block.transactions.back().waited.resize(machine.threads);
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

    void expect(unsigned bytes, Site site = Site::here()) const {
        Block& block = *machine.block;
        Transaction& transaction = use(block, {"TransactionBarrier::expect", offset_, 8, site});
        if (transaction.expecting)
            fail_here("expect", "called twice; the barrier has one phase of one arrival", site);
        if (bytes > largest_transaction_bytes)
            fail_here("expect", format("%u bytes; at most %u", bytes, largest_transaction_bytes), site);
        transaction.expecting = true;
        transaction.expected = bytes;
        check_count("expect", block, transaction, site);
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
        Transaction& transaction = use(block, {"TransactionBarrier::copy", offset_, 8, site});
        check_source(from, bytes, site);
        const uint32_t offset = to.range("bulk copy", index, bytes / 16, site);
        write_as({"bulk copy", offset, bytes, site}, Origin::copy, index_of(block, transaction));
        add_copy("copy", block, {offset, from, bytes, 0}, site);
    }

    // PTX st.async: into the span's element of another block, counted on the barrier in this one's place
    // there.
    void send(
        const SharedSpan<float>& to,
        unsigned index,
        float value,
        unsigned rank,
        Site site = Site::here()) const {
        const char* verb = "TransactionBarrier::send";
        const SharedAccess access{verb, to.range(verb, index, 1, site), sizeof value, site};
        Block& own = *machine.block;
        Block& block = rank == own.rank ? own : find_peer(verb, rank, site);
        const uint32_t transaction = index_of(block, use(block, {verb, offset_, 8, site}));
        if (&block == &own)
            write_as(access, Origin::copy, transaction);
        else
            for_each_tag(block.shared, access, [&](AccessTag& tag) {
                note_peer_write(tag, access, block);
                tag.origin = Origin::copy;
                tag.transaction = transaction;
            });
        add_copy("send", block, {access.offset, nullptr, sizeof value, value}, site);
    }

    void wait(Site site = Site::here()) const {
        Lane& lane = *machine.current;
        Block& block = *machine.block;
        const uint32_t index = index_of(block, use(block, {"TransactionBarrier::wait", offset_, 8, site}));
        while (!complete(block.transactions[index])) {
            lane.transaction = index;
            lane.wait_site = site;
            lane.warp->at_transaction |= lane.bit;
            suspend(lane);
        }
        Transaction& transaction = block.transactions[index];
        land(transaction);
        transaction.waited[lane.linear] = true;
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

    static bool complete(const Transaction& transaction) {
        return transaction.expecting && transaction.copied == transaction.expected;
    }

    // The rules of a store, then another kind of writer.
    static void write_as(const SharedAccess& access, Origin origin, uint32_t transaction) {
        for_each_tag(machine.block->shared, access, [&](AccessTag& tag) {
            note_write(tag, access);
            tag.origin = origin;
            tag.transaction = transaction;
        });
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
        transaction.copied += copy.bytes;
        std::memset(block.shared.base + copy.offset, 0xCD, copy.bytes);
        transaction.copies.push_back(copy);
        transaction.copy_site = site;
        check_count(method, block, transaction, site);
    }

    [[noreturn]] void fail_here(const char* method, const std::string& what, Site site) const {
        fail(format("TransactionBarrier::%s at byte %u: ", method, offset_) + what, site);
    }

    // After every change of either count: wakes the waiting lanes, which look again.
    void check_count(const char* method, Block& block, const Transaction& transaction, Site site) const {
        if (!transaction.expecting) return;
        if (transaction.copied > transaction.expected)
            fail_here(
                method,
                format(
                    "copies of %llu bytes, but %llu are expected",
                    static_cast<unsigned long long>(transaction.copied),
                    static_cast<unsigned long long>(transaction.expected)),
                site);
        if (complete(transaction))
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

    static void land(Transaction& transaction) {
        transaction.landed = true;
        for (const PendingCopy& copy : transaction.copies)
            std::memcpy(
                machine.block->shared.base + copy.offset,
                copy.from ? copy.from : static_cast<const void*>(&copy.value),
                copy.bytes);
        transaction.copies.clear();
    }

    uint32_t offset_;
};

}  // namespace sm70_emulator
