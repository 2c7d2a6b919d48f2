"""The linear layers that one rank runs: vLLM fuses a checkpoint's modules and splits them over the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_policy.formats import FORMATS
from sm70_tools.errors import ArgumentError, CheckpointError
from sm70_tools.explain.inventory import EMBEDDING, EXPERTS, FP16_BYTES, TOWERS, is_text_projection

if TYPE_CHECKING:
    from sm70_tools.explain.inventory import Inventory, Module, Parameter
    from sm70_tools.explain.model_config import ModelShape

# vLLM pads the vocabulary to a multiple of this, so that it divides over the usual numbers of ranks.
_VOCAB_MULTIPLE = 64
_OUTPUT_LAYER = "lm_head"


class Split(StrEnum):
    """How a layer is divided over the ranks."""

    COLUMN = "column"
    ROW = "row"
    VOCABULARY = "vocabulary"
    EXPERTS = "experts"
    WHOLE = "whole"


@dataclass(frozen=True)
class LocalLayer:
    """A layer as one rank holds it.

    Attributes:
        name: Dotted name, as vLLM calls it.
        split: How it is divided.
        n: Output features of this rank; 0 for a bank of experts.
        k: Input features of this rank; 0 for a bank of experts.
        format: Format of the weight; None for FP16.
        nbytes: Bytes of this rank's part in the checkpoint's form (FP16 where the weight is not quantized).
        bias_bytes: Bytes of its bias in FP16.
        shards: Output features of each fused projection; empty for a layer of one projection.
    """

    name: str
    split: Split
    n: int
    k: int
    format: str | None
    nbytes: int
    bias_bytes: int = 0
    shards: tuple[int, ...] = ()


def local_layers(inventory: Inventory, shape: ModelShape, tp: int) -> tuple[LocalLayer, ...]:
    """Build the layers of one rank. All ranks hold the same sizes.

    Raises:
        ArgumentError: The sizes do not divide over `tp` ranks.
        CheckpointError: The modules of a fused layer do not fit each other or the configuration.
    """
    _check_heads(shape, tp)
    modules = {module.name: module for module in inventory.modules}
    banks: dict[str, list[Module]] = {}
    layers: list[LocalLayer] = []
    for module in inventory.modules:
        if EXPERTS in module.name:
            bank = module.name.partition(EXPERTS)[0] + EXPERTS.rstrip(".")
            banks.setdefault(bank, []).append(module)
        elif is_text_projection(module.name):
            layer = _projection(module, modules, shape, tp)
            layers += [] if layer is None else [layer]
        elif module.name.rpartition(".")[2] != _OUTPUT_LAYER:
            layers.append(_layer(module.name, Split.WHOLE, (module,), module.n, module.k))
        elif not _is_tied(inventory, shape):
            n = _divide(module.name, "padded vocabulary", _padded(module.n), tp)
            layers.append(_layer(module.name, Split.VOCABULARY, (module,), n, module.k))
    layers.extend(_bank(name, bank, tp) for name, bank in banks.items())
    return tuple(layers)


def other_bytes(inventory: Inventory, tp: int) -> int:
    """Bytes of one rank's embeddings, norms and whatever else is no linear layer."""
    return sum(_parameter_bytes(parameter, tp) for parameter in inventory.parameters)


