// Sums of four neighbouring columns of y on their way from shared memory to y.
#pragma once

#include "nvfp4_block.cuh"
#include "sm70/common/portability.cuh"
#include "sm70/common/prefetch.cuh"
#include "sm70/gemm/gated.cuh"

namespace sm70 {

SM70_DEVICE float4 add(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <class Arguments>
SM70_DEVICE void prefetch_rows(const Arguments& args, int n, int count) {
  prefetch_by_block(args.row_factor + n, count);
  if (args.bias != nullptr) prefetch_by_block(args.bias + n, count);
}

// Row factors and biases are read once, at the very end, from memory that nobody has touched before: ask for those of the
// product's rows n to n + rows - 1 at the beginning.
template <class Arguments>
SM70_DEVICE void prefetch_factors(const Arguments& args, int n, int rows) {
  const int count = args.n - n < rows ? args.n - n : rows;
  if (args.gated) {
    prefetch_rows(args, n / 2, count / 2);
    prefetch_rows(args, args.n / 2 + n / 2, count / 2);
  } else {
    prefetch_rows(args, n, count);
  }
}

// What turns the sum of a row of the weight into the layer's value.
struct Finish {
  float factor = 0.0f;
  float bias = 0.0f;

  SM70_DEVICE float value(float sum) const { return sum * factor + bias; }
};

// Zeros where the weight has no such row.
template <class Arguments>
SM70_DEVICE Finish load_finish(const Arguments& args, int row) {
  if (row >= args.n) return {};
  const float bias = args.bias != nullptr ? __half2float(load_global(args.bias + row)) : 0.0f;
  return {nvfp4_block::kUnscale * load_global(args.row_factor + row), bias};
}

// y[token][n .. n + 3], as far as y has those columns; n is a multiple of 4.
template <class Arguments>
SM70_DEVICE void store_quad(const Arguments& args, int token, int n, const __half (&results)[4]) {
  const int columns = output_columns(args);
  __half* y = args.y + static_cast<size_t>(token) * columns + n;
  if (columns % 4 == 0) {  // then every row of y begins at a multiple of 8 bytes
    const uint2 words = make_uint2(pack_half2(__halves2half2(results[0], results[1])),
                                   pack_half2(__halves2half2(results[2], results[3])));
    if (n < columns) store_global(reinterpret_cast<uint2*>(y), words);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (n + i < columns) store_global(y + i, results[i]);
  }
}

// The same, of their sums.
template <class Arguments>
SM70_DEVICE void write_quad(const Arguments& args, int token, int n, const float4& sum) {
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  __half results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) results[i] = __float2half_rn(load_finish(args, n + i).value(sums[i]));
  store_quad(args, token, n, results);
}

// The same in gated mode.
template <class Arguments>
SM70_DEVICE void write_gated_quad(const Arguments& args, int token, int n, const float4& gate, const float4& up) {
  if (n >= output_columns(args)) return;
  const float gates[4] = {gate.x, gate.y, gate.z, gate.w};
  const float ups[4] = {up.x, up.y, up.z, up.w};
  __half results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) results[i] = gated_result<nvfp4_block::E4M3Group16>(args, n + i, gates[i], ups[i]);
  store_quad(args, token, n, results);
}

}  // namespace sm70
