"""MXFP4 by its definition, in numpy and float64. Shares no code with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nvfp4_oracle import Checkpoint, e2m1

if TYPE_CHECKING:
    from nvfp4_oracle import Bytes, Float64


def e8m0(byte: Bytes) -> Float64:
    """Value of each byte: a power of two with bias 127; 255 is NaN."""
    return np.asarray(np.where(byte == 255, np.nan, 2.0 ** (byte.astype(np.float64) - 127)), dtype=np.float64)


@dataclass(frozen=True)
class MxCheckpoint(Checkpoint):
    """An MXFP4 weight as a checkpoint stores it; `scales` is uint8 [N, K/32], E8M0 bytes."""

    def block_values(self) -> Float64:
        n, k = self.shape
        nibbles = np.empty((n, k), np.uint8)
        nibbles[:, 0::2] = self.codes & 15
        nibbles[:, 1::2] = self.codes >> 4
        return np.asarray(e2m1(nibbles) * np.repeat(e8m0(self.scales), 32, axis=1), dtype=np.float64)

    def rounded(self) -> np.ndarray:
        """The weight rounded once to FP16."""
        with np.errstate(over="ignore"):
            return np.asarray(self.values().astype(np.float16))


def random_mx(rng: np.random.Generator, n: int, k: int, *, spread: int = 6) -> MxCheckpoint:
    """Random codes; scales of a row within `spread` octaves, near 2^-8; a tenth of the groups is zeros.

    The scales of zero groups are any bytes but NaN. One row in eight is all zeros.
    """
    codes = rng.integers(0, 256, (n, k // 2), dtype=np.uint8)
    base = rng.integers(112, 124, (n, 1))
    scales = (base - rng.integers(0, spread + 1, (n, k // 32))).astype(np.uint8)
    dead = (rng.random((n, k // 32)) < 0.1) | (rng.random((n, 1)) < 0.125)
    signs = rng.choice(np.array([0x00, 0x88, 0x80, 0x08], np.uint8), (n, k // 2))
    codes = np.where(np.repeat(dead, 16, axis=1), signs, codes)
    scales = np.where(dead, rng.integers(0, 255, scales.shape, dtype=np.uint8), scales)
    return MxCheckpoint(codes, scales, np.ones(n, np.float32))


def every_code_and_exponent() -> MxCheckpoint:
    """All 16 codes under all 25 exponents that a row may hold: a row for each, beside the largest one."""
    rows = 25
    codes = np.zeros((rows, 64), np.uint8)
    codes[:, :8] = np.array([low | (low + 1) << 4 for low in range(0, 16, 2)], np.uint8)
    codes[:, 16] = 0x07
    scales = np.zeros((rows, 4), np.uint8)
    scales[:, 1] = 124
    scales[:, 0] = 124 - np.arange(rows)
    scales[:, 2:] = 254
    return MxCheckpoint(codes, scales, np.ones(rows, np.float32))
