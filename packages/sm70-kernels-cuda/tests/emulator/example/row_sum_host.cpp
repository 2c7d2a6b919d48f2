// Host side of the example: exports one function that launches the kernel in the emulator.
#include "emulator/emulator.h"
#include "row_sum.cuh"

using namespace sm70_emulator;

extern "C" __attribute__((visibility("default"))) const char* run_row_sum(
    const Buffer* buffers, int count, const __half* x, float* y, int rows, int columns, int threads) {
    return error_text_of([&] {
        launch("row_sum", dim3(rows), dim3(threads), 4 * (threads / 32), {buffers, count}, [&] {
            row_sum(x, y, columns);
        });
    });
}
