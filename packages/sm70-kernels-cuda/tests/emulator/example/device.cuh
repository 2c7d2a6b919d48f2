// The part of a portability header that the example needs: one set of names for NVRTC and for the emulator.
#pragma once
#ifdef SM70_EMULATED
#define EXAMPLE_DEVICE inline
using sm70_emulator::dynamic_shared;
using sm70_emulator::load_global;
using sm70_emulator::SharedSpan;
using sm70_emulator::store_global;
#else
#include "gpu_memory.cuh"
#define EXAMPLE_DEVICE __device__ __forceinline__
#endif
