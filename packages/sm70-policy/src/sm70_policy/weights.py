"""Checks of a checkpoint's tensors, before anything is derived from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_policy.errors import WeightError, describe
from sm70_policy.formats import MXFP4, NVFP4

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.formats import WeightFormat
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import QuantizedWeight

_E8M0_NAN = 255
_REQUANTIZE = "The checkpoint is damaged or was written by a faulty quantizer; download or quantize it again"


def validate_nvfp4(problem: LinearProblem, weight: QuantizedWeight) -> None:
    """Check an NVFP4 weight against its problem.

    Args:
        problem: Gives the layer's name, N and K.
        weight: codes uint8 [N, K/2], scales float8_e4m3fn [N, K/16], row_factor float32 [N].

    Raises:
        WeightError: A dtype or shape is wrong, a scale is NaN or negative, or a row factor is not a positive
            finite number. The message names the layer. Nothing is changed.
    """
    import torch

    _check_tensors(problem, weight, NVFP4, torch.float8_e4m3fn)
    _check_scales(problem.layer, weight.scales)
    _check_factors(problem.layer, weight.row_factor)


def validate_mxfp4(problem: LinearProblem, weight: QuantizedWeight) -> None:
    """Check an MXFP4 weight against its problem.

    Args:
        problem: Gives the layer's name, N and K.
        weight: codes uint8 [N, K/2], scales uint8 [N, K/32], row_factor float32 [N].

    Raises:
        WeightError: A dtype or shape is wrong, a scale is NaN, or a row factor is not a positive finite
            number. The message names the layer. Nothing is changed.
    """
    import torch

    _check_tensors(problem, weight, MXFP4, torch.uint8)
    nan = int((weight.scales == _E8M0_NAN).sum())
    if nan:
        raise WeightError(
            describe(
                asked=f"{problem.layer}: {nan} NaN block scales of {weight.scales.numel()}",
                allowed=f"E8M0 bytes below {_E8M0_NAN}",
                fix=_REQUANTIZE,
            )
        )
    _check_factors(problem.layer, weight.row_factor)


def _check_tensors(
    problem: LinearProblem, weight: QuantizedWeight, weight_format: WeightFormat, scale_dtype: object
) -> None:
    import torch

    group = weight_format.group_size
    if problem.k % group:
        raise WeightError(
            describe(
                asked=f"{problem.layer}: K={problem.k} in {weight_format.name}",
                allowed=f"multiples of {group}, the columns that share a scale",
                fix="Check the tensor-parallel size: it must leave every rank a multiple of it",
            )
        )
    _check(problem.layer, "codes", weight.codes, torch.uint8, (problem.n, problem.k // 2))
    _check(problem.layer, "scales", weight.scales, scale_dtype, (problem.n, problem.k // group))
    _check(problem.layer, "row_factor", weight.row_factor, torch.float32, (problem.n,))


def _check(layer: str, what: str, tensor: Tensor, dtype: object, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise WeightError(
            describe(
                asked=f"{layer}: {what} of dtype {tensor.dtype} and shape {list(tensor.shape)}",
                allowed=f"dtype {dtype} and shape {list(shape)}",
                fix=_REQUANTIZE,
            )
        )


def _check_scales(layer: str, scales: Tensor) -> None:
    import torch

    raw = scales.contiguous().view(torch.uint8)
    # E4M3 has no infinity; 0x7f and 0xff are its NaNs. 0x80 is a negative zero, which is harmless.
    nan = int(((raw & 0x7F) == 0x7F).sum())
    negative = int((raw > 0x80).sum()) - int((raw == 0xFF).sum())
    if nan or negative:
        raise WeightError(
            describe(
                asked=f"{layer}: {nan} NaN and {negative} negative block scales of {raw.numel()}",
                allowed="finite block scales of 0 and above",
                fix=_REQUANTIZE,
            )
        )


def _check_factors(layer: str, factors: Tensor) -> None:
    import torch

    bad = ~(torch.isfinite(factors) & (factors > 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise WeightError(
            describe(
                asked=f"{layer}: global scale {float(factors[first])} at output row {first}",
                allowed="positive finite numbers",
                fix=_REQUANTIZE,
            )
        )
