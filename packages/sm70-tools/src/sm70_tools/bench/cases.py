"""What is measured: shapes, row counts, and how many weights overflow the cache. Pure arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError

CACHE_BYTES = 200_000_000
"""Independent weights of one graph together exceed this, more than three times an H200's 60 MB of L2."""

MATMUL_ROOF_FROM = 256
"""From this many rows on, a time is also set against the measured FP16 matrix product."""

MOST_COPIES = 4096
GROUP_COLUMNS = 16

_SHAPE = re.compile(r"(\d+)x(\d+)")


@dataclass(frozen=True)
class Shape:
    """A linear layer.

    Attributes:
        n: Output features.
        k: Input features.
    """

    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.n}x{self.k}"

    @property
    def nvfp4_bytes(self) -> int:
        """Bytes of the weight in a checkpoint: half a byte a code, one byte a group of 16."""
        return self.n * self.k // 2 + self.n * self.k // GROUP_COLUMNS

    @property
    def fp16_bytes(self) -> int:
        """Bytes of the same weight in FP16."""
        return 2 * self.n * self.k

    def flops(self, m: int) -> int:
        """Floating-point operations of the product with M rows."""
        return 2 * m * self.n * self.k


SHAPES = (
    *(Shape(5120, 1536), Shape(8704, 5120), Shape(5120, 4352), Shape(4096, 5120)),
    *(Shape(17408, 5120), Shape(5120, 8704), Shape(4096, 4096), Shape(14336, 4096)),
)
"""Linear layers of dense models of 8 and 27 billion parameters, whole and split over two ranks."""

ROWS = (1, 4, 8, 16, 32, 64, 512, 4096)


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Read `NxK,...`.

    Raises:
        ArgumentError: Not of that form, or a shape that cannot be measured.
    """
    shapes = []
    for part in text.split(","):
        match = _SHAPE.fullmatch(part.strip())
        shape = Shape(int(match[1]), int(match[2])) if match else None
        if shape is None or not shape.n or not shape.k or shape.k % GROUP_COLUMNS or _is_too_small(shape):
            raise ArgumentError(
                describe(
                    asked=f"--shapes with {part.strip()!r}",
                    allowed=f"NxK with K a multiple of {GROUP_COLUMNS} and N*K of at least {_least_size()}, "
                    f"since {MOST_COPIES} weights have to overflow {CACHE_BYTES} bytes of cache",
                    fix="Write it as in --shapes 4096x4096,14336x4096",
                )
            )
        shapes.append(shape)
    return tuple(dict.fromkeys(shapes))


def _is_too_small(shape: Shape) -> bool:
    return shape.n * shape.k < _least_size()


def _least_size() -> int:
    return CACHE_BYTES // MOST_COPIES * 16 // 9 + 1


def parse_rows(text: str) -> tuple[int, ...]:
    """Read row counts, `1,4,8`.

    Raises:
        ArgumentError: Not of that form, or no positive number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentError(
            describe(asked=f"--m {text!r}", allowed="positive numbers", fix="Write it as in --m 1,8,32")
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def copies(weight_bytes: int) -> int:
    """Independent weights that together exceed CACHE_BYTES; two at least."""
    return max(2, CACHE_BYTES // weight_bytes + 1)


def tolerance(m: int) -> float:
    """Largest relative error (Frobenius) of the suite's own results, for M rows.

    FP32 accumulation and one rounding to FP16 give about 2.1e-4. Many rows go through a weight decoded to
    FP16, which rounds once more, and a library's product, which may add partial sums in FP16.
    """
    return 4e-4 if m <= 64 else 1e-3
