"""Calls of an operator with all but the tensors settled, so that a repeated call costs little on the host.

They belong to the thread that prepared them, as their launches do.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from sm70_kernels_cuda.torch_internals import (
    current_stream,
    empty_strided,
    exchange_device,
    restore_device,
)

if TYPE_CHECKING:
    from sm70_kernels_cuda.operands import Product

MOST_CALLS = 4096
"""Calls that a thread keeps: of a few weights' sizes, for the many numbers of rows that a server sees."""

_FP16 = torch.float16

Call: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""From x, weight, row_factor and bias to y."""


class PreparedCalls(threading.local):
    """The calling thread's calls of one operator; the oldest make room."""

    def __init__(self) -> None:
        """Begin without any."""
        self.by_key: dict[Hashable, Call] = {}

    def keep(self, key: Hashable, call: Call) -> Call:
        """Find `call` under `key` from now on."""
        if len(self.by_key) >= MOST_CALLS:
            del self.by_key[next(iter(self.by_key))]
        self.by_key[key] = call
        return call


class PreparedLinear:
    """A product by a kernel that reads the packed weight."""

    __slots__ = ("_device", "_product", "_shape", "_strides")

    def __init__(self, product: Product, shape: tuple[int, ...], device: int) -> None:
        """Take what enqueues the product, the shape of y, and the CUDA device index."""
        self._product = product
        self._shape = shape
        self._strides: tuple[int, ...] = torch.empty(shape, device="meta").stride()
        self._device = device

    def call(self, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None) -> Tensor:
        """Enqueue it on the current stream of the device; see `Call`."""
        device = self._device
        previous = exchange_device(device)
        try:
            y: Tensor = empty_strided(self._shape, self._strides, _FP16)
            address = x.data_ptr()
            # The kernels read contiguous rows, 16 bytes at a time.
            if address % 16 or not x.is_contiguous():
                x = x.clone(memory_format=torch.contiguous_format)
                address = x.data_ptr()
            self._product(
                current_stream(device),
                weight.data_ptr(),
                address,
                y.data_ptr(),
                row_factor.data_ptr(),
                0 if bias is None else bias.data_ptr(),
            )
        finally:
            if previous != device:
                restore_device(previous)
        return y


class PreparedDense:
    """A product by a dense GEMM of the decoded weight, which is scratch."""

    __slots__ = ("_decode", "_device", "_gated", "_k", "_n", "_shape")

    def __init__(
        self,
        decode: Callable[[int, int, int, int], None],
        n: int,
        k: int,
        shape: tuple[int, ...],
        device: int,
        *,
        gated: bool,
    ) -> None:
        """Take what enqueues the decoder.

        Args:
            decode: Enqueues the decoder.
            n: Output features of the weight.
            k: Input features.
            shape: Of y.
            device: CUDA device index.
            gated: Whether y is silu(gate) * up.
        """
        self._decode = decode
        self._n = n
        self._k = k
        self._shape = shape
        self._device = device
        self._gated = gated

    def call(self, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None) -> Tensor:
        """Enqueue both on the current stream of the device; see `Call`."""
        device, k, n = self._device, self._k, self._n
        previous = exchange_device(device)
        try:
            dense: Tensor = empty_strided((n, k), (k, 1), _FP16)
            self._decode(current_stream(device), weight.data_ptr(), row_factor.data_ptr(), dense.data_ptr())
            rows = x.reshape(math.prod(self._shape[:-1]), k)
            y = torch.mm(rows, dense.t()) if bias is None else torch.addmm(bias, rows, dense.t())
            if self._gated:  # as stock vLLM computes it: each step rounds to FP16
                gate, up = y.chunk(2, dim=-1)
                y = torch.nn.functional.silu(gate) * up
        finally:
            if previous != device:
                restore_device(previous)
        return y.view(self._shape)
