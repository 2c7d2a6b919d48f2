"""NVFP4 by its definition, in numpy and float64. Shares no code with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Bytes = NDArray[np.uint8]


def e2m1(code: Bytes) -> Float64:
    """Value of each 4-bit code: sign, two exponent bits with bias 1, one mantissa bit."""
    sign = np.where(code & 8, -1.0, 1.0)
    exponent = ((code >> 1) & 3).astype(np.int64)
    mantissa = (code & 1).astype(np.float64)
    magnitude = np.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2.0 ** (exponent - 1))
    return np.asarray(sign * magnitude, dtype=np.float64)


def e4m3(byte: Bytes) -> Float64:
    """Value of each byte: sign, four exponent bits with bias 7, three mantissa bits, no infinity."""
    sign = np.where(byte & 0x80, -1.0, 1.0)
    exponent = ((byte >> 3) & 15).astype(np.int64)
    mantissa = (byte & 7).astype(np.float64)
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return np.asarray(np.where((byte & 0x7F) == 0x7F, np.nan, sign * magnitude), dtype=np.float64)


@dataclass(frozen=True)
class Checkpoint:
    """An NVFP4 weight as a checkpoint stores it.

    Attributes:
        codes: uint8 [N, K/2], low nibble first.
        scales: uint8 [N, K/16], E4M3 bytes.
        row_factor: float32 [N].
    """

    codes: Bytes
    scales: Bytes
    row_factor: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def block_values(self) -> Float64:
        """Code times block scale, [N, K]; exact."""
        n, k = self.shape
        nibbles = np.empty((n, k), np.uint8)
        nibbles[:, 0::2] = self.codes & 15
        nibbles[:, 1::2] = self.codes >> 4
        return np.asarray(e2m1(nibbles) * np.repeat(e4m3(self.scales), 16, axis=1), dtype=np.float64)

    def values(self) -> Float64:
        """The weight, [N, K]."""
        return np.asarray(self.block_values() * self.row_factor.astype(np.float64)[:, None], dtype=np.float64)

    def rounded(self) -> NDArray[np.float16]:
        """The weight as an FP32 product rounded once to FP16: what a one-hot activation must return."""
        product = self.block_values().astype(np.float32) * self.row_factor[:, None]
        return np.asarray(product.astype(np.float16))


def random_checkpoint(rng: np.random.Generator, n: int, k: int, *, factor: float | None = None) -> Checkpoint:
    """Random codes, block scales over the whole E4M3 range with most in its middle, row factors around 1e-2.

    Args:
        rng: Source of randomness.
        n: Output features.
        k: Input features, a multiple of 16.
        factor: The row factor of every row; random ones when None.
    """
    scales = rng.integers(0x20, 0x48, (n, k // 16), dtype=np.uint8)
    anywhere = rng.random((n, k // 16)) < 0.05
    scales[anywhere] = rng.integers(0, 0x7F, int(anywhere.sum()), dtype=np.uint8)
    factors = rng.uniform(0.002, 0.02, n) if factor is None else np.full(n, factor)
    return Checkpoint(
        codes=rng.integers(0, 256, (n, k // 2), dtype=np.uint8),
        scales=scales,
        row_factor=factors.astype(np.float32),
    )


def every_code_and_scale() -> Checkpoint:
    """All 16 codes under every finite non-negative scale: 127 rows of one 128-column weight."""
    nibbles = np.tile(np.arange(16, dtype=np.uint8), (127, 8))
    return Checkpoint(
        codes=(nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).astype(np.uint8),
        scales=np.repeat(np.arange(127, dtype=np.uint8)[:, None], 8, axis=1),
        row_factor=np.ones(127, np.float32),
    )
