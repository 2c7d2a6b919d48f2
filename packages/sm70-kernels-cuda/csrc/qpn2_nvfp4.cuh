// The strip kernels by name: qpn2_<layout>_t<token tiles>_w<warps>, one for each variant of kernel_set.py.
#pragma once

#include "mxfp4_block.cuh"
#include "nvfp4_half_block.cuh"
#include "sm70/gemm/dequantize_nvfp4.cuh"
#include "sm70/gemm/qpn2_nvfp4.cuh"

namespace sm70 {

using Nvfp4Scales = nvfp4_block::E4M3Group16;
using Mxfp4Scales = mxfp4_block::E8M0Group32;
using Nvfp4HalfScales = nvfp4_half_block::Half16Group16;

// SM70_VOLTA_ATOM and SM70_TURING_ATOM in a test build run a path of 7.x on a newer card; for m8n8k4 the compiler's
// emulation stands in there, m16n8k8 is native.
#if defined(SM70_VOLTA_ATOM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750)
using DeviceAtom = VoltaAtom;
#elif defined(SM70_TURING_ATOM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
using DeviceAtom = TuringAtom;
#else
using DeviceAtom = AmpereAtom;
#endif

}  // namespace sm70

// `format` is the name of the resident layout without `_block`.
#define SM70_QPN2_KERNEL(format, Scales, token_tiles, warps)                                           \
  SM70_KERNEL(warps * 32) qpn2_##format##_t##token_tiles##_w##warps(const sm70::LinearArguments args) { \
    sm70::qpn2_fp4<Scales, sm70::DeviceAtom, token_tiles, warps>(args);                                \
  }

#define SM70_DEQUANTIZE_KERNEL(format, Scales)                                 \
  SM70_KERNEL(128) dequantize_##format(const sm70::DequantizeArguments args) { \
    sm70::dequantize_fp4<Scales>(args);                                        \
  }

SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 1, 4)
SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 1, 8)
SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 1, 16)
SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 2, 8)
SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 2, 16)
SM70_QPN2_KERNEL(nvfp4, sm70::Nvfp4Scales, 4, 8)
SM70_DEQUANTIZE_KERNEL(nvfp4, sm70::Nvfp4Scales)

SM70_QPN2_KERNEL(mxfp4, sm70::Mxfp4Scales, 1, 8)
SM70_QPN2_KERNEL(mxfp4, sm70::Mxfp4Scales, 1, 16)
SM70_QPN2_KERNEL(mxfp4, sm70::Mxfp4Scales, 2, 16)
SM70_QPN2_KERNEL(mxfp4, sm70::Mxfp4Scales, 4, 8)
SM70_DEQUANTIZE_KERNEL(mxfp4, sm70::Mxfp4Scales)

SM70_QPN2_KERNEL(nvfp4_half, sm70::Nvfp4HalfScales, 1, 16)
SM70_DEQUANTIZE_KERNEL(nvfp4_half, sm70::Nvfp4HalfScales)
