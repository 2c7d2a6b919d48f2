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

// y[token][n .. n + 3] = sum * row_factor + bias, as far as y has those columns; n is a multiple of 4.
template <class Arguments>
SM70_DEVICE void write_quad(const Arguments& args, int token, int n, const float4& sum) {
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  __half results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    results[i] = __float2half_rn(0.0f);
    if (n + i >= args.n) continue;
    const float bias = args.bias != nullptr ? __half2float(load_global(args.bias + n + i)) : 0.0f;
    results[i] = __float2half_rn(sums[i] * (nvfp4_block::kUnscale * load_global(args.row_factor + n + i)) + bias);
  }
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

// y[token][n .. n + 3] of gated mode; n is a multiple of 4, and N / 2 one of 32.
template <class Arguments>
SM70_DEVICE void write_gated_quad(const Arguments& args, int token, int n, const float4& gate, const float4& up) {
  const int columns = output_columns(args);
  if (n >= columns) return;
  const float gates[4] = {gate.x, gate.y, gate.z, gate.w};
  const float ups[4] = {up.x, up.y, up.z, up.w};
  __half results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) results[i] = gated_result<nvfp4_block::E4M3Group16>(args, n + i, gates[i], ups[i]);
  store_global(reinterpret_cast<uint2*>(args.y + static_cast<size_t>(token) * columns + n),
               make_uint2(pack_half2(__halves2half2(results[0], results[1])),
                          pack_half2(__halves2half2(results[2], results[3]))));
}

}  // namespace sm70
