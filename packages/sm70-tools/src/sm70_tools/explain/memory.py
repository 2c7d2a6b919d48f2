"""What is left of a card's memory for keys and values, and how long a context that makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_policy.capability import GIB
from sm70_tools.explain.inventory import FP16_BYTES
from sm70_tools.explain.layers import local_kv_heads

if TYPE_CHECKING:
    from sm70_tools.explain.model_config import ModelShape

GPU_MEMORY_UTILIZATION_PERCENT = 90
"""The part of the card that vLLM takes by default (`--gpu-memory-utilization 0.9`)."""

RUNTIME_ALLOWANCE_BYTES = 3 * GIB // 2
"""An assumption, not a measurement: room for activations, CUDA graphs, the CUDA context and NCCL's buffers.
What a model needs depends on `--max-num-batched-tokens` and the captured batch sizes; vLLM measures it."""

KV_BLOCK_TOKENS = 16
"""vLLM hands out the cache in blocks of this many tokens."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of one rank, in bytes, and the contexts that follow, in tokens.

    Attributes:
        card: Nominal memory of the card; the driver reports a little less.
        usable: What vLLM may take.
        linears: Linear layers in their resident form, with biases.
        others: Embeddings, norms and other tensors.
        allowance: `RUNTIME_ALLOWANCE_BYTES`.
        kv_per_token: Keys and values of one token over all layers, in FP16. Layers with a sliding window
            count as if they kept everything, so for such models the context is a lower bound.
        context: Asked context; the model's own limit when none was asked; None when neither is known.
        model_limit: Longest context that the model was made for; None when it is not known.
    """

    card: int
    usable: int
    linears: int
    others: int
    allowance: int
    kv_per_token: int
    context: int | None
    model_limit: int | None

    @property
    def left(self) -> int:
        """Bytes left for keys and values; negative when the weights alone do not fit."""
        return self.usable - self.linears - self.others - self.allowance

    @property
    def cache_tokens(self) -> int:
        """Tokens whose keys and values fit, over all requests, in whole blocks."""
        if self.kv_per_token == 0:
            return 0
        return max(0, self.left) // (self.kv_per_token * KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS

    @property
    def largest_context(self) -> int:
        """The longest context of one request: what fits, up to the model's own limit."""
        return self.cache_tokens if self.model_limit is None else min(self.cache_tokens, self.model_limit)

    @property
    def fits(self) -> bool:
        """Whether the weights fit with a cache for the context (for any token when none is known)."""
        return self.cache_tokens >= (self.context or 1)


def estimate(
    shape: ModelShape, *, card: int, tp: int, linears: int, others: int, context: int | None
) -> MemoryEstimate:
    """Put a rank's memory together; see `MemoryEstimate` for the units."""
    kv_per_token = 2 * shape.attention_layers * local_kv_heads(shape, tp) * shape.head_dim * FP16_BYTES
    return MemoryEstimate(
        card=card,
        usable=card * GPU_MEMORY_UTILIZATION_PERCENT // 100,
        linears=linears,
        others=others,
        allowance=RUNTIME_ALLOWANCE_BYTES,
        kv_per_token=kv_per_token,
        context=context or shape.max_context,
        model_limit=shape.max_context,
    )
