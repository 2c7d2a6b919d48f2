"""How results are judged: against float64, by twice the error of an FP16 product of the same weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch

from nvfp4_oracle import Checkpoint
from sm70_kernels_cuda.launch import TOKEN_TILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

FP16_SUM_ERROR = 2.0**-11
"""Half an ulp of FP16, relative: what rounding an exact result costs."""


@dataclass(frozen=True)
class Errors:
    """Largest and root-mean-square distance from the oracle."""

    largest: float
    rms: float


def errors(result: NDArray[Any], oracle: NDArray[np.float64]) -> Errors:
    """Measure `result` against the oracle. A NaN anywhere makes both infinite."""
    difference = np.abs(result.astype(np.float64) - oracle)
    if np.isnan(difference).any():
        return Errors(np.inf, np.inf)
    return Errors(float(difference.max(initial=0.0)), float(np.sqrt(np.mean(difference**2))))


def assert_within_twice(
    result: NDArray[Any], baseline: NDArray[Any], oracle: NDArray[np.float64], context: str
) -> None:
    """Fail unless the result's error is at most twice the FP16 baseline's, in maximum and RMS.

    A floor of one FP16 rounding of the largest value keeps tiny outputs, where the baseline may be exact by
    luck, from failing.
    """
    ours, theirs = errors(result, oracle), errors(baseline, oracle)
    scale = float(np.abs(oracle).max(initial=0.0))
    largest = max(2 * theirs.largest, scale * FP16_SUM_ERROR)
    rms = max(2 * theirs.rms, scale * FP16_SUM_ERROR / 4)
    if ours.largest > largest or ours.rms > rms:
        worst = np.unravel_index(
            np.argmax(np.nan_to_num(np.abs(result.astype(np.float64) - oracle), nan=np.inf)), oracle.shape
        )
        message = (
            f"{context}: max error {ours.largest:.3e} (allowed {largest:.3e}), RMS {ours.rms:.3e} (allowed "
            f"{rms:.3e}); worst at {tuple(int(i) for i in worst)}: {result[worst]} against {oracle[worst]}"
        )
        raise AssertionError(message)


class AnyVariant(Protocol):
    """A compiled kernel that takes up to `8 * token_tiles` rows."""

    @property
    def kernel(self) -> str: ...
    @property
    def token_tiles(self) -> int: ...


V = TypeVar("V", bound=AnyVariant)
Runner = Callable[[V, Checkpoint, "NDArray[np.float16]", "NDArray[np.float16] | None"], "NDArray[np.float16]"]
"""Runs a kernel on a poisoned, guarded output: (variant, weight, x [M, K], bias [N] or None) to y [M, N]."""


def check_one_hot(run: Runner[V], variant: V, weight: Checkpoint) -> None:
    """Feed the identity, as many rows as the variant takes: y must be the decoded weight, bit for bit."""
    _, k = weight.shape
    expected = weight.rounded()
    identity = np.eye(k, dtype=np.float16)
    rows = variant.token_tiles * TOKEN_TILE
    for start in range(0, k, rows):
        result = run(variant, weight, identity[start : start + rows], None)
        wanted = expected[:, start : start + rows].T
        same = result.view(np.uint16) == wanted.view(np.uint16)
        # A negative zero times a one plus zeros is a positive zero.
        same |= (result == 0) & (wanted == 0)
        assert same.all(), f"{variant.kernel}: columns {start} on: {np.argwhere(~same)[:4].tolist()}"


def check_dense(
    run: Runner[V], variant: V, weight: Checkpoint, m: int, rng: np.random.Generator, *, with_bias: bool
) -> None:
    """Compare M random rows with float64, and a second run with the first."""
    n, k = weight.shape
    x = rng.standard_normal((m, k)).astype(np.float16)
    bias = rng.standard_normal(n).astype(np.float16) if with_bias else None
    result = run(variant, weight, x, bias)
    offset = 0.0 if bias is None else bias.astype(np.float64)
    oracle = x.astype(np.float64) @ weight.values().T + offset
    baseline = fp16_product(x, weight.values().astype(np.float16), bias)
    context = f"{variant.kernel} M={m} N={n} K={k} bias={with_bias}"
    assert_within_twice(result, baseline, oracle, context)
    again = run(variant, weight, x, bias)
    assert np.array_equal(result.view(np.uint16), again.view(np.uint16)), f"{context}: two runs differ"


def fp16_product(
    x: NDArray[np.float16], w: NDArray[np.float16], bias: NDArray[np.float16] | None
) -> NDArray[np.float16]:
    """Return torch's FP16 product of the dequantized weight: the baseline of the error rule."""
    result = torch.nn.functional.linear(
        torch.from_numpy(x), torch.from_numpy(w), None if bias is None else torch.from_numpy(bias)
    )
    return np.asarray(result.numpy())
