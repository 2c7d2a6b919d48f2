// Sums of four neighbouring columns of y on their way from shared memory to y.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/common/prefetch.cuh"

namespace sm70 {

SM70_DEVICE float4 add(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Row factors and biases are read once, at the very end, from memory that nobody has touched before: ask for those of columns
// n to n + columns - 1 at the beginning.
template <class Arguments>
SM70_DEVICE void prefetch_factors(const Arguments& args, int n, int columns) {
  const int count = args.n - n < columns ? args.n - n : columns;
  prefetch_by_block(args.row_factor + n, count);
  if (args.bias != nullptr) prefetch_by_block(args.bias + n, count);
}

// What turns the sum of a column of y into its value; zeros where y has no such column.
struct Finish {
  float factor = 0.0f;
  float bias = 0.0f;

  SM70_DEVICE __half result(float sum) const { return __float2half_rn(sum * factor + bias); }
};

template <class Arguments>
SM70_DEVICE Finish load_finish(const Arguments& args, int n) {
  if (n >= args.n) return {};
  const float bias = args.bias != nullptr ? __half2float(load_global(args.bias + n)) : 0.0f;
  return {nvfp4_block::kUnscale * load_global(args.row_factor + n), bias};
}

// y[token][n .. n + 3], as far as y has those columns; n is a multiple of 4.
template <class Arguments>
SM70_DEVICE void store_quad(const Arguments& args, int token, int n, const __half (&results)[4]) {
  __half* y = args.y + static_cast<size_t>(token) * args.n + n;
  if (args.n % 4 == 0) {  // then every row of y begins at a multiple of 8 bytes
    const uint2 words = make_uint2(pack_half2(__halves2half2(results[0], results[1])),
                                   pack_half2(__halves2half2(results[2], results[3])));
    if (n < args.n) store_global(reinterpret_cast<uint2*>(y), words);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (n + i < args.n) store_global(y + i, results[i]);
  }
}

// The same, of their sums.
template <class Arguments>
SM70_DEVICE void write_quad(const Arguments& args, int token, int n, const float4& sum) {
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  __half results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) results[i] = load_finish(args, n + i).result(sums[i]);
  store_quad(args, token, n, results);
}

}  // namespace sm70
