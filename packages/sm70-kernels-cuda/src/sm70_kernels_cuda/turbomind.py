"""`TurboMindNvFp4LinearKernel`: the general kernel, for any number of rows and K in multiples of 16.

The class has the name that users of other Volta builds know. The code is this project's own.
"""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import BlockLayoutNvFp4Kernel


class TurboMindNvFp4LinearKernel(BlockLayoutNvFp4Kernel):
    """NVFP4 weights in fragment order, FP16 activations, decoded in the loop for any number of rows."""

    name = "TurboMindNvFp4LinearKernel"
    priority = 150
    setting: str | None = None
    k_multiple = 16
    k_fix = "choose a tensor-parallel size that leaves such a K"
    qpn2 = False
