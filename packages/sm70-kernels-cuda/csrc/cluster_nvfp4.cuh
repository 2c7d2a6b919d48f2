// The cluster kernels by name: cluster_nvfp4_t<token tiles>_w<warps>, one for each row of launch_cluster.py's table.
#pragma once

#include "sm70/gemm/cluster_nvfp4.cuh"

#if defined(SM70_EMULATED) || __CUDA_ARCH__ >= 900

#define SM70_CLUSTER_KERNEL(token_tiles, warps, blocks)                                                       \
  SM70_KERNEL(warps * 32, blocks) cluster_nvfp4_t##token_tiles##_w##warps(const sm70::ClusterArguments args) { \
    sm70::cluster_nvfp4<token_tiles, warps>(args);                                                             \
  }

SM70_CLUSTER_KERNEL(1, 8, 2)
SM70_CLUSTER_KERNEL(1, 16, 1)
SM70_CLUSTER_KERNEL(2, 8, 2)
SM70_CLUSTER_KERNEL(2, 16, 1)

#endif
