// The warpgroup kernels by name: warpgroup_nvfp4_t<tokens>_g<warpgroups>, one for each row of launch_warpgroup.py's table.
// They need wgmma, which only code for 9.0 alone (sm_90a) may use.
#pragma once

#include "sm70/gemm/pack_tokens.cuh"
#include "sm70/gemm/warpgroup_nvfp4.cuh"

#if defined(SM70_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SM70_WARPGROUP_KERNEL(tokens, warpgroups, blocks)                                                       \
  SM70_KERNEL(warpgroups * 128, blocks)                                                                         \
  warpgroup_nvfp4_t##tokens##_g##warpgroups(const sm70::WarpgroupArguments args) {                              \
    sm70::warpgroup_nvfp4<tokens, warpgroups>(args);                                                            \
  }

SM70_WARPGROUP_KERNEL(16, 2, 2)
SM70_WARPGROUP_KERNEL(32, 2, 2)
SM70_WARPGROUP_KERNEL(64, 2, 2)
SM70_WARPGROUP_KERNEL(64, 4, 1)
SM70_WARPGROUP_KERNEL(128, 2, 1)
SM70_WARPGROUP_KERNEL(128, 3, 1)
SM70_WARPGROUP_KERNEL(256, 2, 1)

SM70_KERNEL(64) pack_tokens(const sm70::PackTokensArguments args) { sm70::pack_tokens(args); }

#endif
