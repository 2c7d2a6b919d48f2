"""How silu(gate) * up is judged: weights merge a gate and an up projection of N / 2 rows each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nvfp4_checks import assert_within_twice, fp16_product
from nvfp4_oracle import Checkpoint
from sm70_kernels_cuda.launch import TOKEN_TILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_checks import Runner, V

SATURATED = 32.0
"""From here on silu(x) is x in FP32, and silu(-x) too small for FP16: 1 + exp(-32) rounds to 1."""


def gated(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """silu(gate) * up of [M, N] results of the merged product, in float64."""
    gate, up = np.split(sums, 2, axis=-1)
    with np.errstate(over="ignore"):
        return np.asarray(gate / (1.0 + np.exp(-gate)) * up)


def two_steps(
    x: NDArray[np.float16], w: NDArray[np.float16], bias: NDArray[np.float16] | None
) -> NDArray[np.float16]:
    """What torch makes of the dequantized weight in FP16: the baseline of the error rule."""
    gate, up = torch.from_numpy(fp16_product(x, w, bias)).chunk(2, dim=-1)
    return np.asarray((torch.nn.functional.silu(gate) * up).numpy())


def check_gated_dense(
    run: Runner[V], variant: V, weight: Checkpoint, m: int, rng: np.random.Generator, *, with_bias: bool
) -> None:
    """Compare M random rows with float64, and a second run with the first."""
    n, k = weight.shape
    x = rng.standard_normal((m, k)).astype(np.float16)
    bias = rng.standard_normal(n).astype(np.float16) if with_bias else None
    result = run(variant, weight, x, bias)
    assert_gated(result, weight, x, bias, f"{variant.kernel} M={m} N={n} K={k} bias={with_bias}")
    again = run(variant, weight, x, bias)
    assert np.array_equal(result.view(np.uint16), again.view(np.uint16)), f"{variant.kernel}: two runs differ"


def assert_gated(
    result: NDArray[Any],
    weight: Checkpoint,
    x: NDArray[np.float16],
    bias: NDArray[np.float16] | None,
    context: str,
) -> None:
    """Fail unless the error is at most twice that of torch's two steps in FP16."""
    assert result.shape == (*x.shape[:-1], weight.shape[0] // 2)
    offset = 0.0 if bias is None else bias.astype(np.float64)
    oracle = gated(x.astype(np.float64) @ weight.values().T + offset)
    assert_within_twice(result, two_steps(x, weight.values().astype(np.float16), bias), oracle, context)


def saturating_checkpoint(
    rng: np.random.Generator, n: int, k: int, scale_bytes: NDArray[np.uint8]
) -> Checkpoint:
    """Every weight of the gate is zero or saturates silu; all factors are powers of two, no two rows' alike.

    Args:
        rng: Source of randomness.
        n: Rows of gate and up together.
        k: Input features.
        scale_bytes: Of 1 to 128, for groups of 16 columns.
    """
    exponents = np.where(np.arange(n) < n // 2, rng.integers(6, 8, n), rng.integers(-12, -10, n))
    return Checkpoint(
        codes=rng.integers(0, 256, (n, k // 2), dtype=np.uint8),
        scales=rng.choice(scale_bytes, (n, k // 16)),
        row_factor=(2.0**exponents).astype(np.float32),
    )


def check_gated_one_hot(run: Runner[V], variant: V, weight: Checkpoint) -> None:
    """Feed the identity: y must be max(gate, 0) * up of the decoded weight, rounded once, bit for bit.

    Args:
        run: Runs the kernel.
        variant: The kernel.
        weight: Of `saturating_checkpoint`.
    """
    _, k = weight.shape
    gate, up = np.split(weight.values(), 2)
    assert (np.abs(gate[gate != 0]) >= SATURATED).all()
    expected = (np.maximum(gate, 0.0) * up).astype(np.float16)
    assert np.isfinite(expected).all()
    identity = np.eye(k, dtype=np.float16)
    rows = variant.token_tiles * TOKEN_TILE
    for start in range(0, k, rows):
        result = run(variant, weight, identity[start : start + rows], None)
        wanted = expected[:, start : start + rows].T
        same = (result.view(np.uint16) == wanted.view(np.uint16)) | ((result == 0) & (wanted == 0))
        assert same.all(), f"{variant.kernel}: columns {start} on: {np.argwhere(~same)[:4].tolist()}"


def check_gated_range(run: Runner[V], variant: V) -> None:
    """Gates from far below to far above what FP16 holds: no NaN, no early infinity, the limits of silu.

    Codes are zero but for one column: x of that column and the biases make gate and up.
    """
    n, half = 192, 96
    weight = Checkpoint(
        codes=np.zeros((n, 64), np.uint8),
        scales=np.full((n, 8), 0x38, np.uint8),  # 1
        row_factor=np.ones(n, np.float32),
    )
    weight.codes[:half, 0] = 0x05  # 3 in column 0 of every gate
    bias = np.ones(n, np.float16)
    bias[:half] = np.linspace(-120, 120, half)
    bias[half:] = 2.0**-6
    x = np.zeros((3, 128), np.float16)
    x[1:, 0] = (60000, -60000)  # beyond FP16 once multiplied
    result = run(variant, weight, x, bias)
    gate = bias[:half].astype(np.float64) + 3 * x[:, :1].astype(np.float64)
    oracle = gated(
        np.concatenate([gate, np.broadcast_to(bias[half:].astype(np.float64), gate.shape)], axis=-1)
    )
    assert np.isfinite(result).all()
    assert np.array_equal(result[2], np.zeros(half, np.float16))
    np.testing.assert_allclose(result.astype(np.float64), oracle, rtol=2.0**-10, atol=2.0**-24)
