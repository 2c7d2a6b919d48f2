"""Keeping the global scales of fused projections, which vLLM reduces to one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.vllm.facade import Facade
from sm70_policy.vllm.hosts.targets import expect_parameters, read
from sm70_policy.vllm.layer import SHARD_FACTORS
from sm70_policy.vllm.ledger import MARKER, Patch, everywhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def patch(source: str, module: str, owner: str, upstream: str, *, attribute: str, requires: str) -> Patch:
    """The ledger's entry for one of vLLM's classes.

    Args:
        source: Which checkpoints it concerns.
        module: Where the class is.
        owner: The class, with `process_weights_after_loading(self, layer)`.
        upstream: Where that is in vLLM's sources.
        attribute: Attribute of its instances that may be the suite's facade.
        requires: Patch that puts the facade there.
    """
    name = f"nvfp4-shard-scales-{source}"
    target = functools.partial(read, module, owner, "process_weights_after_loading")

    def check() -> None:
        expect_parameters(target(), f"{owner}.process_weights_after_loading", ["self", "layer"])

    def perform() -> None:
        wrapped = keep_shard_factors(target(), name, attribute)
        read(module, owner).process_weights_after_loading = wrapped

    return Patch(
        name=name,
        target=f"{module}.{owner}.process_weights_after_loading",
        why="vLLM reduces the global scales of fused projections to one and warns of reduced accuracy; the "
        "suite's kernels take one factor per row, so the wrapper keeps all of them. Layers of other kernels "
        "pass through",
        upstream=upstream,
        remove_when="vLLM hands a kernel the global scale of every shard",
        against=everywhere,
        read=target,
        check=check,
        perform=perform,
        requires=(requires,),
    )


def keep_shard_factors(original: Callable[..., None], name: str, attribute: str) -> Callable[..., None]:
    """Wrap a `process_weights_after_loading(self, layer)`.

    Args:
        original: vLLM's method.
        name: Name of the patch, as the mark of the wrapper.
        attribute: Attribute of `self` that may be the suite's facade.
    """

    @functools.wraps(original)
    def process_weights_after_loading(self: Any, layer: Any) -> None:
        ours = isinstance(getattr(self, attribute), Facade)
        factors = _shard_factors(layer) if ours else None
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
