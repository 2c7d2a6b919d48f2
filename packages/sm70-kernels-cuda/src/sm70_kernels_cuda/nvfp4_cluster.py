"""The cluster kernels of one binary, callable on torch tensors; compute capability 9.x and 10.x."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from sm70_kernels_cuda.driver import ArgumentBlock, Module, current_stream
from sm70_kernels_cuda.launch_cluster import Card, ClusterPlan, choose_cluster
from sm70_kernels_cuda.operands import OPERAND_FIELDS, fill_operands

if TYPE_CHECKING:
    from torch import Tensor


class ClusterArguments(ctypes.Structure):
    """Mirror of sm70::ClusterArguments."""

    _fields_ = (
        *OPERAND_FIELDS,
        ("overlapped", ctypes.c_int),
        ("strips_each", ctypes.c_int),
        ("clusters_plus1", ctypes.c_int),
        ("received_offset", ctypes.c_int),
        ("tokens_offset", ctypes.c_int),
        ("barriers_offset", ctypes.c_int),
        ("owners_offset", ctypes.c_int),
    )


_block = ArgumentBlock(ClusterArguments)


class ClusterKernels:
    """The cluster kernels of a loaded binary on one kind of card."""

    def __init__(self, module: Module, card: Card) -> None:
        """Use the kernels of `module` on `card`."""
        self._module = module
        # A model has few distinct sizes, and the plan is arithmetic of them alone.
        self.plan = functools.lru_cache(maxsize=1024)(functools.partial(choose_cluster, card=card))

    def run(
        self,
        plan: ClusterPlan,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Enqueue one product on the current stream of the tensors' device, which must be current.

        Args:
            plan: From `plan_cluster`, for these sizes.
            x: FP16 [..., K], contiguous and 16-byte aligned.
            weight: uint8, `nvfp4_block`.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or, for silu(gate) * up and a plan for that, [..., N / 2], contiguous; written
                completely.
        """
        values = _block.values
        fill_operands(values, x, weight, row_factor, bias, y)
        values.overlapped = plan.launch.overlaps_previous
        values.strips_each, values.clusters_plus1 = plan.strips_each, plan.clusters_plus1
        values.received_offset = plan.received_offset
        values.tokens_offset = plan.tokens_offset
        values.barriers_offset = plan.barriers_offset
        values.owners_offset = plan.owners_offset
        device = weight.device.index
        self._module.kernel(plan.launch.kernel).launch(plan.launch, _block, device, current_stream(device))
