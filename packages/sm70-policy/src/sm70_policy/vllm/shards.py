"""Keeping the global scales of fused projections, which vLLM reduces to one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.vllm.layer import SHARD_FACTORS
from sm70_policy.vllm.ledger import MARKER
from sm70_policy.vllm.nvfp4 import is_facade

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def keep_shard_factors(original: Callable[..., None], name: str) -> Callable[..., None]:
    """Wrap a `process_weights_after_loading(self, layer)` whose `self.kernel` may be the suite's facade.

    Args:
        original: vLLM's method.
        name: Name of the patch, as the mark of the wrapper.
    """

    @functools.wraps(original)
    def process_weights_after_loading(self: Any, layer: Any) -> None:
        factors = _shard_factors(layer) if is_facade(self.kernel) else None
        if factors is None:
            original(self, layer)
            return
        setattr(layer, SHARD_FACTORS, factors)
        try:
            original(self, layer)
        finally:
            delattr(layer, SHARD_FACTORS)

    setattr(process_weights_after_loading, MARKER, name)
    return process_weights_after_loading


def _shard_factors(layer: Any) -> Tensor | None:
    """Multipliers, float32, one per shard; None where the checkpoint's tensor is not there."""
    import torch

    multipliers = getattr(layer, "weight_scale_2", None)
    if multipliers is not None:
        return multipliers.data.to(torch.float32).clone()
    # compressed-tensors stores divisors.
    divisors = getattr(layer, "weight_global_scale", None)
    return None if divisors is None else 1.0 / divisors.data.to(torch.float32)
