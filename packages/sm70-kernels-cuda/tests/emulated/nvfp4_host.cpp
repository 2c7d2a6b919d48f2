// Runs the package's own kernels in the emulator: one exported function a kernel, for the atom that the build chose.
#include "emulator/emulator.h"

#include "qpn2_nvfp4.cuh"

using namespace sm70_emulator;

#define EXPORT extern "C" __attribute__((visibility("default")))

#define RUN_QPN2(token_tiles, warps)                                                                                   \
  EXPORT const char* run_qpn2_nvfp4_t##token_tiles##_w##warps(const Buffer* buffers, int count, sm70::LinearArguments args, \
                                                              int grid, int shared_bytes) {                           \
    return error_text_of([&] {                                                                                         \
      launch("qpn2_nvfp4_t" #token_tiles "_w" #warps, dim3(grid), dim3(warps * 32), shared_bytes, {buffers, count},    \
             [&] { ::qpn2_nvfp4_t##token_tiles##_w##warps(args); });                                                     \
    });                                                                                                                \
  }

RUN_QPN2(1, 4)
RUN_QPN2(1, 8)
RUN_QPN2(1, 16)
RUN_QPN2(2, 8)
RUN_QPN2(2, 16)
RUN_QPN2(4, 8)

EXPORT const char* run_dequantize_nvfp4(const Buffer* buffers, int count, sm70::DequantizeArguments args, int grid_x,
                                        int grid_y) {
  return error_text_of([&] {
    launch("dequantize_nvfp4", dim3(grid_x, grid_y), dim3(128), 0, {buffers, count}, [&] { ::dequantize_nvfp4(args); });
  });
}
