// Runs the warpgroup kernels, and what packs their tokens, in the emulator.
#include "emulator/emulator.h"

#include "warpgroup_nvfp4.cuh"

using namespace sm70_emulator;

#define RUN_WARPGROUP(name, threads)                                                                             \
  extern "C" __attribute__((visibility("default"))) const char* run_##name(                                     \
      const Buffer* buffers, int count, sm70::WarpgroupArguments args, int grid, int shared_bytes, int cluster) { \
    return error_text_of([&] {                                                                                  \
      launch(#name, dim3(grid), dim3(threads), shared_bytes, {buffers, count}, [&] { ::name(args); }, cluster);  \
    });                                                                                                         \
  }

RUN_WARPGROUP(warpgroup_nvfp4_t16_g2_s1_l2, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t32_g2_s1_l2, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t32_g2_s1_l1, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t32_g5_s1_l1, 640)
RUN_WARPGROUP(warpgroup_nvfp4_t64_g2_s2_l2, 512)
RUN_WARPGROUP(warpgroup_nvfp4_t128_g3_s1_l2, 384)

extern "C" __attribute__((visibility("default"))) const char* run_pack_tokens(
    const Buffer* buffers, int count, sm70::PackTokensArguments args, int chunks, int rows, int threads) {
  return error_text_of([&] {
    launch("pack_tokens", dim3(chunks, rows), dim3(threads), 0, {buffers, count}, [&] { ::pack_tokens(args); }, 1);
  });
}
