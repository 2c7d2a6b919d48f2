// Runs the cluster kernels in the emulator: two blocks at a time.
#include "emulator/emulator.h"

#include "cluster_nvfp4.cuh"

using namespace sm70_emulator;

#define RUN_CLUSTER(token_tiles, warps)                                                                         \
  extern "C" __attribute__((visibility("default"))) const char* run_cluster_nvfp4_t##token_tiles##_w##warps(    \
      const Buffer* buffers, int count, sm70::ClusterArguments args, int grid, int shared_bytes) {              \
    return error_text_of([&] {                                                                                  \
      launch("cluster_nvfp4_t" #token_tiles "_w" #warps, dim3(grid), dim3(warps * 32), shared_bytes,            \
             {buffers, count}, [&] { ::cluster_nvfp4_t##token_tiles##_w##warps(args); }, 2);                    \
    });                                                                                                         \
  }

RUN_CLUSTER(1, 8)
RUN_CLUSTER(1, 16)
RUN_CLUSTER(2, 8)
RUN_CLUSTER(2, 16)
