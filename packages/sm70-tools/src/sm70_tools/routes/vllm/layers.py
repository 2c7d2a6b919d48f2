"""One layer of vLLM on its whole way: built, loaded shard by shard, processed, and called once for each M.

Weights are CPU tensors of equal values, read through vLLM's own weight loaders; rank 0 of the tensor-parallel
group is the one that exists. The call runs on meta tensors, and the operator that it ends in is written down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sm70_policy.vllm import engine
from sm70_tools.routes.launches import launches_of

if TYPE_CHECKING:
    from sm70_tools.routes.cards import RoutedCard
    from sm70_tools.routes.scopes import Role

_CODE = 0x22  # twice E2M1's 1.0
_E8M0_ONE = 127
_CODES = ("weight", "weight_packed")
_NO_CANDIDATES = ("format", "device-kind", "not-installed")
"""Verdicts of kernels for other formats or the CPU, and of absent packages: such a one is no candidate."""


@dataclass(frozen=True)
class Call:
    """One call of an operator outside torch's own namespaces.

    Attributes:
        operator: Name with namespace.
        scalars: Arguments that are no tensors, by name.
        tensors: Dtype and shape of those that are.
    """

    operator: str
    scalars: Mapping[str, Any]
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]

    @property
    def text(self) -> str:
        """The operator and its scalars."""
        inner = ", ".join(f"{name}={value}" for name, value in self.scalars.items())
        return f"{self.operator}({inner})"


class Calls(TorchDispatchMode):
    """Writes down the calls of operators that are not torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Call] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace not in {"aten", "prim", "prims"}:
            self.found.append(_call(function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def _call(function: Any, args: Any, kwargs: Mapping[str, Any]) -> Call:
    schema = function._schema  # noqa: SLF001
    given = {**dict(zip((item.name for item in schema.arguments), args, strict=False)), **kwargs}
    values = {
        item.name: given.get(item.name, item.default_value if item.has_default_value() else None)
        for item in schema.arguments
    }
    tensors = {
        name: (value.dtype, tuple(value.shape))
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    scalars = {name: value for name, value in values.items() if name not in tensors and value is not None}
    return Call(schema.name, scalars, tensors)


@contextlib.contextmanager
def ranks(count: int) -> Iterator[None]:
    """Let vLLM's tensor-parallel group of this process be rank 0 of `count`."""
    from vllm.distributed import parallel_state

    group = parallel_state.get_tp_group()
    before = group.world_size
    group.world_size = count
    try:
        yield
    finally:
        group.world_size = before


def build(role: Role, config: Any, name: str) -> Any:
    """Construct a role's layer as a model does, in the engine of `config`."""
    if len(role.projections) > 1:
        # What vLLM takes from the model's class: names of the projections in the checkpoint.
        fused = {role.name: list(role.projections)}
        config.quant_config.packed_modules_mapping = {**config.quant_config.packed_modules_mapping, **fused}
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers import linear

    common = {
        "bias": False,
        "params_dtype": torch.float16,
        "quant_config": config.quant_config,
        "prefix": name,
    }
    with set_current_vllm_config(config):
        if role.head_size:
            heads, kv_heads = (width // role.head_size for width in role.outputs[:2])
            return linear.QKVParallelLinear(role.k, role.head_size, heads, kv_heads, **common)
        if role.splits_inputs:
            return linear.RowParallelLinear(role.k, role.outputs[0], reduce_results=False, **common)
        return linear.MergedColumnParallelLinear(role.k, list(role.outputs), **common)


def load(role: Role, layer: Any, global_scales: tuple[float, ...]) -> None:
    """Read a checkpoint's tensors through the layer's weight loaders.

    Args:
        role: The layer's sizes.
        layer: What `build` returned.
        global_scales: One factor for each projection.
    """
    shards: list[Any] = list(range(len(role.outputs)))
    if role.head_size:
        shards = ["q", "k", "v"]
    for name, parameter in list(layer.named_parameters()):
        for shard, width, scale in zip(shards, role.outputs, global_scales, strict=True):
            content = _checkpoint(name, parameter, width, role.k, layer.input_size_per_partition, scale)
            arguments = () if role.splits_inputs else (shard,)
            parameter.weight_loader(parameter, content, *arguments)


def _checkpoint(name: str, parameter: Any, width: int, k: int, rank_k: int, scale: float) -> torch.Tensor:
    """A tensor of the whole model's projection; every element is the same one in memory."""
    if name in _CODES:
        return torch.tensor(_CODE, dtype=parameter.dtype).expand(width, k // 2)
    if name == "weight_scale":
        group = rank_k // parameter.shape[-1]
        one = _E8M0_ONE if parameter.dtype == torch.uint8 else 1
        return torch.tensor(one, dtype=torch.float32).to(parameter.dtype).expand(width, k // group)
    is_divisor = name == "weight_global_scale"
    return torch.tensor(1.0 / scale if is_divisor else scale, dtype=torch.float32)


def route(
    role: Role, config: Any, card: RoutedCard, rows: tuple[int, ...], global_scales: tuple[float, ...]
) -> dict[str, Any]:
    """What one layer takes, as a snapshot writes it.

    Raises:
        Exception: Whatever vLLM or the suite raises for the layer.
    """
    layer = build(role, config, role.prefix)
    load(role, layer, global_scales)
    layer.quant_method.process_weights_after_loading(layer)
    return observed(layer, config, card, rows)


def told(config: Any, layer: str) -> Mapping[str, Any] | None:
    """What the engine's report says of a layer; None where it says nothing."""
    from vllm.platforms import current_platform

    device = engine.platform_device(current_platform)
    if device is None:
        return None
    rows = engine.report_of(config, engine.policy_of(config), device).rows
    return next((row for row in rows if row["prefix"] == layer), None)


def passed_over(row: Mapping[str, Any]) -> dict[str, str]:
    """Codes of the reasons for which a row of a report passed over kernels; their wording may change."""
    return {
        item["kernel"]: item["code"]
        for item in row["verdicts"]
        if not item["supported"] and item["code"] not in _NO_CANDIDATES
    }


def observed(layer: Any, config: Any, card: RoutedCard, rows: tuple[int, ...]) -> dict[str, Any]:
    """What a loaded layer does for each number of rows of x."""
    row = told(config, layer.prefix)
    if row is None:
        raise RuntimeError(f"{layer.prefix} is in no report; vLLM did not take a kernel of the suite")
    found: dict[str, Any] = {
        "n": row["n"],
        "k": row["k"],
        "class": row["served_by"],
        "entry": None,
        "weight": None,
        "passed_over": passed_over(row),
        "launches": {},
    }
    if row["kernel"] != row["served_by"]:
        return found  # vLLM's own kernel, whose compiled code is not here
    layer.to("meta")
    for m in rows:
        with Calls() as calls:
            layer(torch.empty((m, row["k"]), dtype=torch.float16, device="meta"))
        (call,) = calls.found
        dtype, shape = call.tensors["weight"]
        found["entry"] = call.text
        found["weight"] = f"{str(dtype).removeprefix('torch.')} {list(shape)}"
        launches = launches_of(call.operator, call.scalars, shape[-1], row["n"], card)
        found["launches"][str(m)] = "unknown operator" if launches is None else launches(m)
    return found
