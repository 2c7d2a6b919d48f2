"""The cluster kernels of one binary, callable on torch tensors; compute capability 9.0 and up."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from sm70_kernels_cuda.driver import ArgumentBlock, Module, current_stream
from sm70_kernels_cuda.launch_cluster import Card, ClusterPlan, choose_cluster

if TYPE_CHECKING:
    from torch import Tensor


class ClusterArguments(ctypes.Structure):
    """Mirror of sm70::ClusterArguments."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("row_factor", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("m", ctypes.c_int),
        ("n", ctypes.c_int),
        ("k", ctypes.c_int),
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
            y: FP16 [..., N], contiguous; written completely.
        """
        n = row_factor.shape[0]
        values = _block.values
        values.weight = weight.data_ptr()
        values.x = x.data_ptr()
        values.y = y.data_ptr()
        values.row_factor = row_factor.data_ptr()
        values.bias = None if bias is None else bias.data_ptr()
        values.m, values.n, values.k = y.numel() // n, n, x.shape[-1]
        values.overlapped = plan.launch.overlaps_previous
        values.strips_each, values.clusters_plus1 = plan.strips_each, plan.clusters_plus1
        values.received_offset = plan.received_offset
        values.tokens_offset = plan.tokens_offset
        values.barriers_offset = plan.barriers_offset
        values.owners_offset = plan.owners_offset
        device = weight.device.index
        self._module.kernel(plan.launch.kernel).launch(plan.launch, _block, device, current_stream(device))
