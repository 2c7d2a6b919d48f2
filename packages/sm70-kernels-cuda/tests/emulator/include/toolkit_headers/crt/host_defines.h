// Stand-in for the toolkit's header of this name, which the CUDA runtime wheel refers to but does not contain.
// Found only where no include directory before this one has the real header. Enough for a plain host compiler.
#pragma once
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __device_builtin__
#define __cudart_builtin__
#define __launch_bounds__(...)
#define CUDARTAPI
