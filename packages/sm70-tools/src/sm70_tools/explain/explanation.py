"""Puts an explanation together: each layer's route, the memory, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sm70_policy.capability import Sm
from sm70_policy.errors import describe
from sm70_policy.formats import FORMATS, MXFP4, NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.route import KernelVerdict, choose_installed
from sm70_policy.verdict import Rejection
from sm70_tools.errors import ArgumentError
from sm70_tools.explain.inventory import read_inventory
from sm70_tools.explain.layers import LocalLayer, Split, local_layers, other_bytes
from sm70_tools.explain.memory import MemoryEstimate, estimate
from sm70_tools.explain.model_config import parse_shape
from sm70_tools.explain.quantization import parse_scheme
from sm70_tools.explain.synthesis import derive_inventory

if TYPE_CHECKING:
    from sm70_policy.capability import Device
    from sm70_policy.registry import Registry
    from sm70_policy.route import Policy
    from sm70_tools.explain.checkpoint import Checkpoint

STOCK_FROM = {NVFP4.name: Sm(7, 5), MXFP4.name: Sm(8, 0)}
"""Lowest capability that stock vLLM takes a format on: get_min_capability, alike in 0.19.1 and in 0.33.0."""

_STOCK_EVERYTHING_FROM = Sm(8, 0)
"""From here on the suite leaves stock vLLM alone unless asked, whatever the format."""

_EXPERTS = Rejection(
    "experts",
    "a bank of experts is no linear layer, and no installed package offers a kernel for one",
    "use a dense model, or a card that stock vLLM's own kernels support",
)
_UNKNOWN_SPLIT = Rejection(
    "split-unknown",
    "it is not known here how vLLM divides this layer over the ranks",
    "ask with --tp 1",
)


class Status(StrEnum):
    """Who runs a layer."""

    SUITE = "suite"
    STOCK = "stock"
    NONE = "none"
    NOT_SERVED = "not served by the suite"


@dataclass(frozen=True)
class LayerRoute:
    """A layer and what was chosen for it.

    Attributes:
        layer: The layer as one rank holds it.
        status: Who runs it.
        kernel: Name of the suite's kernel; None when the suite does not run it.
        nbytes: Bytes on the device, bias included.
        verdicts: The answers of all kernels and the packages that are absent.
    """

    layer: LocalLayer
    status: Status
    kernel: str | None
    nbytes: int
    verdicts: tuple[KernelVerdict, ...] = ()

    @property
    def rejections(self) -> tuple[tuple[str, Rejection], ...]:
        """Who said no, and why."""
        return tuple(
            (item.kernel, item.verdict) for item in self.verdicts if isinstance(item.verdict, Rejection)
        )


@dataclass(frozen=True)
class Explanation:
    """How a model runs on a card.

    Attributes:
        model: Name of the folder or file.
        model_type: Family.
        quantization: The library that quantized it, or `none`.
        device: The card.
        tp: Number of ranks.
        routes: All linear layers.
        memory: The memory of one rank.
    """

    model: str
    model_type: str
    quantization: str
    device: Device
    tp: int
    routes: tuple[LayerRoute, ...]
    memory: MemoryEstimate

    @property
    def unserved(self) -> tuple[LayerRoute, ...]:
        """Layers that nothing is known to run."""
        return tuple(route for route in self.routes if route.status in {Status.NONE, Status.NOT_SERVED})

    @property
    def good(self) -> bool:
        """Whether every layer has a kernel and the context fits."""
        return not self.unserved and self.memory.fits


def explain(
    checkpoint: Checkpoint,
    device: Device,
    registry: Registry,
    policy: Policy,
    *,
    tp: int = 1,
    context: int | None = None,
) -> Explanation:
    """Explain a checkpoint.

    Args:
        checkpoint: The model's files.
        device: The card, with its memory.
        registry: Installed kernels.
        policy: Settings and disabled kernels.
        tp: Tensor-parallel ranks, one card each.
        context: Wanted context in tokens; the model's own limit when None.

    Raises:
        CheckpointError: The files are of a kind that cannot be read, or contradict each other.
        ArgumentError: `tp` or `context` does not suit the model.
    """
    shape = parse_shape(checkpoint.config)
    _check_context(context, shape.max_context)
    scheme = parse_scheme(checkpoint.quantization)
    if checkpoint.tensors is None:
        inventory = derive_inventory(shape, scheme)
    else:
        inventory = read_inventory(checkpoint.tensors, scheme)
    layers = local_layers(inventory, shape, tp)
    routes = tuple(route_layer(layer, device, registry, policy, tp=tp) for layer in layers)
    memory = estimate(
        shape,
        card=device.memory_bytes,
        tp=tp,
        linears=sum(route.nbytes for route in routes),
        others=other_bytes(inventory, tp),
        context=context,
    )
    return Explanation(checkpoint.name, shape.model_type, scheme.method, device, tp, routes, memory)


def route_layer(
    layer: LocalLayer, device: Device, registry: Registry, policy: Policy, *, tp: int
) -> LayerRoute:
    """Choose for one layer."""
    stored = layer.nbytes + layer.bias_bytes
    if layer.format is None:
        return LayerRoute(layer, Status.STOCK, None, stored)
    if layer.format not in FORMATS:
        return _foreign(layer, layer.format, device, stored)
    if layer.split is Split.EXPERTS:
        return _without_kernel(layer, device, stored, (KernelVerdict("experts", _EXPERTS),))
    if layer.split is Split.WHOLE and tp > 1:
        return _without_kernel(layer, device, stored, (KernelVerdict("explain", _UNKNOWN_SPLIT),))
    problem = LinearProblem(
        layer.name, FORMATS[layer.format], layer.n, layer.k, ActivationDtype.FLOAT16, layer.shards
    )
    route = choose_installed(problem, device, registry, policy)
    if route.kernel is None:
        return _without_kernel(layer, device, stored, route.verdicts)
    resident = route.kernel.resident_bytes(problem) + layer.bias_bytes
    return LayerRoute(layer, Status.SUITE, route.kernel.name, resident, route.verdicts)


def _without_kernel(
    layer: LocalLayer, device: Device, nbytes: int, verdicts: tuple[KernelVerdict, ...]
) -> LayerRoute:
    stock_from = STOCK_FROM.get(layer.format or "")
    stock = stock_from is not None and device.sm is not None and device.sm >= stock_from
    return LayerRoute(layer, Status.STOCK if stock else Status.NONE, None, nbytes, verdicts)


def _foreign(layer: LocalLayer, name: str, device: Device, nbytes: int) -> LayerRoute:
    rejection = Rejection(
        "format-not-served",
        f"not served by the suite: {name}",
        f"use a checkpoint in {' or '.join(FORMATS)}, or ask vLLM itself whether its own kernels take it",
    )
    stock = device.sm is not None and device.sm >= _STOCK_EVERYTHING_FROM
    status = Status.STOCK if stock else Status.NOT_SERVED
    return LayerRoute(layer, status, None, nbytes, (KernelVerdict("suite", rejection),))


def _check_context(context: int | None, limit: int | None) -> None:
    if context is not None and (context < 1 or (limit is not None and context > limit)):
        raise ArgumentError(
            describe(
                asked=f"--context {context}",
                allowed=f"1 to {limit} tokens, the model's own limit" if limit else "1 and above",
                fix="Pass a context in this range",
            )
        )
