"""`Qpn2NvFp4LinearKernel` and `TuringQpn2NvFp4LinearKernel`: the kernels for few rows, K in multiples of 128.

Exactly one of the two serves a card, so that a user who disables it gets another kernel, not the same code
under another name.
"""

from __future__ import annotations

from sm70_kernels_cuda.block_layout_kernel import CAPABILITIES, BlockLayoutNvFp4Kernel
from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE
from sm70_policy.capability import TURING


class Qpn2NvFp4LinearKernel(BlockLayoutNvFp4Kernel):
    """NVFP4 weights in fragment order, FP16 activations. Few rows natively. All cards but Turing."""

    name = "Qpn2NvFp4LinearKernel"
    priority = 210
    setting: str | None = "sm70_nvfp4.qpn2"
    capabilities = CAPABILITIES - TURING
    elsewhere = "on 7.5 TuringQpn2NvFp4LinearKernel takes its place"
    k_multiple = QPN2_K_MULTIPLE
    k_fix = "choose a tensor-parallel size that leaves such a K, or a kernel without this limit"
    qpn2 = True


class TuringQpn2NvFp4LinearKernel(Qpn2NvFp4LinearKernel):
    """The same on Turing, whose tensor-core instruction is another one."""

    name = "TuringQpn2NvFp4LinearKernel"
    capabilities = TURING
    elsewhere = "Qpn2NvFp4LinearKernel takes its place there"
