// Everything that goes into the package's one fat binary.
#include "qpn2_nvfp4.cuh"
#include "cluster_nvfp4.cuh"
#include "general_nvfp4.cuh"
#include "warpgroup_nvfp4.cuh"
