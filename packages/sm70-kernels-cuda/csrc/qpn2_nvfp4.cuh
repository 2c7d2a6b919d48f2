// The kernels of the NVFP4 linear by name: qpn2_nvfp4_t<token tiles>_w<warps>, one for each row of launch.py's table.
#pragma once

#include "sm70/gemm/dequantize_nvfp4.cuh"
#include "sm70/gemm/qpn2_nvfp4.cuh"

namespace sm70 {

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

#define SM70_QPN2_KERNEL(token_tiles, warps)                                                      \
  SM70_KERNEL(warps * 32) qpn2_nvfp4_t##token_tiles##_w##warps(const sm70::LinearArguments args) {  \
    sm70::qpn2_nvfp4<sm70::DeviceAtom, token_tiles, warps>(args);                                 \
  }

SM70_QPN2_KERNEL(1, 4)
SM70_QPN2_KERNEL(1, 8)
SM70_QPN2_KERNEL(1, 16)
SM70_QPN2_KERNEL(2, 8)
SM70_QPN2_KERNEL(2, 16)
SM70_QPN2_KERNEL(4, 8)

SM70_KERNEL(128) dequantize_nvfp4(const sm70::DequantizeArguments args) { sm70::dequantize_nvfp4(args); }
