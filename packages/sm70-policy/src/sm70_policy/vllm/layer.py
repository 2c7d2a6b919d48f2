"""Between a vLLM linear layer and the suite's contract: reading problem and weight, installing a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sm70_policy.errors import ContractError, HostError, WeightError, describe
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import QuantizedWeight

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.formats import WeightFormat

CHILD = "sm70_linear"
"""Name of the child module that holds a layer's prepared weight."""

SHARD_FACTORS = "sm70_shard_factors"
"""Attribute that carries the global scale of every fused shard past vLLM's reduction to one number."""

_REQUIRED = ("weight", "weight_scale")
_GLOBAL_SCALE = "weight_global_scale"
_CHECKPOINT_PARAMETERS = (
    "weight_scale",
    "weight_global_scale",
    "input_global_scale",
    "input_global_scale_inv",
    "alpha",
)


def problem_of(layer: Any, activation: Any, weight_format: WeightFormat) -> LinearProblem:
    """Describe a layer.

    Args:
        layer: A vLLM linear layer.
        activation: The model's torch dtype, for layers that do not name their own.
        weight_format: Format of its weight.

    Raises:
        ProblemError: Sizes that no layer can have.
        HostError: The layer's dtype is not an activation dtype.
    """
    name = name_of(layer)
    dtype = str(getattr(layer, "params_dtype", None) or activation).removeprefix("torch.")
    if dtype not in list(ActivationDtype):
        raise HostError(
            describe(
                asked=f"{name}: activations of dtype {dtype}",
                allowed=", ".join(ActivationDtype),
                fix="Start vLLM with --dtype float16",
            )
        )
    return LinearProblem(
        layer=name,
        weight_format=weight_format,
        n=int(layer.output_size_per_partition),
        k=int(layer.input_size_per_partition),
        activation=ActivationDtype(dtype),
        shards=tuple(int(width) for width in getattr(layer, "logical_widths", ())),
    )


def name_of(layer: Any) -> str:
    """The layer's dotted name; its class where vLLM gave it none."""
    return str(getattr(layer, "prefix", "") or f"unnamed {type(layer).__name__}")


def weight_of(layer: Any, problem: LinearProblem) -> QuantizedWeight:
    """The layer's loaded weight, without a copy of codes or scales.

    Raises:
        WeightError: A tensor is missing, or the global scale is neither one number nor one per shard.
    """
    has_global = problem.weight_format.global_scale
    required = (*_REQUIRED, _GLOBAL_SCALE) if has_global else _REQUIRED
    missing = [name for name in required if getattr(layer, name, None) is None]
    if missing:
        raise WeightError(
            describe(
                asked=f"{problem.layer}: an {problem.weight_format.name.upper()} layer without "
                f"{', '.join(missing)}",
                allowed=f"layers that hold codes, block scales{' and a global scale' if has_global else ''}",
                fix="Check that the checkpoint holds these tensors under the names of its format",
            )
        )
    return QuantizedWeight(
        codes=layer.weight.data,
        scales=layer.weight_scale.data,
        row_factor=_row_factor(problem, _global_factors(layer, problem)),
    )


def _global_factors(layer: Any, problem: LinearProblem) -> Tensor:
    import torch

    if not problem.weight_format.global_scale:
        return torch.ones((), device=layer.weight.device)
    factors: Tensor | None = getattr(layer, SHARD_FACTORS, None)
    return layer.weight_global_scale.data if factors is None else factors


def _row_factor(problem: LinearProblem, factors: Tensor) -> Tensor:
    import torch

    flat = factors.to(torch.float32).reshape(-1)
    if flat.numel() == 1:
        return flat.expand(problem.n).contiguous()
    if flat.numel() != len(problem.shards):
        raise WeightError(
            describe(
                asked=f"{problem.layer}: {flat.numel()} global scales for shards {problem.shards}",
                allowed="one global scale, or one per shard",
                fix="The checkpoint is damaged; download or quantize it again",
            )
        )
    widths = torch.tensor(problem.shards, device=flat.device)
    return torch.repeat_interleave(flat, widths, output_size=problem.n)


def install(layer: Any, prepared: Any) -> bool:
    """Make `prepared` the layer's only weight: the checkpoint's tensors are released here.

    What stays of `weight` is a tensor of N rows and no columns: LoRA and latent attention ask it for the
    device, and nobody needs its content.

    Returns:
        Whether the layer already had a prepared weight, which was overwritten in place.

    Raises:
        ContractError: `prepared` is not a module.
        HostError: The layer is being reloaded with a weight of other sizes.
    """
    import torch

    if not isinstance(prepared, torch.nn.Module):
        raise ContractError(
            f"{name_of(layer)}: the kernel prepared a {type(prepared).__name__}, not a torch.nn.Module"
        )
    serving = layer._modules.get(CHILD)  # noqa: SLF001 - the registry of child modules has no public reader
    if serving is None:
        layer.add_module(CHILD, prepared)
    else:
        _copy_into(name_of(layer), serving, prepared)
    weight = layer.weight
    empty = torch.empty((weight.shape[0], 0), dtype=weight.dtype, device=weight.device)
    del layer.weight
    layer.register_parameter("weight", torch.nn.Parameter(empty, requires_grad=False))
    for name in _CHECKPOINT_PARAMETERS:
        if hasattr(layer, name):
            delattr(layer, name)
    return serving is not None


def _copy_into(name: str, serving: Any, prepared: Any) -> None:
    """Reload in place: captured CUDA graphs hold the addresses of the tensors that serve."""
    import torch

    old = {**dict(serving.named_parameters()), **dict(serving.named_buffers())}
    new = {**dict(prepared.named_parameters()), **dict(prepared.named_buffers())}
    shapes = [{key: (item.shape, item.dtype) for key, item in tensors.items()} for tensors in (old, new)]
    if type(serving) is not type(prepared) or shapes[0] != shapes[1]:
        raise HostError(
            describe(
                asked=f"{name}: reloading a weight whose prepared form differs from the one that serves",
                allowed="reloading weights of the same shape and format",
                fix="Restart the engine",
            )
        )
    for key, item in old.items():
        item.data.copy_(new[key].data)
        if item.is_cuda:
            # A kernel may read its weight before its predecessor in the stream, such as this copy, has ended.
            torch.cuda.synchronize(item.device)
