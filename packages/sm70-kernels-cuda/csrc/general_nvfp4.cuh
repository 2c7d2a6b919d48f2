// The general NVFP4 kernels by name: general_nvfp4_t<token tiles>_n<warps along N>_k<warps along K>, one for each row of
// launch_general.py's table.
#pragma once

#include "qpn2_nvfp4.cuh"  // DeviceAtom
#include "sm70/gemm/general_nvfp4.cuh"

// The blocks that a multiprocessor must have room for bound a thread's registers: two of 256 threads leave it 128.
#define SM70_GENERAL_KERNEL(format, Scales, tiles, warps_n, warps_k)                                               \
  SM70_KERNEL(warps_n* warps_k * 32,                                                                               \
              (sm70::general::Shape<Scales, sm70::DeviceAtom, tiles, warps_n, warps_k>::kResidentBlocks))           \
  general_##format##_t##tiles##_n##warps_n##_k##warps_k(const sm70::LinearArguments args) {                        \
    sm70::general_fp4<Scales, sm70::DeviceAtom, tiles, warps_n, warps_k>(args);                                     \
  }

SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 1, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 2, 1, 8)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 2, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 4, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 4, 4, 2)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 6, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 6, 4, 2)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 8, 2, 4)
SM70_GENERAL_KERNEL(nvfp4, sm70::nvfp4_block::E4M3Group16, 8, 4, 2)
