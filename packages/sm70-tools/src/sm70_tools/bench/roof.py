"""The two roofs that times are set against, measured on the same card in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sm70_tools.bench.timing import interleave

if TYPE_CHECKING:
    from sm70_tools.bench.timing import Engine

READ_BYTES = 1 << 32
MATMUL_SIZE = 8192
ROUNDS = 10


@dataclass(frozen=True)
class Roofs:
    """Measured limits of a card.

    Attributes:
        read_gbps: GB/s of reading, by torch's sum of int64 over 4 GiB.
        matmul_tflops: TFLOP/s of an 8192^3 FP16 product; None where no row count calls for it.
    """

    read_gbps: float
    matmul_tflops: float | None = None

    def read_share(self, nbytes: int, us: float) -> float:
        """Bandwidth of reading so many bytes in so many microseconds, as a share of the read roof."""
        return nbytes / us / 1e3 / self.read_gbps

    def matmul_share(self, flops: int, us: float) -> float | None:
        """Rate of so many operations as a share of the matrix product's, where that was measured."""
        return None if self.matmul_tflops is None else flops / us / 1e6 / self.matmul_tflops

    def __str__(self) -> str:
        product = "" if self.matmul_tflops is None else f", multiplies at {self.matmul_tflops:.1f} TFLOP/s"
        return f"reads {self.read_gbps:.0f} GB/s{product}"


def measure_roofs(
    engine: Engine, *, matmul: bool, read_bytes: int = READ_BYTES, size: int = MATMUL_SIZE
) -> Roofs:
    """Measure the roofs.

    Args:
        engine: Runs the calls.
        matmul: Whether the matrix product is needed.
        read_bytes: Bytes to read; a multiple of 8, many times the cache.
        size: M, N and K of the product.
    """
    import torch

    # Random bytes: on zeros a card draws less power and may clock higher.
    source = torch.empty(read_bytes, dtype=torch.uint8, device=engine.device).random_().view(torch.int64)
    read_us = _median_us(engine, partial(torch.sum, source))
    del source
    read_gbps = read_bytes / read_us / 1e3
    if not matmul:
        engine.release()
        return Roofs(read_gbps)
    x = torch.randn(size, size, dtype=torch.float16, device=engine.device)
    w = torch.randn_like(x)
    product_us = _median_us(engine, partial(torch.mm, x, w))
    del x, w
    engine.release()
    return Roofs(read_gbps, 2 * size**3 / product_us / 1e6)


def _median_us(engine: Engine, call: Callable[[], object]) -> float:
    return interleave({"roof": engine.capture([call])}, ROUNDS)["roof"].median
