// Runs all general kernels of NVFP4 in the emulator.
#include "general_run.h"

RUN_GENERAL(nvfp4, 1, 1, 8)
RUN_GENERAL(nvfp4, 2, 1, 4)
RUN_GENERAL(nvfp4, 2, 1, 8)
RUN_GENERAL(nvfp4, 2, 2, 4)
RUN_GENERAL(nvfp4, 3, 1, 8)
RUN_GENERAL(nvfp4, 3, 2, 4)
RUN_GENERAL(nvfp4, 4, 1, 8)
RUN_GENERAL(nvfp4, 4, 2, 4)
RUN_GENERAL(nvfp4, 4, 4, 2)
RUN_GENERAL(nvfp4, 6, 2, 4)
RUN_GENERAL(nvfp4, 6, 4, 2)
RUN_GENERAL(nvfp4, 8, 2, 4)
RUN_GENERAL(nvfp4, 8, 4, 2)
