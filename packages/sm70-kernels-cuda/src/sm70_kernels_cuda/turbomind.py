"""`TurboMindNvFp4LinearKernel` and `TurboMindMxFp4LinearKernel`: any number of rows, K in whole groups.

The first has the name that users of other Volta builds know. The code is this project's own.
"""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import BlockLayoutKernel
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_policy.formats import MXFP4, NVFP4

_K_FIX = "choose a tensor-parallel size that leaves such a K"


class TurboMindNvFp4LinearKernel(BlockLayoutKernel):
    """NVFP4 weights in fragment order, FP16 activations, decoded in the loop for any number of rows."""

    name = "TurboMindNvFp4LinearKernel"
    priority = 150
    setting: str | None = None
    weight_format = NVFP4
    layout = Nvfp4Block
    k_multiple = NVFP4.group_size
    k_fix = _K_FIX
    qpn2 = False


class TurboMindMxFp4LinearKernel(BlockLayoutKernel):
    """MXFP4 weights in fragment order, FP16 activations, decoded in the loop for any number of rows."""

    name = "TurboMindMxFp4LinearKernel"
    priority = 150
    setting: str | None = None
    weight_format = MXFP4
    layout = Mxfp4Block
    k_multiple = MXFP4.group_size
    k_fix = _K_FIX
    qpn2 = False
