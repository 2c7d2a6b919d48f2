"""The general kernels of one binary, callable on torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda.driver import ArgumentBlock, Module, current_stream
from sm70_kernels_cuda.launch_general import GeneralVariant, launch_general
from sm70_kernels_cuda.operands import LinearArguments, fill_operands

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_kernels_cuda.launch import Atom


_block = ArgumentBlock(LinearArguments)


class GeneralKernels:
    """The general kernels of a loaded binary, for one tensor-core atom.

    Every call enqueues on the current stream of its tensors' device, which must be the current device.
    Nothing is kept between calls, and no scratch memory is used.
    """

    def __init__(self, module: Module, atom: Atom) -> None:
        """Use the kernels of `module`, compiled for `atom`."""
        self._module = module
        self._atom = atom

    def run(
        self,
        variant: GeneralVariant,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Run one variant.

        Args:
            variant: The compiled kernel; each takes any number of rows.
            x: FP16 [..., K], contiguous and 16-byte aligned; K a multiple of 16.
            weight: uint8, in the variant's layout.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or, for silu(gate) * up, [..., N / 2], contiguous; written completely.
        """
        fill_operands(_block.values, x, weight, row_factor, bias, y)
        n = row_factor.shape[0]
        m = y.numel() // y.shape[-1]
        plan = launch_general(variant, m, n, self._atom)
        device = weight.device.index
        self._module.kernel(plan.kernel).launch(plan, _block, device, current_stream(device))
