// State of the emulated machine: the cluster of blocks that runs, their warps and threads, and the launch's
// registered buffers.
#pragma once
#include <vector_types.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/asynchronous.h"
#include "emulator/fiber.h"
#include "emulator/operation.h"
#include "emulator/site.h"

namespace sm70_emulator {

// A warp collective as one lane calls it. The pointers lead into the waiting lane's own stack.
struct Call {
    Operation operation = Operation::sync_warp;
    uint32_t mask = 0;
    uint32_t operand_bytes = 0;
    int source_lane = 0;
    const void* input = nullptr;
    void* output = nullptr;
    Site site;

    bool matches(const Call& other) const {
        return operation == other.operation && mask == other.mask && operand_bytes == other.operand_bytes;
    }
};

struct Warp;

struct Lane {
    Context context;
    uint3 thread{};
    uint32_t linear = 0;  // thread number in the block
    uint32_t number = 0;  // lane_number of the rank and `linear`
    size_t stack = 0;
    uint32_t lane = 0;  // thread number in the warp
    uint32_t bit = 0;
    Warp* warp = nullptr;
    Call call;
    uint32_t polls = 0;  // reads of writable memory since the thread last gave way; see global_memory.h
    // Cluster barriers: what a thread does after `arrived` arrivals reaches who has completed more waits.
    uint32_t cluster_arrived = 0, cluster_waited = 0;
    uint32_t transaction = 0;        // index of the transaction barrier that the lane waits for
    uint32_t awaited_phase = 0;      // and the phase, counted from the first
    Site wait_site;                  // of the wait for the cluster or a transaction barrier
    KnownClocks known;               // what it has learnt across warps; null: nothing
    bool previous_finished = false;  // called wait_for_previous_kernel
};

// A call that all lanes of a warp must make from one place.
struct AlignedCall {
    Site site;
    uint32_t lanes = 0;
};

// Sets of lanes are bit masks. A lane is in exactly one of ready, at_barrier, at_warpgroup, at_cluster,
// at_transaction, waiting, exited.
struct Warp {
    Lane* lanes = nullptr;
    uint32_t existing = 0, ready = 0, at_barrier = 0, at_warpgroup = 0, at_cluster = 0, at_transaction = 0,
             waiting = 0, exited = 0;
    bool uniform = true;  // all lanes in `waiting` made the same call
    AlignedCall cluster_arrive, cluster_wait;
    Products products;
    // Memory order between lanes of the warp: clock[l] grows when others may learn what lane l has done, and
    // seen[l][m] is the last clock of lane m that lane l is ordered after. See ordering.h.
    uint32_t last_clock = 1;
    uint32_t clock[32];
    uint32_t seen[32][32];
};

// A registered argument buffer; the layout is shared with emulator.py.
struct Buffer {
    void* address;
    uint64_t bytes;
    int32_t writable;
    int32_t from_previous_kernel;
    const char* name;
};

struct BufferList {
    const Buffer* data;
    int count;
};

// Last plain store to one byte of a writable buffer in this launch.
struct WriteEntry {
    uint32_t writer_plus_one;  // thread number in the launch, plus one; 0: never written
    uint32_t epoch;            // barriers passed by the writer's block
    uint32_t fences;           // __threadfence calls made by the writer before the store
    uint32_t cluster;          // cluster barriers at which the writer had arrived
};

struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
};

struct GlobalBuffer {
    uintptr_t begin = 0, end = 0;
    bool writable = false, from_previous_kernel = false;
    std::string name;
    std::unique_ptr<WriteEntry[], FreeMemory> writes;
};

// How the readers of a piece of shared memory since the last block barrier are kept; see shared_memory.h.
// several_warps: not at all, or in the Phase that brought it.
enum class Readers : uint8_t { one_warp, several_warps, listed };

// What wrote a piece of shared memory last: a thread of the block, one of another block of the cluster, a
// bulk copy, or TransactionBarrier::initialize.
enum class Origin : uint8_t { block, peer, copy, barrier };

