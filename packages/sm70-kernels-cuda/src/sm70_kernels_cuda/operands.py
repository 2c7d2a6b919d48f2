"""The operands that every linear kernel takes, as the kernels read them, and products prepared for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from sm70_kernels_cuda.torch_internals import current_stream

if TYPE_CHECKING:
    from torch import Tensor

OPERAND_FIELDS = (
    ("weight", ctypes.c_void_p),
    ("x", ctypes.c_void_p),
    ("y", ctypes.c_void_p),
    ("row_factor", ctypes.c_void_p),
    ("bias", ctypes.c_void_p),
    ("m", ctypes.c_int),
    ("n", ctypes.c_int),
    ("k", ctypes.c_int),
    ("gated", ctypes.c_int),
)
OPERAND_ADDRESSES = 5
"""How many of `OPERAND_FIELDS` are addresses; the sizes are settled when a launch is prepared."""


class LinearArguments(ctypes.Structure):
    """Mirror of sm70::LinearArguments."""

    _fields_ = OPERAND_FIELDS


Product = Callable[[int, int, int, int, int, int], None]
"""Enqueues one product of settled sizes: stream, then the addresses of `OPERAND_FIELDS`; 0 for no bias.

x is contiguous and 16-byte aligned, the device current. It belongs to the thread that prepared it.
"""


Chosen = TypeVar("Chosen")
"""What says which kernel of a family runs: its variant, or its plan for given sizes."""


class LinearKernels(Generic[Chosen]):
    """Kernels of one family in a loaded binary, callable on torch tensors.

    Every call enqueues on the current stream of its tensors' device, which must be the current device.
    Nothing is kept between calls: scratch belongs to the invocation.
    """

    def prepare(self, chosen: Chosen, m: int, n: int, k: int, device: int, *, gated: bool = False) -> Product:
        """Settle everything but the operands.

        Args:
            chosen: Which kernel.
            m: Rows of x, 1 or more.
            n: Output features.
            k: Input features.
            device: CUDA device index.
            gated: Whether w is a merged gate and up projection, the gate first, and y is silu(gate) * up of
                half the width. N is a multiple of 64 then, and the choice, if it depends on this, for it.

        Raises:
            DriverError: The binary or the device cannot run it.
        """
        raise NotImplementedError

    def run(
        self,
        chosen: Chosen,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Prepare and enqueue one product.

        Args:
            chosen: Which kernel.
            x: FP16 [..., K], contiguous and 16-byte aligned.
            weight: uint8, in the layout of these kernels.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or, for silu(gate) * up, [..., N / 2], contiguous; written completely.
        """
        n, columns, device = row_factor.shape[0], y.shape[-1], weight.device.index
        m, k = y.numel() // columns, x.shape[-1]
        self.prepare(chosen, m, n, k, device, gated=columns != n)(
            current_stream(device),
            weight.data_ptr(),
            x.data_ptr(),
            y.data_ptr(),
            row_factor.data_ptr(),
            0 if bias is None else bias.data_ptr(),
        )
