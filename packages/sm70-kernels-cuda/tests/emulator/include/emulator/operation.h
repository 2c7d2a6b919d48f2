// Warp collectives by name.
#pragma once
#include <cstdint>

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
    mma_16x8x16,
    warpgroup_fence,
    warpgroup_multiply,
    warpgroup_commit,
    warpgroup_wait
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
        "mma.m16n8k16",
        "warpgroup_fence",
        "warpgroup_multiply",
        "warpgroup_commit",
        "warpgroup_wait"};
    return names[static_cast<int>(operation)];
}

}  // namespace sm70_emulator
