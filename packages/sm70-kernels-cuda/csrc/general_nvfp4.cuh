// The general NVFP4 kernels by name: general_nvfp4_t<token tiles>_n<warps along N>_k<warps along K>, one for each row of
// launch_general.py's table.
#pragma once

#include "qpn2_nvfp4.cuh"  // DeviceAtom
#include "sm70/gemm/general_nvfp4.cuh"

// The blocks that a multiprocessor must have room for bound a thread's registers: two of 256 threads leave it 128.
#define SM70_GENERAL_KERNEL(tiles, warps_n, warps_k)                                                            \
  SM70_KERNEL(warps_n* warps_k * 32,                                                                            \
              (sm70::general::Shape<sm70::DeviceAtom, tiles, warps_n, warps_k>::kResidentBlocks))                \
  general_nvfp4_t##tiles##_n##warps_n##_k##warps_k(const sm70::LinearArguments args) {                         \
    sm70::general_nvfp4<sm70::DeviceAtom, tiles, warps_n, warps_k>(args);                                       \
  }

SM70_GENERAL_KERNEL(1, 1, 8)
SM70_GENERAL_KERNEL(2, 1, 4)
SM70_GENERAL_KERNEL(2, 1, 8)
SM70_GENERAL_KERNEL(2, 2, 4)
SM70_GENERAL_KERNEL(3, 1, 8)
SM70_GENERAL_KERNEL(3, 2, 4)
SM70_GENERAL_KERNEL(4, 1, 8)
SM70_GENERAL_KERNEL(4, 2, 4)
SM70_GENERAL_KERNEL(4, 4, 2)
SM70_GENERAL_KERNEL(6, 2, 4)
SM70_GENERAL_KERNEL(6, 4, 2)
SM70_GENERAL_KERNEL(8, 2, 4)
SM70_GENERAL_KERNEL(8, 4, 2)
