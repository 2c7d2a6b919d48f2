"""What this package brings to the policy."""

from sm70_kernels_cuda.__about__ import __version__
from sm70_kernels_cuda.qpn2 import (
    Qpn2MxFp4LinearKernel,
    Qpn2NvFp4LinearKernel,
    TuringQpn2NvFp4LinearKernel,
)
from sm70_kernels_cuda.qpn4 import Qpn4NvFp4LinearKernel
from sm70_kernels_cuda.reference import CpuReferenceMxFp4LinearKernel, CpuReferenceNvFp4LinearKernel
from sm70_kernels_cuda.turbomind import TurboMindMxFp4LinearKernel, TurboMindNvFp4LinearKernel
from sm70_policy.provider import Provider

PROVIDER = Provider(
    name="cuda",
    distribution="sm70-kernels-cuda",
    version=__version__,
    contract=1,
    linear_kernels=(
        Qpn4NvFp4LinearKernel(),
        Qpn2NvFp4LinearKernel(),
        TuringQpn2NvFp4LinearKernel(),
        TurboMindNvFp4LinearKernel(),
        CpuReferenceNvFp4LinearKernel(),
        Qpn2MxFp4LinearKernel(),
        TurboMindMxFp4LinearKernel(),
        CpuReferenceMxFp4LinearKernel(),
    ),
)
