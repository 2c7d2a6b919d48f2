// Warpgroups: tensor-core products that run beside the threads, and a ring of copies that feeds them.
#pragma once
#include "fault.h"

constexpr unsigned product_steps = 2;  // of 16 values of k

// The 16-byte words of B, [k / 8][tokens], behind the barrier that their copy signals.
inline sm70_emulator::SharedSpan<uint4> copied_operand(const void* b, unsigned words) {
    using namespace sm70_emulator;
    SharedSpan<uint4> operand(dynamic_shared() + 16, words);
    const TransactionBarrier barrier(SharedSpan<unsigned long long>(dynamic_shared(), 1), 0);
    if (threadIdx.x == 0) {
        barrier.initialize();
        TransactionBarrier::make_visible();
        if (!broken("B never copied") && !broken("B stored by threads")) {
            barrier.expect(16 * words);
            if (!broken("B sent by threads")) barrier.copy(operand, 0, b, 16 * words);
        }
    }
    if (broken("B stored by threads"))
        for (unsigned i = threadIdx.x; i < words; i += blockDim.x) operand.store(i, uint4{});
    __syncthreads();
    if (broken("B sent by threads"))
        for (unsigned i = threadIdx.x; i < 4 * words; i += blockDim.x)
            barrier.send(SharedSpan<float>(dynamic_shared() + 16, 4 * words), i, 0, 0);
    const bool hasty = broken("one thread does not wait for the copy") && threadIdx.x == 77;
    if (!hasty && !broken("B never copied") && !broken("B stored by threads")) barrier.wait();
    return operand;
}

// D = D + A * B of each warpgroup. a: [thread][step][4]; b: halves [k / 8][tokens][8]; d: [thread][tokens /
// 2]. Shared: 16 bytes and B.
template <int tokens>
inline void multiply_in_warpgroup(const uint32_t* a, const void* b, float* d) {
    using namespace sm70_emulator;
    const unsigned t = threadIdx.x;
    const SharedSpan<uint4> operand = copied_operand(b, 2 * product_steps * tokens);
    float sums[tokens / 2];
    for (int i = 0; i < tokens / 2; ++i) sums[i] = load_global<float>(d + t * (tokens / 2) + i);
    uint32_t registers[product_steps][4];
    for (unsigned i = 0; i < 4 * product_steps; ++i)
        registers[i / 4][i % 4] = load_global<uint32_t>(a + 4 * product_steps * t + i);
    if (broken("A registers swapped")) std::swap(registers[0][1], registers[0][2]);
    if (!broken("fence removed")) warpgroup_fence();
    for (unsigned step = 0; step < product_steps; ++step) {
        unsigned index = 2 * step * tokens;
        if (broken("one warp reads elsewhere") && t / 32 == 2) index = 0;
        if (broken("one lane reads elsewhere") && t == 40) index = 0;
        if (broken("B out of bounds")) index += 1;
        if (broken("one warp skips a product") && t / 32 == 3 && step == 1) continue;
        if (broken("one lane skips a product") && t == 5 && step == 1) continue;
        warpgroup_multiply<tokens>(
            sums, registers[step], operand, index, broken("halves of k swapped") ? 0 : tokens);
    }
    if (broken("D written before the wait") && t == 9) sums[1] = 0;
    if (broken("A written before the wait") && t == 10) registers[1][3] ^= 1;
    if (broken("B overwritten before the wait") && t == 0) operand.store(3, uint4{});
    if (broken("B overwritten by a peer")) {
        cluster_arrive();
        cluster_wait();
        store_peer(SharedSpan<float>(dynamic_shared() + 16, 1), 0, 0, cluster_rank() ^ 1);
    }
    if (broken("exit without wait")) return;
    if (!broken("commit removed")) warpgroup_commit();
    if (broken("exit after commit without wait")) return;
    if (!broken("wait removed")) warpgroup_wait();
    if (broken("no fence after the wait")) warpgroup_multiply<tokens>(sums, registers[0], operand, 0, tokens);
    for (int i = 0; i < tokens / 2; ++i) store_global(d + t * (tokens / 2) + i, sums[i]);
    if (broken("wait removed")) warpgroup_wait();
}
