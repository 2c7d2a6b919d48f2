"""Rows of the category nvfp4, asked of vLLM for one card."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.vllm import deprecated
from sm70_tools.routes.configurations import Configuration, grid
from sm70_tools.routes.edges import NVFP4_EDGES, Edge
from sm70_tools.routes.scopes import SCOPES, find_scope, why_not
from sm70_tools.routes.vllm import layers
from sm70_tools.routes.vllm.sharing import with_shared_preparation

if TYPE_CHECKING:
    from sm70_tools.routes.cards import RoutedCard
    from sm70_tools.routes.scopes import Role
    from sm70_tools.routes.vllm.engines import Engines

_FORMAT = "nvfp4"
_LONGEST_REFUSAL = 400


def rows_of(card: RoutedCard, engines: Engines, wanted: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Outcomes of the wanted rows on one card; rows that are not applicable are left out."""
    found = {}
    installed = registry.installed()
    shared = with_shared_preparation(installed)
    with _replaced(registry, "installed", lambda: shared):
        for configuration in grid(tuple(scope.name for scope in SCOPES)):
            row_id = configuration.row_id(_FORMAT)
            if row_id in wanted and why_not(find_scope(configuration.scope), _FORMAT) is None:
                found[row_id] = _configuration(configuration, card, engines)
        for edge in NVFP4_EDGES:
            row_id = edge.row_id(_FORMAT)
            if row_id in wanted:
                with _replaced(registry, "installed", lambda edge=edge: installed if edge.fault else shared):
                    found[row_id] = _edge(edge, card, engines)
    return found


def _configuration(configuration: Configuration, card: RoutedCard, engines: Engines) -> dict[str, Any]:
    """The outcome of a row of the grid."""
    scope = find_scope(configuration.scope)
    scales = {role.name: (1.0,) * len(role.outputs) for role in scope.roles}
    return _outcome(scope.roles, scales, configuration, {}, card, engines)


def _edge(edge: Edge, card: RoutedCard, engines: Engines) -> dict[str, Any]:
    """The outcome of an edge case."""
    scales = edge.global_scales or (1.0,) * len(edge.role.outputs)
    if edge.fault == "weight":
        scales = (float("inf"),) * len(scales)
    with _environment(edge), _fault(edge.fault):
        return _outcome(
            (edge.role,), {edge.role.name: scales}, edge.configuration, edge.settings, card, engines
        )


def _outcome(
    roles: tuple[Role, ...],
    scales: Mapping[str, tuple[float, ...]],
    configuration: Configuration,
    settings: Mapping[str, object],
    card: RoutedCard,
    engines: Engines,
) -> dict[str, Any]:
    """The layers of one engine, or what refused them."""
    rows = (configuration.decode_rows, configuration.prefill_rows)
    try:
        config = engines.of(configuration, settings)
    except Exception as error:  # noqa: BLE001 - what vLLM or the suite refuses is what the row says
        return {"refused": refusal(error), "passed_over": {}}
    found = {}
    with layers.ranks(configuration.tp):
        for role in roles:
            try:
                found[role.name] = layers.route(role, config, card, rows, scales[role.name])
            except Exception as error:  # noqa: BLE001 - the same
                told = layers.told(config, role.prefix)
                return {"refused": refusal(error), "passed_over": layers.passed_over(told) if told else {}}
    return {"layers": found}


def refusal(error: BaseException) -> str:
    """The kind of an error and the line of its message that says what was asked, without addresses.

    The other lines of a list of kernels are among a row's `passed_over`.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ValidationError":
        # Of pydantic: a line that counts, the name of a field or none, what is wrong, a link.
        said = " ".join(line for line in lines[1:] if not line.startswith("For further information"))
        lines = [re.sub(r" *\[type=.*", "", said).removeprefix("Value error, ")]
    text = re.sub("0x[0-9a-f]{6,}", "0x...", lines[0] if lines else "")
    cut = text if len(text) <= _LONGEST_REFUSAL else f"{text[:_LONGEST_REFUSAL].rstrip()} ..."
    return f"{type(error).__name__}: {cut}"


@contextlib.contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _environment(edge: Edge) -> contextlib.AbstractContextManager[None]:
    """What the reader of deprecated variables sees. The process' own environment stays as it is."""
    return _replaced(deprecated, "os", SimpleNamespace(environ=dict(edge.environment)))


def _fault(name: str) -> contextlib.AbstractContextManager[None]:
    """Break one thing of the installed kernels for a while."""
    if name in {"", "weight"} or importlib.util.find_spec("sm70_kernels_cuda") is None:
        return contextlib.nullcontext()
    from sm70_kernels_cuda import binary, block_layout_kernel
    from sm70_kernels_cuda.layouts.fp4_block import LAYOUT_ABI

    if name == "operators":
        return _replaced(binary, "is_present", lambda: False)
    if name == "layout-abi":
        return _replaced(binary, "layout_abi", lambda: LAYOUT_ABI - 1)
    return _replaced(block_layout_kernel.BlockLayoutKernel, "prepare", _out_of_memory)


def _out_of_memory(kernel: Any, problem: Any, weight: Any, settings: Any) -> Any:
    raise MemoryError(f"{problem.layer}: no memory for the weight of {kernel.name}")
