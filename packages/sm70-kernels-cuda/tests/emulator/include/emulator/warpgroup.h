// Warpgroups, sm_90: four warps with a named barrier of their own, and tensor-core products that run beside
// the threads. Element maps: PTX ISA, "Asynchronous warpgroup-level matrix instructions", m64nNk16 with A in
// registers and B in shared memory, K-major without swizzle.
//
// A product reads B and adds to D as late as it may, in warpgroup_wait; until then D is poisoned and B may
// not be overwritten. The warps of a warpgroup go ahead of each other here, so each warp's reads end with its
// own wait.
#pragma once
#include <algorithm>
#include <cstring>

#include "emulator/collectives.h"
#include "emulator/mma.h"
#include "emulator/shared_memory.h"

namespace sm70_emulator {

constexpr uint32_t warpgroup_threads = 128;

inline Warpgroup& warpgroup_of(const Lane& lane, const char* verb, Site site) {
    const uint32_t index = lane.linear / warpgroup_threads;
    if (index >= machine.block->warpgroups.size())
        fail(
            format(
                "%s by a thread outside a warpgroup: the block has %u threads, %zu times 128 and a rest",
                verb,
                machine.threads,
                machine.block->warpgroups.size()),
            site);
    return machine.block->warpgroups[index];
}

// All threads of the warpgroup know what the others have done, and what they have learnt.
inline void share_in_warpgroup(Block& block, uint32_t index) {
    auto clocks = std::make_shared<Clocks>(machine.threads);
    const Clocks* last = nullptr;
    Lane* const lanes = &block.lanes[warpgroup_threads * index];
    for (uint32_t linear = 0; linear < warpgroup_threads; ++linear) {
        const Clocks* known = lanes[linear].known.get();
        if (known && known != last) join_clocks(*clocks, *known);
        last = known;
    }
    for (uint32_t number = 4 * index; number < 4 * index + 4; ++number) {
        Warp& warp = block.warps[number];
        std::fill_n(clocks->begin() + 32 * number, 32, warp.last_clock);
        for (auto& seen : warp.seen) std::fill_n(seen, 32, warp.last_clock);
        advance_clocks(warp);
    }
    for (uint32_t linear = 0; linear < warpgroup_threads; ++linear) lanes[linear].known = clocks;
}

inline void check_warpgroup_sync(const Lane& lane, const Warpgroup& warpgroup, unsigned index, Site site) {
    if (index != lane.linear / warpgroup_threads)
        fail(
            format(
                "warpgroup_sync of warpgroup %u by a thread of warpgroup %u",
                index,
                lane.linear / warpgroup_threads),
            site);
    for (uint32_t number = 4 * index; number < 4 * index + 4; ++number)
        if (const uint32_t exited = machine.block->warps[number].exited)
            fail(
                format(
                    "divergent barrier: warpgroup_sync, but lanes %s of warp %u exited before it",
                    lane_list(exited).c_str(),
                    number),
                site);
    if (warpgroup.arrived && site != warpgroup.site)
        fail(
            "divergent barrier: this thread is at warpgroup_sync" + site.text() + ", but " +
            thread_text(machine.block->lanes[warpgroup.first]) + " waits at another one" +
            warpgroup.site.text());
}

// PTX: bar.sync index + 1, 128. By the 128 threads of warpgroup threadIdx.x / 128, whose accesses to shared
// memory it orders.
inline void warpgroup_sync(unsigned index, Site site = Site::here()) {
    Lane& lane = *machine.current;
    Warpgroup& warpgroup = warpgroup_of(lane, "warpgroup_sync", site);
    check_warpgroup_sync(lane, warpgroup, index, site);
    if (warpgroup.arrived == 0) {
        warpgroup.site = site;
        warpgroup.first = lane.linear;
    }
    if (++warpgroup.arrived == warpgroup_threads) {
        warpgroup.arrived = 0;
        share_in_warpgroup(*machine.block, index);
        for (uint32_t number = 4 * index; number < 4 * index + 4; ++number) {
            Warp& warp = machine.block->warps[number];
            warp.ready |= std::exchange(warp.at_warpgroup, 0);
        }
        return;
    }
    lane.warp->at_warpgroup |= lane.bit;
    suspend(lane);
}

// What one lane gives to warpgroup_multiply.
struct ProductOperands {
    float* d;
    const uint32_t* a;
    uint32_t b_offset, half_stride, tokens;
};

inline const ProductOperands& operands_of(const Lane& lane) {
    return *static_cast<const ProductOperands*>(lane.call.input);
}

// No float of this pattern comes from a sum: a D that differs was written in the meantime.
constexpr uint32_t unreadable_bits = 0xffcdcdcdu;

// All warps of a warpgroup make the same calls: each compares with those that are ahead of it.
inline void note_warpgroup_call(Warp& warp, const WarpgroupCall& call) {
    Warpgroup& warpgroup = warpgroup_of(warp.lanes[0], operation_name(call.operation), call.site);
    const uint32_t position = warp.products.calls++;
    if (position == warpgroup.calls.size()) {
        warpgroup.calls.push_back(call);
        return;
    }
    const WarpgroupCall& other = warpgroup.calls[position];
    if (call.matches(other)) return;
    const auto text = [](const WarpgroupCall& made) {
        return std::string(operation_name(made.operation)) +
               (made.tokens ? format(
                                  " of %u tokens at byte %u with %u bytes between the halves of k",
                                  made.tokens,
                                  made.b_offset,
                                  made.half_stride)
                            : "") +
               made.site.text();
    };
    fail(
        format("the warps of a warpgroup must make the same calls: call %u of this warp is ", position) +
            text(call) + ", but that of another one is " + text(other),
        call.site);
}

// The copies that brought B; only what came with a bulk copy is there for the tensor cores.
inline void find_phases(const SharedAccess& access, std::vector<uint32_t>& phases) {
    for_each_tag(machine.block->shared, access, [&](const AccessTag& tag) {
        if (tag.write_epoch == 0)
            fail_shared(access, "uninitialised read: nothing in this block has written it yet");
        if (tag.origin == Origin::barrier) fail_shared(access, "a TransactionBarrier lies there");
        if (tag.origin != Origin::copy || machine.block->phases[tag.transaction].has_sends)
            fail_shared(
                access,
                numbered_text(tag.writer) +
                    " stored it; warpgroup_multiply reads what a bulk copy has brought, and anything else "
                    "needs "
                    "a proxy fence, which is not offered");
        if (phases.empty() || phases.back() != tag.transaction) phases.push_back(tag.transaction);
    });
}

inline void check_same_operands(const Warp& warp) {
    const ProductOperands& first = operands_of(warp.lanes[0]);
    for (uint32_t lane = 1; lane < 32; ++lane) {
        const ProductOperands& other = operands_of(warp.lanes[lane]);
        if (other.b_offset != first.b_offset || other.half_stride != first.half_stride ||
            other.tokens != first.tokens)
            fail(
                format(
                    "warpgroup_multiply: lane 0 gives B at byte %u with %u bytes between the halves of k, "
                    "but "
                    "lane %u gives byte %u with %u",
                    first.b_offset,
                    first.half_stride,
                    lane,
                    other.b_offset,
                    other.half_stride),
                warp.lanes[lane].call.site);
    }
}

inline bool is_unreadable(const float* registers, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, registers + i, 4);
        if (bits != unreadable_bits) return false;
    }
    return true;
}