def _parameter_bytes(parameter: Parameter, tp: int) -> int:
    if EXPERTS in parameter.name:
        return -(-parameter.nbytes // tp)
    if not parameter.name.endswith(f"{EMBEDDING}.weight") or any(tower in parameter.name for tower in TOWERS):
        return parameter.nbytes
    rows = parameter.shape[0]
    return parameter.nbytes // rows * _divide(parameter.name, "padded vocabulary", _padded(rows), tp)


def _is_tied(inventory: Inventory, shape: ModelShape) -> bool:
    # A configuration that does not say leaves it to the files: a stored output layer is one of its own.
    return bool(shape.tied) and any(
        parameter.name.endswith(f"{EMBEDDING}.weight") for parameter in inventory.parameters
    )


def _projection(module: Module, modules: dict[str, Module], shape: ModelShape, tp: int) -> LocalLayer | None:
    """The layer that `module` is the first part of; None for the other parts."""
    parent, _, leaf = module.name.rpartition(".")
    if leaf in {"o_proj", "down_proj"}:
        return _layer(module.name, Split.ROW, (module,), module.n, _divide(module.name, "K", module.k, tp))
    if leaf == "q_proj" or (leaf in {"k_proj", "v_proj"} and f"{parent}.q_proj" not in modules):
        return _qkv(parent, modules, shape, tp)
    if leaf == "up_proj" or (leaf == "gate_proj" and f"{parent}.up_proj" not in modules):
        return _gate_up(parent, modules, tp)
    return None


def _qkv(parent: str, modules: dict[str, Module], shape: ModelShape, tp: int) -> LocalLayer:
    parts = _parts(parent, modules, ("q_proj", "k_proj", "v_proj"))
    query, *keys_values = parts
    if query.n % (shape.heads * shape.head_dim):
        raise _unlike(query, f"{shape.heads} heads of {shape.head_dim}")
    for part in keys_values:
        if part.n != shape.kv_heads * shape.head_dim:
            raise _unlike(part, f"{shape.kv_heads} key-value heads of {shape.head_dim}")
    kv = local_kv_heads(shape, tp) * shape.head_dim
    shards = (query.n // tp, kv, kv)
    return _layer(f"{parent}.qkv_proj", Split.COLUMN, parts, sum(shards), query.k, shards)


def _gate_up(parent: str, modules: dict[str, Module], tp: int) -> LocalLayer:
    if f"{parent}.gate_proj" not in modules:
        up = modules[f"{parent}.up_proj"]
        return _layer(up.name, Split.COLUMN, (up,), _divide(up.name, "N", up.n, tp), up.k)
    parts = _parts(parent, modules, ("gate_proj", "up_proj"))
    shards = tuple(_divide(part.name, "N", part.n, tp) for part in parts)
    return _layer(f"{parent}.gate_up_proj", Split.COLUMN, parts, sum(shards), parts[0].k, shards)


def local_kv_heads(shape: ModelShape, tp: int) -> int:
    """Key and value heads of one rank: with more ranks than heads each rank repeats one."""
    return max(1, shape.kv_heads // tp)


def _parts(parent: str, modules: dict[str, Module], leaves: tuple[str, ...]) -> tuple[Module, ...]:
    missing = [leaf for leaf in leaves if f"{parent}.{leaf}" not in modules]
    if missing:
        raise CheckpointError(
            describe(
                asked=f"{parent}: no weight of {', '.join(missing)}",
                allowed=f"all of {', '.join(leaves)}, which vLLM fuses into one layer",
                fix="Download the missing files",
            )
        )
    parts = tuple(modules[f"{parent}.{leaf}"] for leaf in leaves)
    formats = {part.format or "float16" for part in parts}
    if len(formats) > 1 or len({part.k for part in parts}) > 1:
        found = ", ".join(
            f"{part.name.rpartition('.')[2]} {part.format or 'float16'} K={part.k}" for part in parts
        )
        raise CheckpointError(
            describe(
                asked=f"{parent}: {found}",
                allowed="one format and one K, since vLLM fuses them into one layer",
                fix="Quantize the model again with the same scheme for all of them",
            )
        )
    return parts


def _layer(
    name: str, split: Split, parts: tuple[Module, ...], n: int, k: int, shards: tuple[int, ...] = ()
) -> LocalLayer:
    first = parts[0]
    stored = sum(part.nbytes for part in parts)
    total = sum(part.n * part.k for part in parts)
    if first.format is None:
        nbytes = n * k * FP16_BYTES
    elif first.format in FORMATS:
        nbytes = FORMATS[first.format].weight_bytes(n, k)
    else:
        nbytes = -(-stored * n * k // total)
    bias_bytes = n * FP16_BYTES if any(part.bias for part in parts) else 0
    return LocalLayer(name, split, n, k, first.format, nbytes, bias_bytes, shards)


def _bank(name: str, modules: list[Module], tp: int) -> LocalLayer:
    formats = {module.format for module in modules}
    quantized = next(iter(sorted(item for item in formats if item is not None)), None)
    stored = sum(module.nbytes for module in modules)
    return LocalLayer(name, Split.EXPERTS, 0, 0, quantized, -(-stored // tp))


def _check_heads(shape: ModelShape, tp: int) -> None:
    if tp < 1:
        raise ArgumentError(
            describe(asked=f"--tp {tp}", allowed="1 and above", fix="Pass the number of GPUs")
        )
    fits_kv = shape.kv_heads % tp == 0 or tp % shape.kv_heads == 0
    if shape.heads % tp or not fits_kv:
        good = [
            str(ranks)
            for ranks in range(1, shape.heads + 1)
            if shape.heads % ranks == 0 and (shape.kv_heads % ranks == 0 or ranks % shape.kv_heads == 0)
        ]
        raise ArgumentError(
            describe(
                asked=f"--tp {tp} for {shape.heads} heads and {shape.kv_heads} key-value heads",
                allowed=f"--tp {', '.join(good)}",
                fix="Pass one of these",
            )
        )


def _divide(name: str, what: str, size: int, tp: int) -> int:
    if size % tp:
        raise ArgumentError(
            describe(
                asked=f"--tp {tp} for {name} with {what} {size}",
                allowed=f"divisors of {size}",
                fix="Pass another --tp",
            )
        )
    return size // tp


def _padded(vocab: int) -> int:
    return -(-vocab // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE


def _unlike(part: Module, expected: str) -> CheckpointError:
    return CheckpointError(
        describe(
            asked=f"{part.name} with N={part.n}",
            allowed=f"what config.json says: {expected}",
            fix="Download config.json and the weights again, from the same revision",
        )
    )
