"""`Qpn2NvFp4LinearKernel`, `TuringQpn2NvFp4LinearKernel` and `Qpn2MxFp4LinearKernel`: for few rows.

K is a multiple of 128. Exactly one of the first two serves a card, so that a user who disables it gets
another kernel, not the same code under another name.
"""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import CAPABILITIES, BlockLayoutKernel
from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_policy.capability import TURING
from sm70_policy.formats import MXFP4, NVFP4

K_FIX = "choose a tensor-parallel size that leaves such a K, or a kernel without this limit"


class Qpn2NvFp4LinearKernel(BlockLayoutKernel):
    """NVFP4 weights in fragment order, FP16 activations. Few rows natively. All cards but Turing."""

    name = "Qpn2NvFp4LinearKernel"
    priority = 210
    setting: str | None = "sm70_nvfp4.qpn2"
    capabilities = CAPABILITIES - TURING
    elsewhere = "on 7.5 TuringQpn2NvFp4LinearKernel takes its place"
    weight_format = NVFP4
    layout = Nvfp4Block
    k_multiple = QPN2_K_MULTIPLE
    k_fix = K_FIX
    qpn2 = True


class Qpn2MxFp4LinearKernel(BlockLayoutKernel):
    """MXFP4 weights in fragment order, FP16 activations. Few rows natively."""

    name = "Qpn2MxFp4LinearKernel"
    priority = 210
    setting: str | None = "sm70_mxfp4.qpn2"
    weight_format = MXFP4
    layout = Mxfp4Block
    k_multiple = QPN2_K_MULTIPLE
    k_fix = K_FIX
    qpn2 = True


class TuringQpn2NvFp4LinearKernel(Qpn2NvFp4LinearKernel):
    """The same on Turing, whose tensor-core instruction is another one."""

    name = "TuringQpn2NvFp4LinearKernel"
    capabilities = TURING
    elsewhere = "Qpn2NvFp4LinearKernel takes its place there"
