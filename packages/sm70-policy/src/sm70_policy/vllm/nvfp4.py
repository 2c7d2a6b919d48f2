"""NVFP4 linear layers of vLLM: the selector's wrapper, and the facade that it hands out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.capability import VOLTA
from sm70_policy.formats import NVFP4
from sm70_policy.vllm.facade import Facade, Family, Selection, linear_backend, select
from sm70_policy.vllm.ledger import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_policy.capability import Device

FAMILY = Family(NVFP4, "Sm70NvFp4LinearKernel", VOLTA, "compute capability 7.5")

_W4A4 = (
    "sm70: the checkpoint quantizes activations as well (W4A4); the suite's kernels use its weights only and "
    "keep activations in 16 bits"
)


def wrap_selector(original: Callable[..., Any], device: Callable[[], Device | None], name: str) -> Any:
    """Wrap `init_nvfp4_linear_kernel`: the suite's facade where it is wanted, else vLLM's own choice.

    Args:
        original: vLLM's selector.
        device: Returns the device of this process' platform.
        name: Name of the patch, as the mark of the wrapper.
    """

    @functools.wraps(original)
    def init_nvfp4_linear_kernel(use_a16: bool = False) -> Any:
        return select(
            FAMILY,
            device(),
            functools.partial(original, use_a16=use_a16),
            backend=linear_backend("nvfp4_w4a16" if use_a16 else "nvfp4_w4a4"),
            make=facade_class(),
            note="" if use_a16 else _W4A4,
        )

    setattr(init_nvfp4_linear_kernel, MARKER, name)
    return init_nvfp4_linear_kernel


def is_facade(kernel: object) -> bool:
    """Whether a layer's kernel object is the suite's."""
    return isinstance(kernel, facade_class())


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
