"""MXFP4 linear layers: the family; the selector's wrapper and the facade of a vLLM with kernel objects."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.capability import SM7X
from sm70_policy.formats import MXFP4
from sm70_policy.vllm import engine
from sm70_policy.vllm.facade import Facade, Family, Selection, select
from sm70_policy.vllm.ledger import MARKER
from sm70_policy.vllm.requests import linear_backend_request

if TYPE_CHECKING:
    from collections.abc import Callable

# On 7.5 vLLM's Marlin kernel would be picked behind the lifted gate; vLLM itself keeps the gate closed there.
FAMILY = Family(MXFP4, "Sm70MxFp4LinearKernel", SM7X, "compute capability 8.0")

_WEIGHTS_ONLY = (
    "sm70: vLLM asks for MXFP4 activations in MXFP4 layers, whatever the checkpoint says; the suite's "
    "kernels use the weights only and keep activations in 16 bits, as vLLM's Marlin does"
)


def wrap_selector(original: Callable[..., Any], name: str) -> Any:
    """Wrap `init_mxfp4_linear_kernel`: the suite's facade where it is wanted, else vLLM's own choice.

    Args:
        original: vLLM's selector.
        name: Name of the patch, as the mark of the wrapper.
    """

    @functools.wraps(original)
    def init_mxfp4_linear_kernel(activation_quant_key: Any = None) -> Any:
        stock = functools.partial(original, activation_quant_key=activation_quant_key)
        if not _weights_only_will_do(activation_quant_key):
            return stock()
        facade: Callable[..., Any] = facade_class()
        return select(
            FAMILY,
            engine.own_device(),
            stock,
            request=linear_backend_request("mxfp4"),
            make=functools.partial(facade, activation_quant_key=activation_quant_key),
            note="" if activation_quant_key is None else _WEIGHTS_ONLY,
        )

    setattr(init_mxfp4_linear_kernel, MARKER, name)
    return init_mxfp4_linear_kernel


def _weights_only_will_do(key: Any) -> bool:
    """Whether activations are to be in 16 bits or MXFP4, which vLLM's weight-only kernels take alike."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic

    # Since 0.33 the user can ask for other activations than the checkpoint's.
    resolve = getattr(linear, "_resolve_linear_activation_key", None)
    return (key if resolve is None else resolve(key)) in (None, kMxfp4Dynamic)


@functools.cache
def facade_class() -> type[Any]:
    """The facade's class, derived from vLLM's base class when vLLM is there to derive from."""
    from vllm.model_executor.kernels.linear import MxFp4LinearKernel, MxFp4LinearLayerConfig

    class Sm70MxFp4LinearKernel(Facade, MxFp4LinearKernel):
        """MXFP4 kernel of the sm70 suite; which one runs is decided when the weights are loaded."""

        def __init__(self, selection: Selection, activation_quant_key: Any) -> None:
            super().__init__(MxFp4LinearLayerConfig(activation_quant_key=activation_quant_key))
            self.begin(selection)

    return Sm70MxFp4LinearKernel
