"""What replaces functions and methods of vLLM 0.19 on the way of a 4-bit float layer.

That release has no kernel objects. For NVFP4 with quantized activations a layer keeps a member of an
enumeration, and two functions branch on it; the weight-only schemes call Marlin directly. A facade stands
where the member stands, and on a scheme in an attribute of its own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sm70_policy.vllm import engine, nvfp4
from sm70_policy.vllm.facade import Facade, Family, Request, Selection, select
from sm70_policy.vllm.ledger import MARKER
from sm70_policy.vllm.requests import nvfp4_variables_request

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = "kernel"
"""Attribute of a weight-only scheme that holds what was chosen for its layer."""

_MARLIN = "Marlin"


class StandIn(Facade):
    """A facade where vLLM's own kernels are functions: what calls it goes on with `stock`, if that is set."""

    def __init__(self, selection: Selection) -> None:
        self.begin(selection)

    def load_stock(self, stock: Any, layer: Any) -> None:
        """Nothing: the caller gives the weight to vLLM's own function."""

    def name_of_stock(self, stock: Any) -> str:
        """The member of vLLM's enumeration, or Marlin."""
        return str(stock)


class Sm70NvFp4LinearKernel(StandIn):
    """NVFP4 kernel of the sm70 suite; which one runs is decided when the weights are loaded."""


class Sm70MxFp4LinearKernel(StandIn):
    """MXFP4 kernel of the sm70 suite; which one runs is decided when the weights are loaded."""


def _marked(wrapper: Any, name: str) -> Any:
    setattr(wrapper, MARKER, name)
    return wrapper


def wrap_select(original: Callable[[], Any], name: str) -> Any:
    """Wrap `select_nvfp4_linear_backend`: a facade where the suite is wanted, else vLLM's own choice."""

    @functools.wraps(original)
    def select_nvfp4_linear_backend() -> Any:
        return select(
            nvfp4.FAMILY,
            engine.own_device(),
            original,
            request=nvfp4_variables_request(),
            make=Sm70NvFp4LinearKernel,
            note=nvfp4.W4A4,
        )

    return _marked(select_nvfp4_linear_backend, name)


def wrap_convert(original: Callable[..., None], name: str) -> Any:
    """Wrap `convert_to_nvfp4_linear_kernel_format`: a facade gets the weight."""

    @functools.wraps(original)
    def convert_to_nvfp4_linear_kernel_format(backend: Any, layer: Any) -> None:
        backend = _loaded(backend, layer)
        if backend is not None:
            original(backend, layer)

    return _marked(convert_to_nvfp4_linear_kernel_format, name)


def wrap_apply(original: Callable[..., Any], name: str) -> Any:
    """Wrap `apply_nvfp4_linear`: a facade runs its layer."""

    @functools.wraps(original)
    def apply_nvfp4_linear(backend: Any, layer: Any, x: Any, bias: Any = None) -> Any:
        if not isinstance(backend, Facade):
            return original(backend, layer, x, bias)
        if backend.stock is not None:
            return original(backend.stock, layer, x, bias)
        return backend.apply_weights(layer, x, bias)

    return _marked(apply_nvfp4_linear, name)


def wrap_scheme(
    original: Callable[[Any], None],
    name: str,
    *,
    family: Family,
    make: type[StandIn],
    request: Callable[[], Request],
) -> Any:
    """Wrap `__init__` of a weight-only scheme: it chooses for its layer."""

    @functools.wraps(original)
    def __init__(self: Any) -> None:  # noqa: N807 - it becomes one
        original(self)
        chosen = select(family, engine.own_device(), lambda: _MARLIN, request=request(), make=make)
        setattr(self, KERNEL, chosen)

    return _marked(__init__, name)


def wrap_prepare(original: Callable[..., None], name: str) -> Any:
    """Wrap a scheme's `prepare_fp4_layer_for_marlin`: a facade gets the weight."""

    @functools.wraps(original)
    def prepare_fp4_layer_for_marlin(layer: Any, *arguments: Any, **keywords: Any) -> None:
        if _loaded(getattr(layer.scheme, KERNEL, _MARLIN), layer) is not None:
            original(layer, *arguments, **keywords)

    return _marked(prepare_fp4_layer_for_marlin, name)


def wrap_scheme_apply(original: Callable[..., Any], name: str) -> Any:
    """Wrap `apply_weights` of a weight-only scheme: a facade runs its layer."""

    @functools.wraps(original)
    def apply_weights(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
        kernel = getattr(self, KERNEL, _MARLIN)
        if isinstance(kernel, Facade) and kernel.stock is None:
            return kernel.apply_weights(layer, x, bias)
        return original(self, layer, x, bias)

    return _marked(apply_weights, name)


def _loaded(chosen: Any, layer: Any) -> Any:
    """Give a facade a layer's weight. Returns which of vLLM's own gets it; None if the suite has it."""
    if not isinstance(chosen, Facade):
        return chosen
    chosen.process_weights_after_loading(layer)
    return chosen.stock
