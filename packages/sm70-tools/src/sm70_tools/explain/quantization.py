"""Which module of a checkpoint is quantized, and how, as its configuration says."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any

from sm70_policy.errors import describe
from sm70_policy.formats import MXFP4, NVFP4
from sm70_tools.errors import CheckpointError

_EVERY_LINEAR = "Linear"
_REGEX = "re:"
_MODELOPT_FORMATS = {"NVFP4": NVFP4.name, "W4A16_NVFP4": NVFP4.name, "FP8": "fp8-tensor"}
_DEFAULT_BITS = 16


@dataclass(frozen=True)
class Group:
    """Modules that are quantized alike.

    Attributes:
        targets: Module names, `re:` expressions, or `Linear` for every linear layer.
        format: Name of the format; the suite's own name where it knows the format.
        bits: Bits of one weight.
    """

    targets: tuple[str, ...]
    format: str
    bits: int


@dataclass(frozen=True)
class Scheme:
    """The quantization of a whole checkpoint.

    Attributes:
        method: The library that wrote it, such as `compressed-tensors`; `none` without quantization.
        groups: Quantized modules. The first group with a matching target counts.
        ignore: Modules that stay unquantized.
        wildcards: Whether `ignore` holds shell wildcards and parts of names instead of `re:` expressions.
    """

    method: str
    groups: tuple[Group, ...] = ()
    ignore: tuple[str, ...] = ()
    wildcards: bool = False

    def group_of(self, module: str) -> Group | None:
        """The group that a linear module belongs to; None for one that is not quantized."""
        if any(self._ignores(module, pattern) for pattern in self.ignore):
            return None
        for group in self.groups:
            if any(target == _EVERY_LINEAR or _matches(module, target) for target in group.targets):
                return group
        return None

    def _ignores(self, module: str, pattern: str) -> bool:
        if not self.wildcards:
            return _matches(module, pattern)
        # vLLM also takes a part of the name: older ModelOpt wrote folders of modules without a wildcard.
        return pattern in module or fnmatch.fnmatchcase(module, pattern)


def parse_scheme(config: dict[str, Any] | None) -> Scheme:
    """Read a quantization configuration.

    Raises:
        CheckpointError: The configuration is malformed.
    """
    if config is None:
        return Scheme("none")
    method = str(config.get("quant_method", "")).lower()
    if method in {"compressed-tensors", "compressed_tensors"}:
        return _compressed_tensors(config)
    if method.startswith("modelopt"):
        nested = config.get("quantization")
        return _modelopt(nested if isinstance(nested, dict) else config)
    bits = config.get("bits", 8 if method == "fp8" else 4)
    details = [method or "unnamed"]
    if method in {"awq", "gptq"}:
        details += [f"int{bits}", f"g{config.get('group_size', 128)}"]
    if method == "fp8" and config.get("weight_block_size"):
        details.append("block")
    ignore = _strings(config, "modules_to_not_convert")
    group = Group((_EVERY_LINEAR,), "-".join(details), bits if isinstance(bits, int) else 4)
    return Scheme(method or "unnamed", (group,), ignore, wildcards=True)


def _compressed_tensors(config: dict[str, Any]) -> Scheme:
    entries = config.get("config_groups")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise _malformed("config_groups", entries, "an object of groups")
    groups = []
    for entry in entries.values():
        weights = entry.get("weights")
        if not isinstance(weights, dict):
            continue
        bits = weights.get("num_bits")
        targets = _strings(entry, "targets")
        groups.append(
            Group(targets, _weights_format(weights), bits if isinstance(bits, int) else _DEFAULT_BITS)
        )
    return Scheme("compressed-tensors", tuple(groups), _strings(config, "ignore"))


def _weights_format(weights: dict[str, Any]) -> str:
    kind, bits, strategy, group_size = (
        weights.get(key) for key in ("type", "num_bits", "strategy", "group_size")
    )
    if (kind, bits, strategy, group_size) == ("float", NVFP4.code_bits, "tensor_group", NVFP4.group_size):
        return NVFP4.name
    if (kind, bits, group_size) == ("float", MXFP4.code_bits, MXFP4.group_size):
        return MXFP4.name
    parts = [f"{'fp' if kind == 'float' else kind}{bits}", str(strategy)]
    return "-".join([*parts, f"g{group_size}"] if group_size else parts)


def _modelopt(config: dict[str, Any]) -> Scheme:
    algorithm = str(config.get("quant_algo", "")).upper()
    ignore = _strings(config, "exclude_modules") + _strings(config, "ignore")
    layers = config.get("quantized_layers")
    if algorithm == "MIXED_PRECISION" and isinstance(layers, dict):
        groups = tuple(
            _modelopt_group((name,), str(entry.get("quant_algo", "")).upper(), entry)
            for name, entry in layers.items()
            if isinstance(entry, dict)
        )
        return Scheme("modelopt", groups, ignore, wildcards=True)
    group = _modelopt_group((_EVERY_LINEAR,), algorithm, config)
    return Scheme("modelopt", (group,), ignore, wildcards=True)


def _modelopt_group(targets: tuple[str, ...], algorithm: str, config: dict[str, Any]) -> Group:
    name = _MODELOPT_FORMATS.get(algorithm, algorithm.lower() or "unnamed")
    group_size = config.get("group_size") or NVFP4.group_size
    if name == NVFP4.name and group_size != NVFP4.group_size:
        name = f"{name}-g{group_size}"
    return Group(targets, name, 4 if "4" in algorithm else 8)


def _strings(config: dict[str, Any], key: str) -> tuple[str, ...]:
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _malformed(key, value, "a list of strings")
    return tuple(value)


def _matches(module: str, pattern: str) -> bool:
    if not pattern.startswith(_REGEX):
        return module == pattern
    try:
        return re.match(pattern.removeprefix(_REGEX), module) is not None
    except re.error as error:
        raise _malformed("ignore or targets", pattern, f"a regular expression ({error})") from error


def _malformed(key: str, value: object, allowed: str) -> CheckpointError:
    return CheckpointError(
        describe(
            asked=f"the quantization configuration with {key} = {value!r}",
            allowed=allowed,
            fix="Download the checkpoint's config.json again, or quantize the model again",
        )
    )
