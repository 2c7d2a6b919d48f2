// Runs all general NVFP4 kernels in the emulator.
#include "general_run.h"

RUN_GENERAL(1, 1, 8)
RUN_GENERAL(2, 1, 4)
RUN_GENERAL(2, 1, 8)
RUN_GENERAL(2, 2, 4)
RUN_GENERAL(3, 1, 8)
RUN_GENERAL(3, 2, 4)
RUN_GENERAL(4, 1, 8)
RUN_GENERAL(4, 2, 4)
RUN_GENERAL(4, 4, 2)
RUN_GENERAL(6, 2, 4)
RUN_GENERAL(6, 4, 2)
RUN_GENERAL(8, 2, 4)
RUN_GENERAL(8, 4, 2)
