"""The general kernels of one binary, callable on torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda.driver import Module, PreparedLaunch
from sm70_kernels_cuda.launch_general import GeneralVariant, launch_general
from sm70_kernels_cuda.operands import OPERAND_ADDRESSES, LinearArguments, LinearKernels

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch import Atom
    from sm70_kernels_cuda.operands import Product


class GeneralKernels(LinearKernels[GeneralVariant]):
    """The general kernels of a loaded binary, for one tensor-core atom; no scratch memory is used."""

    def __init__(self, module: Module, atom: Atom) -> None:
        """Use the kernels of `module`, compiled for `atom`."""
        self._module = module
        self._atom = atom

    def prepare(
        self, chosen: GeneralVariant, m: int, n: int, k: int, device: int, *, gated: bool = False
    ) -> Product:
        """Settle everything but the operands; see `LinearKernels`. K is a multiple of 16."""
        launch = launch_general(chosen, m, n, self._atom)
        arguments = LinearArguments(m=m, n=n, k=k, gated=gated)
        kernel = self._module.kernel(launch.kernel)
        return PreparedLaunch(kernel, launch, arguments, OPERAND_ADDRESSES, device).enqueue
