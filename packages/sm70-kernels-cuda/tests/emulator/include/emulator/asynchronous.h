// State of what goes on beside the threads: copies behind transaction barriers and the products of
// warpgroups, with who has waited for them and who has read what.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/operation.h"
#include "emulator/site.h"

namespace sm70_emulator {

// For each thread of a block, the last of its clocks that somebody is ordered after; see ordering.h.
using Clocks = std::vector<uint32_t>;
using KnownClocks = std::shared_ptr<const Clocks>;

// When a thread did something: block barriers passed, its own clock, cluster barriers at which it had
// arrived.
struct Stamp {
    static constexpr uint32_t unfinished = ~0u;

    uint32_t epoch = 0;  // 0: it never did
    uint32_t clock = 0;  // `unfinished`: it has begun, and no barrier orders anything after it
    uint32_t cluster = 0;
};

// By thread number in the block; empty while no thread did it.
using Stamps = std::vector<Stamp>;

// A bulk copy or a peer's value on its way. The bytes move when the first wait for its phase completes, as
// late as they may.
struct PendingCopy {
    uint32_t offset;   // byte of shared memory
    const void* from;  // null: the value
    uint32_t bytes;
    unsigned char value[16];
};

// One phase of a TransactionBarrier, and what its copies have brought.
struct Phase {
    uint32_t number = 0, barrier_offset = 0;
    uint32_t arrived = 0;
    uint64_t expected = 0, copied = 0;  // bytes
    bool landed = false;                // somebody has waited for it
    bool has_sends = false;
    Site copy_site;
    std::vector<PendingCopy> copies;
    Stamps waited;
    Stamps loads, products;           // reads of what it brought, by loads and by warpgroup_multiply
    std::shared_ptr<Clocks> arrival;  // what the arriving threads knew, for those who wait
};

// One initialised TransactionBarrier; see transaction.h. Phases are indices into the block's.
struct Transaction {
    static constexpr uint32_t none = ~0u;

    uint32_t offset = 0;
    uint32_t arrivals = 1;  // of each phase
    bool visible = false;
    uint32_t current = 0, previous = none;
};

// A warpgroup_multiply as one warp has made it.
struct PendingProduct {
    uint32_t b_offset, half_stride;  // bytes of shared memory, and between its two halves of k
    uint32_t tokens;
    uint32_t accumulator;  // index into Products::accumulators
    uint32_t a[32][4];
    const uint32_t* registers[32];  // where a was
    std::vector<uint32_t> phases;  // that brought B
    Site site;
};

// The D of pending products: what the lanes hold meanwhile is poisoned.
struct Accumulator {
    uint32_t tokens;
    float* registers[32];
    std::vector<float> values;  // [lane][tokens / 2]
};

// What one warp has under way between warpgroup_fence and warpgroup_wait.
struct Products {
    bool fenced = false;
    std::vector<size_t> groups;  // where each committed group ends in pending
    std::vector<PendingProduct> pending;
    std::vector<Accumulator> accumulators;
    uint32_t calls = 0;  // of this warp, to compare with the others of its warpgroup
};

struct WarpgroupCall {
    Operation operation;
    uint32_t b_offset, half_stride, tokens;
    Site site;

    bool matches(const WarpgroupCall& other) const {
        return operation == other.operation && b_offset == other.b_offset &&
               half_stride == other.half_stride && tokens == other.tokens;
    }
};

// Four warps: their named barrier, and the calls that the warp ahead of the others has made.
struct Warpgroup {
    uint32_t arrived = 0;
    Site site;
    uint32_t first = 0;  // thread that arrived first
    std::vector<WarpgroupCall> calls;
};

}  // namespace sm70_emulator
