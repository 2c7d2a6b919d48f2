// One warpgroup kernel, for the tests that build it again and again.
#include "warpgroup_run.h"

RUN_WARPGROUP(warpgroup_nvfp4_t32_g2_s1, 256)
