"""NVFP4 linear layers: the family; the selector's wrapper and the facade of a vLLM with kernel objects."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.capability import VOLTA
from sm70_policy.formats import NVFP4
from sm70_policy.vllm import engine
from sm70_policy.vllm.facade import Facade, Family, Selection, select
from sm70_policy.vllm.ledger import MARKER
from sm70_policy.vllm.requests import linear_backend_request

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILY = Family(NVFP4, "Sm70NvFp4LinearKernel", VOLTA, "compute capability 7.5")
"""Alike in every vLLM that the suite knows."""

W4A4 = (
    "sm70: vLLM would quantize activations as well (W4A4); the suite's kernels use the weights only and keep "
    "activations in 16 bits"
)
"""What is said once where vLLM itself would quantize activations."""


def wrap_selector(original: Callable[..., Any], name: str) -> Any:
    """Wrap `init_nvfp4_linear_kernel`: the suite's facade where it is wanted, else vLLM's own choice.

    Args:
        original: vLLM's selector.
        name: Name of the patch, as the mark of the wrapper.
    """

    @functools.wraps(original)
    def init_nvfp4_linear_kernel(use_a16: bool = False) -> Any:
        return select(
            FAMILY,
            engine.own_device(),
            functools.partial(original, use_a16=use_a16),
            request=linear_backend_request("nvfp4_w4a16" if use_a16 else "nvfp4_w4a4"),
            make=facade_class(),
            note="" if use_a16 else W4A4,
        )

    setattr(init_nvfp4_linear_kernel, MARKER, name)
    return init_nvfp4_linear_kernel


@functools.cache
def facade_class() -> type[Any]:
    """The facade's class, derived from vLLM's base class when vLLM is there to derive from."""
    from vllm.model_executor.kernels.linear import NvFp4LinearKernel, NvFp4LinearLayerConfig

    class Sm70NvFp4LinearKernel(Facade, NvFp4LinearKernel):
        """NVFP4 kernel of the sm70 suite; which one runs is decided when the weights are loaded."""

        def __init__(self, selection: Selection) -> None:
            super().__init__(NvFp4LinearLayerConfig())
            self.begin(selection)

    return Sm70NvFp4LinearKernel
