// State of the emulated machine: the block that runs, its warps and threads, and the launch's registered
// buffers.
#pragma once
#include <vector_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/fiber.h"
#include "emulator/site.h"

namespace sm70_emulator {

enum class Operation : uint32_t {
    sync_warp,
    shuffle,
    shuffle_xor,
    shuffle_down,
    shuffle_up,
    ballot,
    mma_8x8x4,
    mma_16x8x8,
    mma_16x8x16
};

inline const char* operation_name(Operation operation) {
    static const char* const names[] = {
        "__syncwarp",
        "__shfl_sync",
        "__shfl_xor_sync",
        "__shfl_down_sync",
        "__shfl_up_sync",
        "__ballot_sync",
        "mma.m8n8k4",
        "mma.m16n8k8",
        "mma.m16n8k16"};
    return names[static_cast<int>(operation)];
}

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
    uint32_t lane = 0;    // thread number in the warp
    uint32_t bit = 0;
    Warp* warp = nullptr;
    Call call;
    uint32_t polls = 0;  // reads of writable memory since the thread last gave way; see global_memory.h
};

// Sets of lanes are bit masks. A lane is in exactly one of ready, at_barrier, waiting, exited.
struct Warp {
    Lane* lanes = nullptr;
    uint32_t existing = 0, ready = 0, at_barrier = 0, waiting = 0, exited = 0;
    bool uniform = true;  // all lanes in `waiting` made the same call
    // Memory order between lanes of the warp: clock[l] grows when lane l passes a __syncwarp, and
    // seen[l][m] is the last clock of lane m that lane l is ordered after.
    uint32_t last_clock = 1;
    uint32_t clock[32];
    uint32_t seen[32][32];
};

// A registered argument buffer; the layout is shared with emulator.py.
struct Buffer {
    void* address;
    uint64_t bytes;
    int32_t writable;
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
};

struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
};

struct GlobalBuffer {
    uintptr_t begin = 0, end = 0;
    bool writable = false;
    std::string name;
    std::unique_ptr<WriteEntry[], FreeMemory> writes;
};

// How the readers of a piece of shared memory since the last block barrier are kept; see shared_memory.h.
enum class Readers : uint8_t { one_warp, several_warps, listed };

// Access log of one 4-byte word of shared memory, or of one byte of it when `fine` is set.
struct AccessTag {
    uint32_t write_epoch;  // 0: never written in this block
    uint32_t write_clock;
    uint16_t writer;
    uint8_t read_warp;
    Readers readers : 2;
    uint8_t fine : 1;
    uint32_t read_epoch;
    uint32_t read_clock;  // with several_warps: a reader of a second warp
    uint32_t read_mask;
};

struct SharedArena {
    unsigned char* base = nullptr;
    uint32_t bytes = 0;
    std::vector<unsigned char> storage;
    std::vector<AccessTag> words;
    std::vector<AccessTag> fine;  // four per word, used once a word saw an access narrower than itself
    std::unordered_map<const AccessTag*, std::vector<uint32_t>> listed;
};

struct Machine {
    std::mutex launching;
    std::string kernel;
    StackPool stacks;
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    Lane* current = nullptr;
    Context scheduler;
    std::function<void()> body;
    std::string error;

    uint3 block_index{};
    dim3 block_size, grid_size;
    uint32_t threads = 0, live = 0;
    uint32_t block_number = 0;
    uint32_t epoch = 1;  // block barriers passed, from 1
    uint32_t barrier_arrived = 0;
    Site barrier_site;
    Lane* barrier_first = nullptr;

    SharedArena shared;
    std::vector<GlobalBuffer> buffers;
    std::vector<uint32_t> fences;        // per thread of the launch
    std::vector<uint8_t> block_atomics;  // per block of the launch: it made an atomic access
};

inline Machine machine;

inline std::string thread_text(const Lane& lane) {
    return format("thread (%u,%u,%u)", lane.thread.x, lane.thread.y, lane.thread.z);
}

inline std::string block_text(uint32_t number) {
    const dim3& grid = machine.grid_size;
    return format("block (%u,%u,%u)", number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
}

// Every error of a kernel starts with the place: kernel, block, thread, warp and lane.
[[noreturn]] __attribute__((noinline, cold)) inline void fail(const std::string& text, Site site = Site{}) {
    std::string place = "kernel '" + machine.kernel + "': " + block_text(machine.block_number);
    if (const Lane* lane = machine.current)
        place += " " + thread_text(*lane) + format(" [warp %u lane %u]", lane->linear / 32, lane->lane);
    throw KernelError(place + ": " + text + site.text());
}

}  // namespace sm70_emulator
