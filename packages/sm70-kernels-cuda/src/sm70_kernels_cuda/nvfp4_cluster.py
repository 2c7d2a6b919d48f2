"""The cluster kernels of one binary, callable on torch tensors; compute capability 9.x and 10.x."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from sm70_kernels_cuda.driver import Module, PreparedLaunch
from sm70_kernels_cuda.launch_cluster import Card, ClusterPlan, choose_cluster
from sm70_kernels_cuda.operands import OPERAND_ADDRESSES, OPERAND_FIELDS, LinearKernels

if TYPE_CHECKING:
    from sm70_kernels_cuda.operands import Product


class ClusterArguments(ctypes.Structure):
    """Mirror of sm70::ClusterArguments."""

    _fields_ = (
        *OPERAND_FIELDS,
        ("overlapped", ctypes.c_int),
        ("strips_each", ctypes.c_int),
        ("clusters_plus1", ctypes.c_int),
        ("inverse_blocks", ctypes.c_float * 2),
        ("segment_shift", ctypes.c_int),
        ("received_offset", ctypes.c_int),
        ("tokens_offset", ctypes.c_int),
        ("barriers_offset", ctypes.c_int),
        ("finish_offset", ctypes.c_int),
        ("owners_offset", ctypes.c_int),
    )


class ClusterKernels(LinearKernels[ClusterPlan]):
    """The cluster kernels of a loaded binary on one kind of card."""

    def __init__(self, module: Module, card: Card) -> None:
        """Use the kernels of `module` on `card`."""
        self._module = module
        self.card = card
        # A model has few distinct sizes, and the plan is arithmetic of them alone.
        self.plan = functools.lru_cache(maxsize=1024)(functools.partial(choose_cluster, card=card))

    def prepare(
        self, chosen: ClusterPlan, m: int, n: int, k: int, device: int, *, gated: bool = False
    ) -> Product:
        """Settle everything but the operands; see `LinearKernels`."""
        arguments = ClusterArguments(
            m=m,
            n=n,
            k=k,
            gated=gated,
            overlapped=chosen.launch.overlaps_previous,
            strips_each=chosen.strips_each,
            clusters_plus1=chosen.clusters_plus1,
            inverse_blocks=chosen.inverse_blocks,
            segment_shift=chosen.segment_shift,
            received_offset=chosen.received_offset,
            tokens_offset=chosen.tokens_offset,
            barriers_offset=chosen.barriers_offset,
            finish_offset=chosen.finish_offset,
            owners_offset=chosen.owners_offset,
        )
        kernel = self._module.kernel(chosen.launch.kernel)
        return PreparedLaunch(kernel, chosen.launch, arguments, OPERAND_ADDRESSES, device).enqueue