inline void check_unreadable(const Warp& warp, const Accumulator& accumulator) {
    for (uint32_t lane = 0; lane < 32; ++lane)
        if (!is_unreadable(accumulator.registers[lane], accumulator.tokens / 2))
            fail(
                format("lane %u wrote D of a warpgroup_multiply before warpgroup_wait", lane),
                warp.lanes[lane].call.site);
}

// The accumulator that these lanes' D already is, or a new one.
inline uint32_t find_accumulator(Warp& warp, uint32_t tokens) {
    std::vector<Accumulator>& accumulators = warp.products.accumulators;
    for (uint32_t index = 0; index < accumulators.size(); ++index) {
        const Accumulator& each = accumulators[index];
        if (each.registers[0] != operands_of(warp.lanes[0]).d || each.tokens != tokens) continue;
        check_unreadable(warp, each);
        return index;
    }
    Accumulator accumulator;
    accumulator.tokens = tokens;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        float* d = accumulator.registers[lane] = operands_of(warp.lanes[lane]).d;
        accumulator.values.insert(accumulator.values.end(), d, d + tokens / 2);
        for (uint32_t i = 0; i < tokens / 2; ++i) std::memcpy(d + i, &unreadable_bits, 4);
    }
    accumulators.push_back(std::move(accumulator));
    return static_cast<uint32_t>(accumulators.size() - 1);
}

