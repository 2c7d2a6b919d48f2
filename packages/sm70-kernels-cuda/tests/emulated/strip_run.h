// RUN_QPN2 and RUN_DEQUANTIZE export functions that run one kernel in the emulator, for the atom that the build chose.
#pragma once
#include "emulator/emulator.h"

#include "qpn2_nvfp4.cuh"

using namespace sm70_emulator;

#define EXPORT extern "C" __attribute__((visibility("default")))

#define RUN_QPN2(layout, token_tiles, warps)                                                                           \
  EXPORT const char* run_qpn2_##layout##_t##token_tiles##_w##warps(const Buffer* buffers, int count,                   \
                                                                   sm70::LinearArguments args, int grid,               \
                                                                   int shared_bytes) {                                 \
    return error_text_of([&] {                                                                                         \
      launch("qpn2_" #layout "_t" #token_tiles "_w" #warps, dim3(grid), dim3(warps * 32), shared_bytes,                \
             {buffers, count}, [&] { ::qpn2_##layout##_t##token_tiles##_w##warps(args); });                            \
    });                                                                                                                \
  }

#define RUN_DEQUANTIZE(layout)                                                                                          \
  EXPORT const char* run_dequantize_##layout(const Buffer* buffers, int count, sm70::DequantizeArguments args,          \
                                             int grid_x, int grid_y) {                                                  \
    return error_text_of([&] {                                                                                          \
      launch("dequantize_" #layout, dim3(grid_x, grid_y), dim3(128), 0, {buffers, count},                               \
             [&] { ::dequantize_##layout(args); });                                                                     \
    });                                                                                                                 \
  }
