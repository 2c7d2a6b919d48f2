// Runs a warpgroup kernel, and what packs its tokens, in the emulator.
#pragma once

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

extern "C" __attribute__((visibility("default"))) const char* run_pack_tokens(
    const Buffer* buffers, int count, sm70::PackTokensArguments args, int chunks, int rows, int threads) {
  return error_text_of([&] {
    launch("pack_tokens", dim3(chunks, rows), dim3(threads), 0, {buffers, count}, [&] { ::pack_tokens(args); }, 1);
  });
}