// The reads of B begin: nobody may overwrite it until they have ended.
inline void begin_reads(Warp& warp, const PendingProduct& product, const SharedAccess& access) {
    for (const uint32_t index : product.phases) {
        Phase& phase = machine.block->phases[index];
        for (uint32_t lane = 0; lane < 32; ++lane) {
            check_waited(
                phase,
                warp.lanes[lane],
                machine.block->shared.words[access.offset / 4].writer,
                access,
                "read");
            set_stamp(
                phase.products,
                warp.lanes[lane],
                Stamp{machine.block->epoch, Stamp::unfinished, Stamp::unfinished});
        }
    }
}

inline void complete_multiply(Warp& warp, uint32_t) {
    check_same_operands(warp);
    const Site site = machine.current->call.site;
    const ProductOperands& given = operands_of(warp.lanes[0]);
    note_warpgroup_call(
        warp, {Operation::warpgroup_multiply, given.b_offset, given.half_stride, given.tokens, site});
    if (!warp.products.fenced)
        fail("warpgroup_multiply without warpgroup_fence: the registers may have been written since", site);
    PendingProduct product{given.b_offset, given.half_stride, given.tokens, 0, {}, {}, {}, site};
    const SharedAccess low{"warpgroup_multiply", given.b_offset, 16 * given.tokens, site};
    const SharedAccess high{low.verb, low.offset + given.half_stride, low.bytes, site};
    find_phases(low, product.phases);
    find_phases(high, product.phases);
    begin_reads(warp, product, low);
    for (uint32_t lane = 0; lane < 32; ++lane) {
        product.registers[lane] = operands_of(warp.lanes[lane]).a;
        std::memcpy(product.a[lane], product.registers[lane], sizeof product.a[lane]);
    }
    product.accumulator = find_accumulator(warp, given.tokens);
    warp.products.pending.push_back(std::move(product));
}

// One warp's 16 rows of D, with sums over k as mma has them.
inline void add_product(const PendingProduct& product, Accumulator& accumulator) {
    using Shape = Shape16x8<16>;
    float a[Shape::rows][Shape::inner];
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < Shape::a_elements; ++i)
            a[Shape::a_row(lane, i)][Shape::a_inner(lane, i)] = fragment_element(product.a[lane], i);
    const uint32_t tokens = product.tokens;
    std::vector<float> b(Shape::inner * tokens), sums(Shape::rows * tokens);
    for (uint32_t inner = 0; inner < Shape::inner; ++inner)
        for (uint32_t token = 0; token < tokens; ++token) {
            uint16_t half;
            const uint32_t word = product.b_offset + inner / 8 * product.half_stride + 16 * token;
            std::memcpy(&half, machine.block->shared.base + word + 2 * (inner % 8), 2);
            b[inner * tokens + token] = half_bits_to_float(half);
        }
    for (uint32_t row = 0; row < Shape::rows; ++row)
        for (uint32_t inner = 0; inner < Shape::inner; ++inner)
            for (uint32_t token = 0; token < tokens; ++token)
                sums[row * tokens + token] += a[row][inner] * b[inner * tokens + token];
    for (int lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < tokens / 2; ++i) {
            const int part = static_cast<int>(i % 4);
            const uint32_t row = static_cast<uint32_t>(Shape::c_row(lane, part));
            const uint32_t token = 8 * (i / 4) + static_cast<uint32_t>(Shape::c_column(lane, part));
            accumulator.values[static_cast<uint32_t>(lane) * tokens / 2 + i] += sums[row * tokens + token];
        }
}

// The tensor cores read A's registers until the product is done.
inline void check_operands_kept(const Warp& warp, const PendingProduct& product) {
    for (uint32_t lane = 0; lane < 32; ++lane)
        if (std::memcmp(product.a[lane], product.registers[lane], sizeof product.a[lane]))
            fail(
                format("lane %u wrote A of a warpgroup_multiply before warpgroup_wait", lane),
                warp.lanes[lane].call.site);
}

// The reads end where the threads wait for them.
inline void end_reads(Warp& warp, const PendingProduct& product) {
    for (const uint32_t index : product.phases)
        for (uint32_t lane = 0; lane < 32; ++lane)
            set_stamp(machine.block->phases[index].products, warp.lanes[lane], stamp_of(warp.lanes[lane]));
}

