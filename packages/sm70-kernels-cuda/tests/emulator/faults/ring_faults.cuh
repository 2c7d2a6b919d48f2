// A ring of two stages: one warp copies tiles into it, two warpgroups multiply them, and barriers of several
// phases say which stage is full and which is empty.
#pragma once
#include "fault.h"

constexpr unsigned ring_stages = 2, ring_warpgroups = 2, ring_consumers = 128 * ring_warpgroups;

struct Ring {
    sm70_emulator::SharedSpan<unsigned long long> barriers;
    sm70_emulator::SharedSpan<uint4> a, b;  // [stage][thread], [stage][k / 8][tokens]
    sm70_emulator::SharedSpan<float> sums;  // [thread]
    unsigned first;                         // thread that multiplies

    explicit Ring(unsigned first_consumer)
        : barriers(sm70_emulator::dynamic_shared(), 2 * ring_stages),
          a(sm70_emulator::dynamic_shared() + 32, ring_stages * ring_consumers),
          b(sm70_emulator::dynamic_shared() + 32 + 8192, ring_stages * 16),
          sums(sm70_emulator::dynamic_shared() + 32 + 8192 + 512, ring_consumers),
          first(first_consumer) {}

    unsigned thread() const { return threadIdx.x - first; }
    sm70_emulator::TransactionBarrier full(unsigned stage) const { return {barriers, stage}; }
    sm70_emulator::TransactionBarrier empty(unsigned stage) const { return {barriers, ring_stages + stage}; }
};

inline void initialize_ring(const Ring& ring) {
    using namespace sm70_emulator;
    if (threadIdx.x == 0) {
        unsigned arrivals = ring_warpgroups;
        if (broken("empty after one arrival")) arrivals = 1;
        if (broken("empty after three arrivals")) arrivals = 3;
        if (broken("no arrivals")) arrivals = 0;
        for (unsigned stage = 0; stage < ring_stages; ++stage) {
            ring.full(stage).initialize(broken("full after two arrivals") ? 2 : 1);
            ring.empty(stage).initialize(arrivals);
        }
        TransactionBarrier::make_visible();
    }
    __syncthreads();
}

// One lane waits and copies A, a second one copies B: a __syncwarp passes on what the first has waited for.
inline void fill_ring(const Ring& ring, const uint4* a, const uint4* b, unsigned tiles) {
    using namespace sm70_emulator;
    const unsigned lane = threadIdx.x % 32;
    if (broken("the copying warp calls warpgroup_fence")) warpgroup_fence();
    for (unsigned tile = 0; tile < tiles; ++tile) {
        const unsigned stage = tile % ring_stages, round = tile / ring_stages;
        const auto full = ring.full(stage);
        unsigned parity = round % 2 ^ 1;
        if (broken("producer's parity never changes")) parity = 1;
        if (broken("producer's parity starts with 0")) parity ^= 1;
        const auto wait = [&] {
            if (!broken("producer does not wait")) ring.empty(stage).wait(parity);
        };
        if (lane == 0) {
            if (!broken("producer waits after the copy")) wait();
            full.expect(broken("too many bytes expected") ? 4368 : 4352);
            full.copy(ring.a, ring_consumers * stage, a + ring_consumers * tile, 4096);
            if (broken("producer waits after the copy")) wait();
        }
        if (!broken("producer's warp barrier removed")) __syncwarp();
        if (lane == 1) full.copy(ring.b, 16 * stage, b + 16 * tile, 256);
        if (broken("one arrival too many") && lane == 0) {
            full.expect(16);
            full.arrive();
        }
    }
}

inline void wait_for_stage(const Ring& ring, unsigned stage, unsigned round) {
    const unsigned t = ring.thread();
    unsigned parity = round % 2;
    if (broken("consumer's parity never changes")) parity = 0;
    if (broken("consumer's parity starts with 1")) parity ^= 1;
    if (broken("parity of two")) parity = 2;
    if (broken("consumer waits for the other stage")) stage ^= 1;
    if (broken("consumer does not wait")) return;
    if (broken("one thread does not wait") && t == 130 && round == 1) return;
    ring.full(stage).wait(parity);
}

inline void arrive_at_stage(const Ring& ring, unsigned stage) {
    const unsigned t = ring.thread();
    if (broken("consumer does not arrive")) return;
    if (t % 128 == 0) ring.empty(stage).arrive();
    if (broken("every warp arrives") && t % 32 == 0 && t % 128) ring.empty(stage).arrive();
}

