// Runs the strip kernels of NVFP4 in the emulator, and the decoder to dense FP16.
#include "strip_run.h"

RUN_QPN2(nvfp4, 1, 4)
RUN_QPN2(nvfp4, 1, 8)
RUN_QPN2(nvfp4, 1, 16)
RUN_QPN2(nvfp4, 2, 8)
RUN_QPN2(nvfp4, 2, 16)
RUN_QPN2(nvfp4, 4, 8)
RUN_DEQUANTIZE(nvfp4)
