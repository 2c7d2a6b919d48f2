"""Quantized linear kernels in CUDA C++ for compute capability 7.0 and 7.5, also running on 8.0 and up."""

from sm70_kernels_cuda.__about__ import __version__

__all__ = ["__version__"]
