"""Problem descriptors: what a layer asks of a kernel, frozen and validated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sm70_policy.errors import ProblemError, describe

if TYPE_CHECKING:
    from sm70_policy.formats import WeightFormat


class ActivationDtype(StrEnum):
    """Dtype of a layer's input and output, by torch's name."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


@dataclass(frozen=True)
class LinearProblem:
    """One linear layer as one rank sees it: y[M, N] = x[M, K] @ w[N, K]^T, with w quantized.

    Attributes:
        layer: Dotted name of the layer, for messages and reports.
        weight_format: Format of w.
        n: Output features of this rank.
        k: Input features of this rank.
        activation: Dtype of x and y.
        shards: Output features of each projection fused into the layer (q, k, v; gate, up). Sums to `n`.
    """

    layer: str
    weight_format: WeightFormat
    n: int
    k: int
    activation: ActivationDtype
    shards: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 1 or self.k < 1:
            raise ProblemError(
                describe(
                    asked=f"{self.layer}: a linear layer with N={self.n} and K={self.k}",
                    allowed="N >= 1 and K >= 1",
                    fix="Check the model's configuration and the tensor-parallel size",
                )
            )
        if self.shards and (sum(self.shards) != self.n or min(self.shards) < 1):
            raise ProblemError(
                describe(
                    asked=f"{self.layer}: shards {self.shards} for N={self.n}",
                    allowed="positive shard sizes that sum to N",
                    fix="Check how the layer was fused",
                )
            )

    @property
    def weight_bytes(self) -> int:
        """Bytes of codes and scales as the checkpoint stores them."""
        return self.weight_format.weight_bytes(self.n, self.k)
