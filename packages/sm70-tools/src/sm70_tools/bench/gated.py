"""silu(gate) * up of a merged projection: the suite's operator, and its linear followed by torch's silu."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.bench.cases import Shape
from sm70_tools.bench.contenders import OURS, Contender, pack
from sm70_tools.bench.peers import Peer
from sm70_tools.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from sm70_tools.bench.weights import DecodeRows, Nvfp4Weight

GATED = "gated_linear"
"""Name in the column `op`."""

SHAPES = (Shape(34816, 5120), Shape(17408, 5120), Shape(28672, 4096), Shape(14336, 4096))
"""Merged gate and up projections of the same models as the plain layers, whole and split over two ranks."""

_N_MULTIPLE = 64
_SLAB_ROWS = 1024
_TWO_STEPS_TOLERANCE = 1.5e-3
"""FP16 rounds after the projection, after silu and after the product."""


def require_gated(shapes: Iterable[Shape]) -> None:
    """Make sure that the operator takes all shapes.

    Raises:
        ArgumentError: It does not.
    """
    wrong = [str(shape) for shape in shapes if shape.n % _N_MULTIPLE]
    if wrong:
        raise ArgumentError(
            describe(
                asked=f"--op gated with {', '.join(wrong)}",
                allowed=f"N in multiples of {_N_MULTIPLE}: gate and up together",
                fix="Choose other --shapes",
            )
        )


def load_gated(weights: Sequence[Nvfp4Weight], shape: Shape) -> list[Contender]:
    """Pack the weights for the suite's operator."""
    calls = tuple(partial(_fused, *operands, shape.k) for operands in pack(weights, shape))
    decode_rows = weights[0].decode_rows
    return [Contender(OURS, "nvfp4", shape.nvfp4_bytes, calls, decode_rows, judge=gated_error)]


def _load_two_steps(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
    return Contender(
        TWO_STEPS.name,
        "nvfp4",
        shape.nvfp4_bytes,
        tuple(partial(_two_steps, *operands, shape.k) for operands in pack(weights, shape)),
        weights[0].decode_rows,
        tolerance=lambda _: _TWO_STEPS_TOLERANCE,
        judge=gated_error,
    )


TWO_STEPS = Peer("two_steps", "torch", "torch", _load_two_steps)
"""The suite's plain operator, then torch's silu and product as vLLM's native form has them."""


def _fused(blocks: Tensor, factors: Tensor, k: int, x: Tensor) -> Tensor:
    import torch

    result: Tensor = torch.ops.sm70.nvfp4_gated_linear(x, blocks, factors, None, k)
    return result


def _two_steps(blocks: Tensor, factors: Tensor, k: int, x: Tensor) -> Tensor:
    import torch

    y = torch.ops.sm70.nvfp4_linear(x, blocks, factors, None, k)
    half = y.shape[-1] // 2
    result: Tensor = torch.nn.functional.silu(y[..., :half]) * y[..., half:]
    return result


def gated_error(x: Tensor, y: Tensor, decode_rows: DecodeRows) -> float:
    """Relative error of silu(gate) * up in the Frobenius norm; NaN where y holds one.

    Args:
        x: [M, K].
        y: [M, N / 2], to be judged.
        decode_rows: The merged weight, exactly.
    """
    exact, half = x.double(), y.shape[1]
    wrong_squared, exact_squared = 0.0, 0.0
    for first in range(0, half, _SLAB_ROWS):
        last = min(first + _SLAB_ROWS, half)
        gate = exact @ decode_rows(slice(first, last)).t()
        up = exact @ decode_rows(slice(half + first, half + last)).t()
        expected = gate / (1 + (-gate).exp()) * up
        wrong_squared += float((y[:, first:last].double() - expected).square().sum())
        exact_squared += float(expected.square().sum())
    return float((wrong_squared / exact_squared) ** 0.5)
