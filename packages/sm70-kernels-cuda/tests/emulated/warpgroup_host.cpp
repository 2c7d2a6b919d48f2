// All warpgroup kernels.
#include "warpgroup_run.h"

RUN_WARPGROUP(warpgroup_nvfp4_t32_g2_s1, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t32_g5_s1, 640)
RUN_WARPGROUP(warpgroup_nvfp4_t64_g2_s1, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t64_g2_s2, 512)
RUN_WARPGROUP(warpgroup_nvfp4_t64_g5_s1, 640)
RUN_WARPGROUP(warpgroup_nvfp4_t128_g2_s1, 256)
RUN_WARPGROUP(warpgroup_nvfp4_t128_g3_s1, 384)
RUN_WARPGROUP(warpgroup_nvfp4_t256_g2_s1, 256)
