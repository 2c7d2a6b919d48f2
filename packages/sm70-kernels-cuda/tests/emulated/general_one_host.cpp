// Runs one general NVFP4 kernel in the emulator: for the tests that break it, which compile it over and over.
#include "general_run.h"

RUN_GENERAL(6, 2, 4)
