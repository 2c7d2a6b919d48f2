// Include this first, then the kernel's headers, in the one source file that the emulator's driver compiles.
#pragma once
#ifndef SM70_EMULATED
#define SM70_EMULATED 1
#endif
#include "emulator/cuda_surface.h"