// Adds the product of the tile in a stage.
inline void multiply_stage(const Ring& ring, unsigned stage, unsigned round, float (&sums)[4]) {
    using namespace sm70_emulator;
    const unsigned t = ring.thread();
    if (broken("arrives before its loads")) arrive_at_stage(ring, stage);
    const uint4 word = ring.a.load(ring_consumers * stage + t);
    const uint32_t registers[4] = {word.x, word.y, word.z, word.w};
    warpgroup_fence();
    warpgroup_multiply<8>(sums, registers, ring.b, 16 * stage, 8);
    warpgroup_commit();
    if (broken("arrives before the products are over") ||
        broken("waits for the stage again under products")) {
        warpgroup_sync(threadIdx.x / 128);
        arrive_at_stage(ring, stage);
        if (broken("waits for the stage again under products")) wait_for_stage(ring, stage, round + 1);
    }
    if (broken("arrives before the warpgroup's barrier")) arrive_at_stage(ring, stage);
    warpgroup_wait();
    if (broken("block barrier of the consumers")) __syncthreads();
    if (broken("barrier of another warpgroup")) warpgroup_sync(ring.first / 128);
    if (broken("barrier at two places") && t % 128 >= 64) warpgroup_sync(threadIdx.x / 128);
    if (broken("one thread skips the barrier") && t == 70) return;
    if (broken("one thread exits") && t == 70) return;
    if (!broken("warpgroup's barrier removed")) warpgroup_sync(threadIdx.x / 128);
    if (broken("load after the arrival") && t == 3) ring.a.load(0);
    if (broken("stage stored before the next copy") && t == 1) ring.a.store(ring_consumers * stage, uint4{});
    if (!broken("arrives before its loads") && !broken("arrives before the products are over") &&
        !broken("arrives before the warpgroup's barrier"))
        arrive_at_stage(ring, stage);
    if (broken("load of the elected thread after its arrival") && t == 0) ring.a.load(ring_consumers * stage);
    if (broken("load of another thread after the arrival") && t == 67) ring.a.load(ring_consumers * stage);
}

// y[thread][4] = sums of products, to which the warpgroup's threads add in turn through shared memory what
// they see of each other: the reversed first elements, doubled.
inline void exchange_sums(const Ring& ring, float (&sums)[4], float* y) {
    using namespace sm70_emulator;
    const unsigned t = ring.thread();
    ring.sums.store(t, sums[0]);
    if (!broken("first barrier of the sums removed")) warpgroup_sync(threadIdx.x / 128);
    const float other = ring.sums.load(t ^ 127), first = ring.sums.load(128 * (t / 128));
    if (!broken("second barrier of the sums removed")) warpgroup_sync(threadIdx.x / 128);
    if (broken("another warp reads before the store") && t == 100) ring.sums.load(120);
    ring.sums.store(t ^ 127, 2 * other);
    if (broken("sums of the other warpgroup")) ring.sums.load(t ^ 128);
    warpgroup_sync(threadIdx.x / 128);
    sums[1] += ring.sums.load(t ^ 127) + first;
    for (unsigned i = 0; i < 4; ++i) store_global(y + 4 * t + i, sums[i]);
}

// a: [tile][thread][4]; b: halves [tile][k / 8][8 tokens][8]. Block: two warpgroups from thread `first` on,
// and the warp that copies, after them or in the warpgroup before them.
inline void multiply_ring(const uint4* a, const uint4* b, float* y, unsigned tiles, unsigned first) {
    using namespace sm70_emulator;
    const Ring ring(first);
    initialize_ring(ring);
    if (ring.thread() >= ring_consumers) {
        if (threadIdx.x / 32 == (first ? 0 : ring_consumers / 32)) fill_ring(ring, a, b, tiles);
        return;
    }
    float sums[4] = {};
    for (unsigned tile = 0; tile < tiles; ++tile) {
        const unsigned stage = tile % ring_stages, round = tile / ring_stages;
        wait_for_stage(ring, stage, round);
        multiply_stage(ring, stage, round, sums);
        if (broken("one thread exits") && ring.thread() == 70) return;
    }
    exchange_sums(ring, sums, y);
}

// y[block, t] = sum of x[b, t] over the b of the cluster, sent to every block's barrier, twice: each round is
// a phase. The second round adds 1 to every x. Shared: 8 bytes and [2][rank][thread] floats.
inline void send_to_all(const float* x, float* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x, threads = blockDim.x, blocks = cluster_size(),
                   i = blockIdx.x * threads + t;
    const TransactionBarrier barrier(SharedSpan<unsigned long long>(dynamic_shared(), 1), 0);
    SharedSpan<float> received(dynamic_shared() + 8, 2 * blocks * threads);
    if (t == 0) {
        barrier.initialize();
        TransactionBarrier::make_visible();
    }
    cluster_arrive();
    cluster_wait();
    float sum = 0;
    for (unsigned round = 0; round < 2; ++round) {
        const float mine = load_global<float>(x + i) + static_cast<float>(round);
        const unsigned base = round * blocks;
        if (t == 0) barrier.expect(4 * blocks * threads);
        for (unsigned to = 0; to < blocks; ++to)
            barrier.send(received, (base + cluster_rank()) * threads + t, mine, to);
        barrier.wait(round);
        for (unsigned from = 0; from < blocks; ++from) sum += received.load((base + from) * threads + t);
        // A block that is ahead would send to a phase that has not begun.
        cluster_arrive();
        cluster_wait();
    }
    store_global(y + i, sum);
}
