"""The warpgroup kernels of one binary, callable on torch tensors; compute capability 9.0."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from sm70_kernels_cuda.driver import Module, PreparedLaunch
from sm70_kernels_cuda.launch_warpgroup import (
    MOST_SPLIT,
    WARPGROUP_VARIANTS,
    WarpgroupPlan,
    choose_warpgroup,
    plan_warpgroup,
)
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS
from sm70_kernels_cuda.operands import OPERAND_ADDRESSES, OPERAND_FIELDS, LinearKernels
from sm70_kernels_cuda.torch_internals import empty_strided

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch_cluster import Card
    from sm70_kernels_cuda.operands import Product


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


_PACK_ADDRESSES = 2


class WarpgroupKernels(LinearKernels[WarpgroupPlan]):
    """The warpgroup kernels of a loaded binary on one kind of card."""

    def __init__(self, module: Module, card: Card) -> None:
        """Use the kernels of `module` on `card`, which `with_clusters` has completed."""
        self._module = module
        self.card = card
        # A model has few distinct sizes, and the plan is arithmetic of them alone.
        self.plan = functools.lru_cache(maxsize=1024)(functools.partial(choose_warpgroup, card=card))

    def prepare(
        self, chosen: WarpgroupPlan, m: int, n: int, k: int, device: int, *, gated: bool = False
    ) -> Product:
        """Settle everything but the operands; see `LinearKernels`. The result enqueues two kernels."""
        pack = PreparedLaunch(
            self._module.kernel(chosen.pack.kernel),
            chosen.pack,
            PackTokensArguments(m=m, k=k, block_tokens=chosen.block_tokens),
            _PACK_ADDRESSES,
            device,
        ).enqueue
        multiply = PreparedLaunch(
            self._module.kernel(chosen.launch.kernel),
            chosen.launch,
            WarpgroupArguments(
                m=m,
                n=n,
                k=k,
                gated=gated,
                token_blocks=chosen.token_blocks,
                stages=chosen.stages,
                received_offset=chosen.received_offset,
                barriers_offset=chosen.barriers_offset,
            ),
            OPERAND_ADDRESSES,
            device,
        ).enqueue
        packed_bytes = chosen.packed_bytes

        def product(stream: int, weight: int, x: int, y: int, row_factor: int, bias: int) -> None:
            packed = empty_strided((packed_bytes,), (1,), torch.uint8)
            address = packed.data_ptr()
            pack(stream, x, address)
            multiply(stream, weight, address, y, row_factor, bias)

        return product


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
