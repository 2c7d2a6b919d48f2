// Runs the kernels of the layouts beside nvfp4_block in the emulator.
#include "general_run.h"
#include "strip_run.h"

RUN_QPN2(mxfp4, 1, 8)
RUN_QPN2(mxfp4, 1, 16)
RUN_QPN2(mxfp4, 2, 16)
RUN_QPN2(mxfp4, 4, 8)
RUN_DEQUANTIZE(mxfp4)

RUN_QPN2(nvfp4_half, 1, 16)
RUN_DEQUANTIZE(nvfp4_half)

RUN_GENERAL(mxfp4, 1, 1, 8)
RUN_GENERAL(mxfp4, 4, 2, 4)
RUN_GENERAL(nvfp4_half, 4, 2, 4)
#if defined(SM70_VOLTA_ATOM) || defined(SM70_TURING_ATOM)
RUN_GENERAL(mxfp4, 8, 4, 2)
RUN_GENERAL(nvfp4_half, 8, 4, 2)
#endif
