"""The warpgroup kernels of one binary, callable on torch tensors; compute capability 9.0."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from sm70_kernels_cuda.driver import ArgumentBlock, Module, current_stream
from sm70_kernels_cuda.launch_warpgroup import (
    MOST_SPLIT,
    WARPGROUP_VARIANTS,
    choose_warpgroup,
    plan_warpgroup,
)
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS
from sm70_kernels_cuda.operands import OPERAND_FIELDS, fill_operands

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_kernels_cuda.launch_cluster import Card
    from sm70_kernels_cuda.launch_warpgroup import WarpgroupPlan


class WarpgroupArguments(ctypes.Structure):
    """Mirror of sm70::WarpgroupArguments."""

    _fields_ = (
        *OPERAND_FIELDS,
        ("token_blocks", ctypes.c_int),
        ("stages", ctypes.c_int),
        ("received_offset", ctypes.c_int),
        ("barriers_offset", ctypes.c_int),
    )


class PackTokensArguments(ctypes.Structure):
    """Mirror of sm70::PackTokensArguments."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("packed", ctypes.c_void_p),
        ("m", ctypes.c_int),
        ("k", ctypes.c_int),
        ("block_tokens", ctypes.c_int),
    )


_block = ArgumentBlock(WarpgroupArguments)
_pack_block = ArgumentBlock(PackTokensArguments)


class WarpgroupKernels:
    """The warpgroup kernels of a loaded binary on one kind of card."""

    def __init__(self, module: Module, card: Card) -> None:
        """Use the kernels of `module` on `card`, which `with_clusters` has completed."""
        self._module = module
        # A model has few distinct sizes, and the plan is arithmetic of them alone.
        self.plan = functools.lru_cache(maxsize=1024)(functools.partial(choose_warpgroup, card=card))

    def run(
        self,
        plan: WarpgroupPlan,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Enqueue one product on the current stream of the tensors' device, which must be current.

        Args:
            plan: For these sizes.
            x: FP16 [..., K], contiguous and 16-byte aligned.
            weight: uint8, `nvfp4_block`.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or, for silu(gate) * up, [..., N / 2], contiguous; written completely.
        """
        device = weight.device.index
        stream = current_stream(device)
        packed = torch.empty(plan.packed_bytes, dtype=torch.uint8, device=weight.device)
        values = _block.values
        fill_operands(values, x, weight, row_factor, bias, y)
        pack = _pack_block.values
        pack.x, pack.packed = values.x, packed.data_ptr()
        pack.m, pack.k, pack.block_tokens = values.m, values.k, plan.block_tokens
        self._module.kernel(plan.pack.kernel).launch(plan.pack, _pack_block, device, stream)
        values.x = pack.packed
        values.token_blocks, values.stages = plan.token_blocks, plan.stages
        values.received_offset, values.barriers_offset = plan.received_offset, plan.barriers_offset
        self._module.kernel(plan.launch.kernel).launch(plan.launch, _block, device, stream)


def with_clusters(card: Card, module: Module, device: int) -> Card:
    """The card with what the driver says of its clusters; the device must be current."""
    clusters = {}
    for variant in {item.resident: item for item in WARPGROUP_VARIANTS}.values():
        for split in range(2, MOST_SPLIT + 1):
            plan = plan_warpgroup(variant, split, 1, variant.strip, MOST_SPLIT * BLOCK_COLUMNS, card)
            if plan is None:
                continue
            launch = replace(plan.launch, overlaps_previous=False)
            clusters[variant.resident, split] = module.kernel(launch.kernel).resident_clusters(launch, device)
    return replace(card, clusters=clusters)
