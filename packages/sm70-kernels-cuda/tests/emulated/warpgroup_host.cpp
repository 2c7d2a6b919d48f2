// Runs the warpgroup kernels, and what packs their tokens, in the emulator.
#include "emulator/emulator.h"

#include "warpgroup_nvfp4.cuh"

using namespace sm70_emulator;

#define RUN_WARPGROUP(tokens, warpgroups)                                                                        \
  extern "C" __attribute__((visibility("default"))) const char*                                                 \
      run_warpgroup_nvfp4_t##tokens##_g##warpgroups(const Buffer* buffers, int count, sm70::WarpgroupArguments args, \
                                                    int grid, int shared_bytes, int cluster) {                  \
    return error_text_of([&] {                                                                                  \
      launch("warpgroup_nvfp4_t" #tokens "_g" #warpgroups, dim3(grid), dim3(warpgroups * 128), shared_bytes,    \
             {buffers, count}, [&] { ::warpgroup_nvfp4_t##tokens##_g##warpgroups(args); }, cluster);            \
    });                                                                                                         \
  }

RUN_WARPGROUP(16, 2)
RUN_WARPGROUP(32, 2)
RUN_WARPGROUP(64, 2)
RUN_WARPGROUP(128, 3)

extern "C" __attribute__((visibility("default"))) const char* run_pack_tokens(
    const Buffer* buffers, int count, sm70::PackTokensArguments args, int chunks, int rows, int threads) {
  return error_text_of([&] {
    launch("pack_tokens", dim3(chunks, rows), dim3(threads), 0, {buffers, count}, [&] { ::pack_tokens(args); }, 1);
  });
}
