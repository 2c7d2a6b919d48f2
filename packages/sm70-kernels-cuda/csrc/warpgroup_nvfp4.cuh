// The warpgroup kernels by name: warpgroup_nvfp4_t<tokens>_g<warpgroups along N>_s<warpgroups that share K>, one
// for each row of launch_warpgroup.py's table.
// They need wgmma, which only code for 9.0 alone (sm_90a) may use.
#pragma once

#include "sm70/gemm/pack_tokens.cuh"
#include "sm70/gemm/warpgroup_nvfp4.cuh"

#if defined(SM70_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SM70_WARPGROUP_KERNEL(tokens, groups, split, loads, blocks)                             \
  SM70_KERNEL(groups* split * 128, blocks)                                                      \
  warpgroup_nvfp4_t##tokens##_g##groups##_s##split(const sm70::WarpgroupArguments args) {       \
    sm70::warpgroup_nvfp4<tokens, groups, split, loads>(args);                                  \
  }

SM70_WARPGROUP_KERNEL(32, 2, 1, 2, 2)
SM70_WARPGROUP_KERNEL(32, 5, 1, 1, 1)
SM70_WARPGROUP_KERNEL(64, 2, 1, 2, 2)
SM70_WARPGROUP_KERNEL(64, 2, 2, 2, 1)
SM70_WARPGROUP_KERNEL(64, 5, 1, 1, 1)
SM70_WARPGROUP_KERNEL(128, 2, 1, 2, 1)
SM70_WARPGROUP_KERNEL(128, 3, 1, 2, 1)
SM70_WARPGROUP_KERNEL(256, 2, 1, 2, 1)

SM70_KERNEL(64) pack_tokens(const sm70::PackTokensArguments args) { sm70::pack_tokens(args); }

#endif
