"""What this package brings to the policy."""

from sm70_kernels_cuda.__about__ import __version__
from sm70_kernels_cuda.qpn2 import Qpn2NvFp4LinearKernel, TuringQpn2NvFp4LinearKernel
from sm70_kernels_cuda.reference import CpuReferenceNvFp4LinearKernel
from sm70_kernels_cuda.turbomind import TurboMindNvFp4LinearKernel
from sm70_policy.provider import Provider

PROVIDER = Provider(
    name="cuda",
    distribution="sm70-kernels-cuda",
    version=__version__,
    contract=1,
    linear_kernels=(
        Qpn2NvFp4LinearKernel(),
        TuringQpn2NvFp4LinearKernel(),
        TurboMindNvFp4LinearKernel(),
        CpuReferenceNvFp4LinearKernel(),
    ),
)
