"""Checks the suite's route report against the checkpoint: what the suite accepts, the suite serves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sm70_demo.tensor_file import TensorEntry

PACKED_SUFFIX = ".weight_packed"

# vLLM's fused layers and the checkpoint's parts of each.
FUSED_INTO = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}


@dataclass(frozen=True)
class LinearSize:
    """Rows N (outputs) and columns K (inputs) of one linear as vLLM builds it."""

    n: int
    k: int


@dataclass(frozen=True)
class Route:
    """One layer of the report: the kernel chosen, the class that serves it, the kernels that accepted it."""

    prefix: str
    size: LinearSize
    kernel: str | None
    served_by: str
    accepted_by: tuple[str, ...]


def expected_linears(tensors: Mapping[str, TensorEntry]) -> dict[str, LinearSize]:
    """Return every quantized linear under the name of vLLM's layer, fused parts added up along N.

    Raises ValueError where the parts of a fused layer differ in K.
    """
    linears: dict[str, LinearSize] = {}
    for name, entry in tensors.items():
        if not name.endswith(PACKED_SUFFIX):
            continue
        parent, _, leaf = name.removesuffix(PACKED_SUFFIX).rpartition(".")
        prefix = f"{parent}.{FUSED_INTO.get(leaf, leaf)}"
        n, k = entry.shape[0], 2 * entry.shape[1]
        known = linears.get(prefix, LinearSize(0, k))
        if known.k != k:
            raise ValueError(f"{prefix}: its parts have K {known.k} and {k}")
        linears[prefix] = LinearSize(known.n + n, k)
    return linears


def parse_routes(report: Mapping[str, Any]) -> list[Route]:
    """Return the layers of a route report. Raises ValueError that names what is missing."""
    routes: list[Route] = []
    layers = report.get("layers")
    if not isinstance(layers, list):
        raise TypeError('the route report has no list "layers"')
    for index, layer in enumerate(layers):
        try:
            accepted = tuple(v["kernel"] for v in layer["verdicts"] if v["supported"])
            size = LinearSize(layer["n"], layer["k"])
            routes.append(Route(layer["prefix"], size, layer["kernel"], layer["served_by"], accepted))
        except (KeyError, TypeError) as error:
            raise ValueError(f"layer {index} of the route report lacks {error}") from error
    return routes


def route_problems(linears: Mapping[str, LinearSize], routes: list[Route]) -> list[str]:
    """Return one sentence for each linear that is missing or not served by the suite's kernel."""
    by_prefix = {route.prefix: route for route in routes}
    problems: list[str] = []
    for prefix, size in sorted(linears.items(), key=lambda item: natural_key(item[0])):
        route = by_prefix.get(prefix)
        if route is None:
            problems.append(f"{prefix}: not in the route report")
        elif route.size != size:
            problems.append(
                f"{prefix}: reported as N={route.size.n}, K={route.size.k}; "
                f"the checkpoint has N={size.n}, K={size.k}"
            )
        elif route.accepted_by and route.kernel is None:
            problems.append(
                f"{prefix}: accepted by {', '.join(route.accepted_by)}, yet no kernel was chosen "
                f"and {route.served_by} serves it"
            )
        elif route.accepted_by and route.kernel != route.served_by:
            problems.append(f"{prefix}: {route.kernel} was chosen, but {route.served_by} serves it")
    return problems


def natural_key(prefix: str) -> list[tuple[int, str]]:
    """Return a sort key that puts layer 2 before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", prefix)]
