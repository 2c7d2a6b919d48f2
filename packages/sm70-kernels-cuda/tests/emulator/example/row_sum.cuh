// Sum of each row of a matrix of halves: one block per row, warp shuffles, then shared memory across warps.
#pragma once
#include <cuda_fp16.h>

#include "device.cuh"

EXAMPLE_DEVICE float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// x: [rows, columns] halves; y: [rows] floats. Block: whole warps; dynamic shared memory: 4 bytes per warp.
extern "C" __global__ void __launch_bounds__(256) row_sum(const __half* x, float* y, int columns) {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    SharedSpan<float> partial(dynamic_shared(), warps);
    const __half* row = x + static_cast<size_t>(blockIdx.x) * columns;
    float sum = 0;
    for (int column = threadIdx.x; column < columns; column += blockDim.x)
        sum += __half2float(load_global<__half>(row + column));
    sum = warp_sum(sum);
    if (lane == 0) partial.store(warp, sum);
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0;
    for (int other = 0; other < warps; ++other) total += partial[other];
    store_global(y + blockIdx.x, total);
}
