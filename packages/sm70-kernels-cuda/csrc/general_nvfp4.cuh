// The general kernels by name: general_<layout>_t<token tiles>_n<warps along N>_k<warps along K>, one for each variant of
// kernel_set.py.
#pragma once

#include "qpn2_nvfp4.cuh"  // DeviceAtom and the scales
#include "sm70/gemm/general_nvfp4.cuh"

// The blocks that a multiprocessor must have room for bound a thread's registers: two of 256 threads leave it 128.
#define SM70_GENERAL_KERNEL(format, Scales, tiles, warps_n, warps_k)                                               \
  SM70_KERNEL(warps_n* warps_k * 32,                                                                               \
              (sm70::general::Shape<Scales, sm70::DeviceAtom, tiles, warps_n, warps_k>::kResidentBlocks))           \
  general_##format##_t##tiles##_n##warps_n##_k##warps_k(const sm70::LinearArguments args) {                        \
    sm70::general_fp4<Scales, sm70::DeviceAtom, tiles, warps_n, warps_k>(args);                                     \
  }

SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 1, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 2, 1, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 2, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 2, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 3, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 3, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 4, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 4, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 4, 4, 2)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 6, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 6, 4, 2)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 8, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::Nvfp4Scales, 8, 4, 2)

SM70_GENERAL_KERNEL(mxfp4, sm70::Mxfp4Scales, 1, 1, 8)
SM70_GENERAL_KERNEL(mxfp4, sm70::Mxfp4Scales, 4, 2, 4)
SM70_GENERAL_KERNEL(nvfp4_half, sm70::Nvfp4HalfScales, 4, 2, 4)

// Blocks of 8 token tiles are for 7.x: on an H200 those of 4 were faster.
#if defined(SM70_VOLTA_ATOM) || defined(SM70_TURING_ATOM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
SM70_GENERAL_KERNEL(mxfp4, sm70::Mxfp4Scales, 8, 4, 2)
SM70_GENERAL_KERNEL(nvfp4_half, sm70::Nvfp4HalfScales, 8, 4, 2)
#endif
