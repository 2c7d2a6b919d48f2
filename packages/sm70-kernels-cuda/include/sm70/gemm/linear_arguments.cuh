// The operands of a linear layer, as kernels take them by value; operands.py mirrors it.
#pragma once

#include "sm70/common/portability.cuh"

namespace sm70 {

struct LinearArguments {
  const uint8_t* weight;    // in the layout that the kernel's name says
  const __half* x;          // [M, K]
  __half* y;                // [M, N], or [M, N / 2] in gated mode
  const float* row_factor;  // [N]
  const __half* bias;       // [N] or null
  int m;
  int n;
  int k;
  int gated;                // see gated.cuh
};

}  // namespace sm70
