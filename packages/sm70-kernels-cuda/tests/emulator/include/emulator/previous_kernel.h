// Dependent launches, sm_90: a kernel that may start before the one ahead of it in the stream has finished.
// The checks are in global_memory.h: loads of what the previous kernel writes, and all stores, must wait.
#pragma once
#include "emulator/machine.h"

namespace sm70_emulator {

inline void wait_for_previous_kernel() {
    machine.current->previous_finished = true;
}

// Nothing to do or check: launches follow one another here.
inline void allow_next_kernel() {}

}  // namespace sm70_emulator
