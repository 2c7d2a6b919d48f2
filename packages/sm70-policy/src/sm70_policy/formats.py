"""Weight formats as data: how many bits a code has, how many codes share a scale, what the scales are."""

from __future__ import annotations

from dataclasses import dataclass

from sm70_policy.errors import ProblemError, describe


@dataclass(frozen=True)
class WeightFormat:
    """A quantized weight format of a checkpoint.

    Attributes:
        name: Short name, as used in settings and reports.
        code: What one code is, such as `e2m1`.
        code_bits: Bits of one code.
        group_size: Consecutive columns (along K) that share one scale.
        scale: What one scale is, such as `e4m3`.
        scale_bytes: Bytes of one scale.
        global_scale: Whether a float32 factor multiplies the whole tensor as well.
    """

    name: str
    code: str
    code_bits: int
    group_size: int
    scale: str
    scale_bytes: int
    global_scale: bool

    def weight_bytes(self, n: int, k: int) -> int:
        """Bytes of codes and scales of an N x K weight as the checkpoint stores it."""
        groups = -(-k // self.group_size)
        code_bytes = -(-k * self.code_bits // 8)
        return n * (code_bytes + groups * self.scale_bytes)


NVFP4 = WeightFormat(
    name="nvfp4",
    code="e2m1",
    code_bits=4,
    group_size=16,
    scale="e4m3",
    scale_bytes=1,
    global_scale=True,
)

MXFP4 = WeightFormat(
    name="mxfp4",
    code="e2m1",
    code_bits=4,
    group_size=32,
    scale="e8m0",
    scale_bytes=1,
    global_scale=False,
)

FORMATS: dict[str, WeightFormat] = {item.name: item for item in (NVFP4, MXFP4)}


def find_format(name: str) -> WeightFormat:
    """Return the format called `name`.

    Raises:
        ProblemError: The suite does not know the format; the message lists those it knows.
    """
    try:
        return FORMATS[name]
    except KeyError:
        raise ProblemError(
            describe(
                asked=f"the weight format {name!r}",
                allowed=", ".join(FORMATS),
                fix="Use a checkpoint in one of these formats",
            )
        ) from None
