"""`Qpn4NvFp4LinearKernel`: as QPN2, with a weight's scales widened to FP16.

The class has the name that users of other Volta builds know. The code is this project's own.
"""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import BlockLayoutKernel
from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE
from sm70_kernels_cuda.layouts.nvfp4_half_block import Nvfp4HalfBlock
from sm70_kernels_cuda.qpn2 import K_FIX
from sm70_policy.formats import NVFP4


class Qpn4NvFp4LinearKernel(BlockLayoutKernel):
    """NVFP4 weights in fragment order with FP16 factors, FP16 activations. Up to 8 rows natively."""

    name = "Qpn4NvFp4LinearKernel"
    priority = 220
    setting: str | None = "sm70_nvfp4.qpn4"
    weight_format = NVFP4
    layout = Nvfp4HalfBlock
    k_multiple = QPN2_K_MULTIPLE
    k_fix = K_FIX
    qpn2 = True
