"""`Qpn2NvFp4LinearKernel`: the kernels for few rows, for K in multiples of 128."""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import BlockLayoutNvFp4Kernel
from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE


class Qpn2NvFp4LinearKernel(BlockLayoutNvFp4Kernel):
    """NVFP4 weights in fragment order, FP16 activations. Few rows natively."""

    name = "Qpn2NvFp4LinearKernel"
    priority = 210
    setting: str | None = "sm70_nvfp4.qpn2"
    k_multiple = QPN2_K_MULTIPLE
    k_fix = "choose a tensor-parallel size that leaves such a K, or a kernel without this limit"
    qpn2 = True
