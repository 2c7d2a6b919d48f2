// Kernels that copy to shared memory behind a TransactionBarrier, and one that overlaps with the kernel
// before.
#pragma once
#include "fault.h"

// Warp w copies the 64 ints of chunk w, a quarter each by four of its lanes.
inline void copy_chunk(const int* x, const sm70_emulator::TransactionBarrier& own) {
    using namespace sm70_emulator;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    SharedSpan<uint4> tile(dynamic_shared(), 32);
    if (lane == 0) {
        if (!broken("initialize removed")) own.initialize();
        if (broken("initialized twice")) own.initialize();
        if (!broken("make_visible removed")) TransactionBarrier::make_visible();
        if (broken("too many bytes expected")) own.expect(1 << 20);
        if (!broken("expect removed")) own.expect(broken("fewer bytes expected") ? 240 : 256);
        if (broken("expected twice")) own.expect(256);
    }
    if (!broken("warp barrier removed")) __syncwarp();
    if (lane >= 4 || (broken("one copy removed") && warp == 1 && lane == 2)) return;
    unsigned to = 16 * warp + 4 * lane;
    if (broken("destination off by one")) to += 1;
    if (broken("two copies to one place")) to = 0;
    const int* from = x + 64 * warp + 16 * lane;
    if (broken("source misaligned")) from += 1;
    if (broken("source off by one")) from += 4;
    own.copy(tile, to, from, broken("bytes not a multiple of 16") ? 56 : 64);
}

// y[t] = x[t] + x[64 + t]; y[64 + t] = what lies in shared memory before anybody waits. Block: 64 threads;
// shared: 512 bytes for two chunks and 16 for two barriers.
inline void sum_copied_chunks(const int* x, int* y) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<unsigned long long> barriers(dynamic_shared() + 512, 2);
    SharedSpan<int> values(dynamic_shared(), 128);
    if (broken("destination used without a barrier") && t == 0) values.store(64, 0);
    const int* from = x;
    if (broken("source written in the launch")) {
        store_global(y + t, 0);
        store_global(y + 64 + t, 0);
        from = y;
    }
    copy_chunk(from, TransactionBarrier(barriers, broken("barrier out of bounds") ? 2 : t / 32));
    int early;
    std::memcpy(&early, dynamic_shared() + 4 * t, 4);
    if (!broken("block barrier removed")) __syncthreads();
    if (broken("nobody waits")) return;
    if (broken("barrier read as data") && t == 5) barriers.load(1);
    if (broken("destination stored before the wait")) values.store(t, 0);
    int sum = 0;
    for (unsigned chunk = 0; chunk < 2; ++chunk) {
        const bool skipped = broken("one thread does not wait") && t == 50 && chunk == 1;
        if (!skipped && !broken("wait removed"))
            TransactionBarrier(barriers, broken("waits for the other chunk") ? 1 : chunk).wait();
        sum += values.load(64 * chunk + t);
    }
    if (broken("stored while others read")) values.load(7);
    if (broken("stored while others read") && t == 3) values.store(7, 0);
    store_global(y + t, sum);
    store_global(y + 64 + t, early);
}

// y = weight + x + x[0], where the kernel before writes x; x[0..3] comes by a copy. Block: 64 threads;
// shared: 16 bytes for the copy and 8 for its barrier.
inline void add_after_previous(const int* weight, const int* x, int* y, int* counter) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    SharedSpan<uint4> first(dynamic_shared(), 1);
    const TransactionBarrier barrier(SharedSpan<unsigned long long>(dynamic_shared() + 16, 1), 0);
    if (t == 0) {
        barrier.initialize();
        TransactionBarrier::make_visible();
        barrier.expect(16);
        if (broken("copy before the wait")) barrier.copy(first, 0, x, 16);
    }
    const int mine = load_global<int>(weight + t);
    if (broken("load before the wait")) load_global<int>(x + t);
    if (broken("store before the wait")) store_global(y + t, mine);
    if (broken("atomic before the wait")) atomicAdd(counter, 1);
    allow_next_kernel();
    if (!broken("one thread does not wait") || t != 33) wait_for_previous_kernel();
    if (t == 0) barrier.copy(first, 0, x, 16);
    __syncthreads();
    const int sum = mine + load_global<int>(x + t);
    barrier.wait();
    store_global(y + t, sum + SharedSpan<int>(dynamic_shared(), 4).load(0));
    atomicAdd(counter, 1);
}
