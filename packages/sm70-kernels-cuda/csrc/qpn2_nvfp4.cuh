// The kernels of the NVFP4 linear by name: qpn2_nvfp4_t<token tiles>_w<warps>, one for each row of launch.py's table.
#pragma once

#include "sm70/gemm/dequantize_nvfp4.cuh"
#include "sm70/gemm/qpn2_nvfp4.cuh"

namespace sm70 {

// SM70_VOLTA_ATOM in a test build runs the 7.x path on a newer card, where the compiler emulates m8n8k4.
#if defined(SM70_VOLTA_ATOM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
using DeviceAtom = VoltaAtom;
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

SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 1, 4)
SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 1, 8)
SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 1, 16)
SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 2, 8)
SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 2, 16)
SM70_QPN2_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 4, 8)
SM70_DEQUANTIZE_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16)
