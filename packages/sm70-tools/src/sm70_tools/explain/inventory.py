"""A model as its files describe it: its linear modules and the rest, before vLLM fuses and splits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_policy.formats import FORMATS, WeightFormat
from sm70_tools.errors import CheckpointError
from sm70_tools.explain.safetensors import FLOAT_DTYPES

if TYPE_CHECKING:
    from sm70_tools.explain.quantization import Group, Scheme
    from sm70_tools.explain.safetensors import TensorInfo

FP16_BYTES = 2
EMBEDDING = "embed_tokens"
PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
TOWERS = ("vision", "visual", "audio")
EXPERTS = ".experts."
"""Part of the name of every tensor of a mixture of experts' bank."""

_AGAIN = "Download config.json and the weights again, from the same revision"
_MATRIX = 2
_BITS_OF_I32 = 32


@dataclass(frozen=True)
class Module:
    """A linear module of the checkpoint: y = x @ w^T with w [n, k].

    Attributes:
        name: Dotted name.
        n: Output features.
        k: Input features.
        format: Format of the weight; None for a floating-point weight, which runs in FP16.
        nbytes: Bytes on the device as the checkpoint stores it; FP16 for a floating-point weight.
        bias: Whether it has a bias.
    """

    name: str
    n: int
    k: int
    format: str | None
    nbytes: int
    bias: bool = False


@dataclass(frozen=True)
class Parameter:
    """A tensor that belongs to no linear module: an embedding, a norm, a buffer."""

    name: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Inventory:
    """Everything that is loaded onto the device."""

    modules: tuple[Module, ...]
    parameters: tuple[Parameter, ...]

    def find(self, name: str) -> Module | None:
        """The module called `name`."""
        return next((module for module in self.modules if module.name == name), None)


def read_inventory(tensors: dict[str, TensorInfo], scheme: Scheme) -> Inventory:
    """Group a checkpoint's tensors into modules.

    Raises:
        CheckpointError: A quantized weight has a layout that is not known here, or files and configuration
            contradict each other.
    """
    owners: dict[str, dict[str, TensorInfo]] = {}
    for name, info in tensors.items():
        owner, _, part = name.rpartition(".")
        owners.setdefault(owner, {})[part] = info
    modules: list[Module] = []
    parameters: list[Parameter] = []
    for owner, parts in owners.items():
        module = _module(owner, parts, scheme)
        if module is not None:
            modules.append(module)
        else:
            parameters.extend(_parameter(f"{owner}.{part}", info) for part, info in parts.items())
    return Inventory(tuple(modules), tuple(parameters))


def is_text_projection(name: str) -> bool:
    """Whether a module is one of the decoder's attention or feed-forward projections."""
    return (
        name.rpartition(".")[2] in PROJECTIONS
        and EXPERTS not in name
        and not any(tower in name for tower in TOWERS)
    )


def _module(name: str, parts: dict[str, TensorInfo], scheme: Scheme) -> Module | None:
    leaf = name.rpartition(".")[2]
    weight = parts.get("weight")
    bias = "bias" in parts
    if leaf == EMBEDDING:
        return None
    if weight is not None and weight.dtype in FLOAT_DTYPES:
        if len(weight.shape) != _MATRIX:
            return None
        if is_text_projection(name) and (group := scheme.group_of(name)) is not None:
            raise _contradiction(
                name, f"{group.format} in the configuration, {weight.dtype} in {weight.file}"
            )
        n, k = weight.shape
        return Module(name, n, k, None, n * k * FP16_BYTES, bias)
    packed = parts.get("weight_packed") or parts.get("qweight") or weight
    if packed is None:
        return None
    found = scheme.group_of(name)
    if found is None:
        raise _contradiction(name, f"{packed.dtype} in {packed.file}, but not quantized in the configuration")
    n, k = _sizes(name, packed, found, parts, scheme)
    stored = sum(info.nbytes for part, info in parts.items() if part != "bias")
    return Module(name, n, k, found.format, stored, bias)


def _sizes(
    name: str, packed: TensorInfo, group: Group, parts: dict[str, TensorInfo], scheme: Scheme
) -> tuple[int, int]:
    """N and K of a quantized weight, from the layout that its format is stored in."""
    if len(packed.shape) == _MATRIX:
        rows, columns = packed.shape
        per_word = _BITS_OF_I32 // group.bits if packed.dtype == "I32" and group.bits else 0
        if packed.dtype == "U8" and group.format in FORMATS:
            _check_scales(name, FORMATS[group.format], rows, columns * 2, parts)
            return rows, columns * 2
        if packed.dtype.startswith("F8_"):
            return rows, columns
        if per_word and scheme.method == "awq":
            return columns * per_word, rows
        if per_word and scheme.method == "gptq":
            return columns, rows * per_word
        if per_word and scheme.method == "compressed-tensors":
            return rows, columns * per_word
    raise CheckpointError(
        describe(
            asked=f"{name}, not served by the suite: {group.format} as {packed.dtype} {list(packed.shape)}",
            allowed=f"{', '.join(FORMATS)}; also read are awq, gptq, compressed-tensors and FP8",
            fix="Use a checkpoint in one of these formats",
        )
    )


def _check_scales(
    name: str, weight_format: WeightFormat, n: int, k: int, parts: dict[str, TensorInfo]
) -> None:
    scales = parts.get("weight_scale")
    expected = (n, k // weight_format.group_size)
    if scales is None or scales.shape != expected:
        raise _contradiction(
            name,
            f"block scales of shape {None if scales is None else list(scales.shape)} for N={n} and K={k}, "
            f"where {weight_format.name} has {list(expected)}",
        )


def _parameter(name: str, info: TensorInfo) -> Parameter:
    # vLLM loads floating-point parameters in the engine's dtype, which is float16 on these cards.
    nbytes = info.elements * FP16_BYTES if info.dtype in FLOAT_DTYPES else info.nbytes
    return Parameter(name.removeprefix("."), info.shape, nbytes)


def _contradiction(name: str, what: str) -> CheckpointError:
    return CheckpointError(
        describe(asked=f"{name}: {what}", allowed="files that agree with config.json", fix=_AGAIN)
    )
