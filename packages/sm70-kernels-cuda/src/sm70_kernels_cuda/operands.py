"""The operands that every linear kernel takes, as the kernels read them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

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


class LinearArguments(ctypes.Structure):
    """Mirror of sm70::LinearArguments."""

    _fields_ = OPERAND_FIELDS


def fill_operands(
    values: ctypes.Structure, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, y: Tensor
) -> None:
    """Write addresses and sizes into a structure that begins with `OPERAND_FIELDS`.

    Args:
        values: The structure.
        x: FP16 [..., K], contiguous and 16-byte aligned.
        weight: uint8, `nvfp4_block`.
        row_factor: float32 [N].
        bias: FP16 [N] or None.
        y: FP16 [..., N], contiguous; or [..., N / 2], which asks for silu(gate) * up.
    """
    n, columns = row_factor.shape[0], y.shape[-1]
    values.weight = weight.data_ptr()
    values.x = x.data_ptr()
    values.y = y.data_ptr()
    values.row_factor = row_factor.data_ptr()
    values.bias = None if bias is None else bias.data_ptr()
    values.m = y.numel() // columns
    values.n = n
    values.k = x.shape[-1]
    values.gated = columns != n
