"""Triton kernels for quantized linear layers. No kernel is offered yet."""

from sm70_kernels_triton.__about__ import __version__

__all__ = ["__version__"]
