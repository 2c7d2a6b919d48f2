// RUN_GENERAL exports a function that runs one general kernel in the emulator, for the atom that the build chose.
#pragma once
#include "emulator/emulator.h"

#include "general_nvfp4.cuh"

#define RUN_GENERAL(layout, tiles, warps_n, warps_k)                                                               \
  extern "C" __attribute__((visibility("default"))) const char*                                                    \
      run_general_##layout##_t##tiles##_n##warps_n##_k##warps_k(const sm70_emulator::Buffer* buffers, int count,    \
                                                                sm70::LinearArguments args, int grid, int shared) { \
    return sm70_emulator::error_text_of([&] {                                                                      \
      sm70_emulator::launch("general_" #layout "_t" #tiles "_n" #warps_n "_k" #warps_k, dim3(grid),                \
                            dim3(warps_n * warps_k * 32), shared, {buffers, count},                                \
                            [&] { ::general_##layout##_t##tiles##_n##warps_n##_k##warps_k(args); });               \
    });                                                                                                            \
  }
