"""An explanation as tables and sentences, for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from sm70_policy.capability import GIB
from sm70_tools.explain.explanation import STOCK_FROM, Status
from sm70_tools.explain.layers import Split
from sm70_tools.explain.memory import GPU_MEMORY_UTILIZATION_PERCENT, KV_BLOCK_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from sm70_policy.verdict import Rejection
    from sm70_tools.explain.explanation import Explanation, LayerRoute
    from sm70_tools.explain.memory import MemoryEstimate

_NUMBER_IN_NAME = re.compile(r"(?<=\.)\d+(?=\.)")
_MIB = 1 << 20


@dataclass(frozen=True)
class RouteGroup:
    """Layers that differ in nothing but their number."""

    name: str
    routes: tuple[LayerRoute, ...]


def group_routes(routes: Iterable[LayerRoute]) -> tuple[RouteGroup, ...]:
    """Gather alike layers, in the order of the first of each."""
    found: dict[tuple[object, ...], list[LayerRoute]] = {}
    for route in routes:
        layer = route.layer
        codes = tuple((kernel, rejection.code) for kernel, rejection in route.rejections)
        name = _NUMBER_IN_NAME.sub("*", layer.name)
        key = (
            name,
            layer.n,
            layer.k,
            layer.shards,
            layer.format,
            route.status,
            route.kernel,
            route.nbytes,
            codes,
        )
        found.setdefault(key, []).append(route)
    return tuple(
        RouteGroup(str(key[0]) if len(members) > 1 else members[0].layer.name, tuple(members))
        for key, members in found.items()
    )


def render(explanation: Explanation, console: Console) -> None:
    """Print an explanation."""
    groups = group_routes(explanation.routes)
    _line(
        console,
        f"{explanation.model}: {explanation.model_type}, quantization {explanation.quantization}, "
        f"on {explanation.device}, tensor parallel {explanation.tp}",
    )
    console.print(_layer_table(groups, explanation))
    _print_reasons(groups, console)
    console.print(_memory_table(explanation.memory))
    for sentence in _verdict(explanation):
        _line(console, sentence)


def _line(console: Console, text: str) -> None:
    # As Text: names of layers and messages may hold brackets, which markup would swallow.
    console.print(Text(text))


def _layer_table(groups: tuple[RouteGroup, ...], explanation: Explanation) -> Table:
    table = Table(title="Linear layers of one rank", title_justify="left")
    table.add_column("Layer", overflow="fold")
    table.add_column("Count", justify="right")
    table.add_column("N x K", justify="right")
    table.add_column("Format")
    table.add_column("Runs on", overflow="fold")
    table.add_column("MiB", justify="right")
    for group in groups:
        first = group.routes[0]
        layer = first.layer
        size = "-" if layer.split is Split.EXPERTS else f"{layer.n} x {layer.k}"
        total = sum(route.nbytes for route in group.routes)
        table.add_row(
            Text(group.name),
            f"x{len(group.routes)}",
            size,
            layer.format or "float16",
            Text(_runs_on(first, explanation)),
            f"{total / _MIB:.1f}",
        )
    return table


def _runs_on(route: LayerRoute, explanation: Explanation) -> str:
    match route.status:
        case Status.SUITE:
            return str(route.kernel)
        case Status.STOCK:
            return "stock vLLM"
        case Status.NONE:
            return f"NOTHING on {explanation.device.sm}"
        case Status.NOT_SERVED:
            return f"{Status.NOT_SERVED}: {route.layer.format}"


def _print_reasons(groups: tuple[RouteGroup, ...], console: Console) -> None:
    """Every reason of layers without a kernel; of the others who was passed over, each reason once."""
    stuck: dict[tuple[str, ...], list[str]] = {}
    said: dict[str, str] = {}
    for group in groups:
        first = group.routes[0]
        reasons = tuple(_reason(kernel, rejection) for kernel, rejection in first.rejections)
        if first.status in {Status.NONE, Status.NOT_SERVED}:
            stuck.setdefault(reasons, []).append(group.name)
        else:
            said |= {reason: group.name for reason in reasons if reason not in said}
    for reasons, names in stuck.items():
        _line(console, f"No kernel for {', '.join(names)}:")
        for reason in reasons:
            _line(console, f"  {reason}")
    if said:
        _line(console, "Passed over:")
    for reason, name in said.items():
        _line(console, f"  {name}: {reason}")


def _reason(kernel: str, rejection: Rejection) -> str:
    # Reasons of absent packages begin with the package's name.
    return str(rejection) if rejection.message.startswith(kernel) else f"{kernel}: {rejection}"


def _memory_table(memory: MemoryEstimate) -> Table:
    table = Table(title="Memory of one rank", title_justify="left")
    table.add_column("Part")
    table.add_column("GiB", justify="right")
    rows = [
        (
            f"usable: {GPU_MEMORY_UTILIZATION_PERCENT} % of the card's {memory.card / GIB:.0f} GiB",
            memory.usable,
        ),
        ("linear layers", memory.linears),
        ("embeddings, norms, other tensors", memory.others),
        ("allowance for activations, CUDA graphs, NCCL (assumed)", memory.allowance),
        ("left for keys and values", memory.left),
    ]
    for name, nbytes in rows:
        table.add_row(name, f"{nbytes / GIB:.2f}")
    return table


def _verdict(explanation: Explanation) -> list[str]:
    memory = explanation.memory
    cache = (
        f"Keys and values: {memory.kv_per_token} bytes per token, room for {memory.cache_tokens} tokens "
        f"(blocks of {KV_BLOCK_TOKENS}); largest context {memory.largest_context} tokens."
    )
    sentences = [cache]
    unserved = explanation.unserved
    if unserved:
        names = ", ".join(group.name for group in group_routes(unserved))
        sentences.append(f"CANNOT BE SERVED by the suite: {len(unserved)} layers have no kernel: {names}.")
    elif any(route.status is Status.STOCK and route.layer.format for route in explanation.routes):
        limits = " and ".join(
            f"{name.upper()} from compute capability {sm} on" for name, sm in STOCK_FROM.items()
        )
        sentences.append(
            f"Quantized layers marked stock vLLM are left to its own kernels, which take {limits}."
        )
    wanted = "any context" if memory.context is None else f"a context of {memory.context} tokens"
    if memory.fits:
        sentences.append(f"Fits: {wanted}.")
    elif memory.left <= 0:
        sentences.append(
            f"DOES NOT FIT: weights and allowance exceed what is usable by {-memory.left / GIB:.2f} GiB. "
            "Use more ranks (--tp) or a card with more memory."
        )
    else:
        sentences.append(
            f"DOES NOT FIT: {wanted}. Start vLLM with --max-model-len {memory.largest_context} or less, "
            "use more ranks (--tp), or a card with more memory."
        )
    return sentences