// D becomes readable when no product is pending.
inline void release_accumulators(Products& products) {
    for (const Accumulator& accumulator : products.accumulators)
        for (uint32_t lane = 0; lane < 32; ++lane)
            std::copy_n(
                &accumulator.values[lane * accumulator.tokens / 2],
                accumulator.tokens / 2,
                accumulator.registers[lane]);
    products.accumulators.clear();
}

// The oldest products up to `count` are done.
inline void finish_products(Warp& warp, size_t count) {
    Products& products = warp.products;
    for (size_t index = 0; index < count; ++index) {
        const PendingProduct& product = products.pending[index];
        check_operands_kept(warp, product);
        add_product(product, products.accumulators[product.accumulator]);
        end_reads(warp, product);
    }
    products.pending.erase(products.pending.begin(), products.pending.begin() + static_cast<long>(count));
    for (size_t& end : products.groups) end -= std::min(end, count);
    products.groups.erase(
        std::remove(products.groups.begin(), products.groups.end(), size_t{0}), products.groups.end());
}

template <uint32_t kPending>
void complete_wait(Warp& warp, uint32_t) {
    Products& products = warp.products;
    note_warpgroup_call(warp, {Operation::warpgroup_wait, 0, 0, kPending, machine.current->call.site});
    const size_t committed = products.groups.empty() ? 0 : products.groups.back();
    if (committed != products.pending.size())
        fail(
            format(
                "warpgroup_wait with %zu products that no warpgroup_commit follows: it does not wait for "
                "them",
                products.pending.size() - committed),
            machine.current->call.site);
    for (const Accumulator& accumulator : products.accumulators) check_unreadable(warp, accumulator);
    if (products.groups.size() > kPending)
        finish_products(warp, products.groups[products.groups.size() - 1 - kPending]);
    if (products.pending.empty()) release_accumulators(products);
    products.fenced = false;
}

inline void complete_fence(Warp& warp, uint32_t) {
    note_warpgroup_call(warp, {Operation::warpgroup_fence, 0, 0, 0, machine.current->call.site});
    warp.products.fenced = true;
}

inline void complete_commit(Warp& warp, uint32_t) {
    note_warpgroup_call(warp, {Operation::warpgroup_commit, 0, 0, 0, machine.current->call.site});
    warp.products.groups.push_back(warp.products.pending.size());
}

inline void warpgroup_call(Operation operation, const void* input, Complete complete, Site site) {
    warpgroup_of(*machine.current, operation_name(operation), site);
    Call call;
    call.operation = operation;
    call.mask = ~0u;
    call.input = input;
    call.site = site;
    collective(call, complete);
}

// PTX: wgmma.fence. Before the first product after registers of A or D were written.
inline void warpgroup_fence(Site site = Site::here()) {
    warpgroup_call(Operation::warpgroup_fence, nullptr, complete_fence, site);
}

// PTX: wgmma.commit_group. warpgroup_wait waits for the products before it.
inline void warpgroup_commit(Site site = Site::here()) {
    warpgroup_call(Operation::warpgroup_commit, nullptr, complete_commit, site);
}

// PTX: wgmma.wait_group. All groups but the kPending last are done: their A may be written, and their reads of B are
// over. With none pending D is there.
template <uint32_t kPending = 0>
void warpgroup_wait(Site site = Site::here()) {
    warpgroup_call(Operation::warpgroup_wait, nullptr, complete_wait<kPending>, site);
}

// PTX: wgmma.mma_async, m64 n kTokens k16, f32 += f16 * f16. D += A * B. Fragments of A and of each eight
// tokens of D as mma_m16n8k16 has them, the warps one below the other. Token n, k value 8h + e of B is half e
// of word index + h * k_stride + n.
template <int kTokens>
void warpgroup_multiply(
    float (&d)[kTokens / 2],
    const uint32_t (&a)[4],
    const SharedSpan<uint4>& b,
    unsigned index,
    unsigned k_stride,
    Site site = Site::here()) {
    static_assert(kTokens >= 8 && kTokens <= 256 && kTokens % 8 == 0, "8 to 256 tokens, in steps of 8");
    const char* verb = operation_name(Operation::warpgroup_multiply);
    const uint32_t low = b.range(verb, index, kTokens, site);
    const uint32_t high = b.range(verb, index + k_stride, kTokens, site);
    const ProductOperands operands{d, a, low, high - low, kTokens};
    warpgroup_call(Operation::warpgroup_multiply, &operands, complete_multiply, site);
}

}  // namespace sm70_emulator