// Access log of one 4-byte word of shared memory, or of one byte of it when `fine` is set.
struct AccessTag {
    uint32_t write_epoch;  // 0: never written in this block
    uint32_t write_clock;
    uint16_t writer;    // lane number
    uint8_t read_warp;  // lane number / 32
    Readers readers : 2;
    Origin origin : 2;
    uint8_t fine : 1;
    uint32_t read_epoch;
    uint32_t read_clock;  // with several_warps: a reader of a second warp
    uint32_t read_mask;
    uint32_t write_cluster;  // cluster barriers at which the writer had arrived
    uint32_t read_cluster;   // the same of the readers since the write, plus one; 0: nobody read it
    uint32_t transaction;    // index of the phase, for copies, or of the barrier
};

struct SharedArena {
    unsigned char* base = nullptr;
    uint32_t bytes = 0;
    std::vector<unsigned char> storage;
    std::vector<AccessTag> words;
    std::vector<AccessTag> fine;  // four per word, used once a word saw an access narrower than itself
    std::unordered_map<const AccessTag*, Clocks> listed;  // by thread; 0: not a reader
};

// Where the last store_peer to a block came from.
struct PeerStore {
    uint32_t cluster_plus_one = 0;  // cluster barriers at which the storing thread had arrived; 0: no store
    uint32_t writer = 0;            // lane number
    Site site;
};

// A block of the cluster that runs.
struct Block {
    uint3 index{};
    uint32_t number = 0;  // in the launch
    uint32_t rank = 0;    // in the cluster
    uint32_t live = 0;
    uint32_t epoch = 1;  // block barriers passed, from 1
    uint32_t barrier_arrived = 0;
    Site barrier_site;
    Lane* barrier_first = nullptr;
    Lane* lanes = nullptr;
    std::vector<Warp> warps;
    SharedArena shared;
    std::vector<Transaction> transactions;
    std::deque<Phase> phases;  // of all of them, in the order in which they began
    std::vector<Warpgroup> warpgroups;
    PeerStore peer_store;
};

struct Cluster {
    uint32_t size = 1;       // blocks
    uint32_t arrived = 0;    // threads at the cluster barrier that is not complete
    uint32_t completed = 0;  // cluster barriers
};

// The last two of Lane::known that were joined.
struct LastJoin {
    KnownClocks first, second, result;
};

struct Machine {
    std::mutex launching;
    std::string kernel;
    StackPool stacks;
    std::vector<Lane> lanes;
    std::vector<Block> blocks;  // of the cluster that runs
    Block* block = nullptr;     // of the current thread
    Lane* current = nullptr;
    Context scheduler;
    std::function<void()> body;
    std::string error;

    dim3 block_size, grid_size;
    uint32_t threads = 0;  // per block
    Cluster cluster;
    bool lists_readers = false;  // of all warps: launches for sm_90, whose barriers can join a few of them
    LastJoin last_join;

    std::vector<GlobalBuffer> buffers;
    bool follows_previous_kernel = false;  // some buffer is written by the kernel before
    std::vector<uint32_t> fences;          // per thread of the launch
    std::vector<uint8_t> block_atomics;    // per block of the launch: it made an atomic access
};

inline Machine machine;

// Threads of a cluster are numbered with room for 1024 per block, so that warps never share 32 numbers.
inline uint32_t lane_number(uint32_t rank, uint32_t linear) {
    return 1024 * rank + linear;
}

inline const Lane& numbered_lane(uint32_t number) {
    return machine.blocks[number / 1024].lanes[number % 1024];
}

inline std::string thread_text(const Lane& lane) {
    return format("thread (%u,%u,%u)", lane.thread.x, lane.thread.y, lane.thread.z);
}

inline std::string block_text(uint32_t number) {
    const dim3& grid = machine.grid_size;
    return format("block (%u,%u,%u)", number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
}

// The thread of a lane number, with its block where that is not the current one.
inline std::string numbered_text(uint32_t number) {
    const Block& block = machine.blocks[number / 1024];
    return (&block == machine.block ? "" : block_text(block.number) + " ") +
           thread_text(numbered_lane(number));
}

// Every error of a kernel starts with the place: kernel, block, thread, warp and lane.
[[noreturn]] __attribute__((noinline, cold)) inline void fail(const std::string& text, Site site = Site{}) {
    std::string place = "kernel '" + machine.kernel + "': " + block_text(machine.block->number);
    if (const Lane* lane = machine.current)
        place += " " + thread_text(*lane) + format(" [warp %u lane %u]", lane->linear / 32, lane->lane);
    throw KernelError(place + ": " + text + site.text());
}

}  // namespace sm70_emulator
