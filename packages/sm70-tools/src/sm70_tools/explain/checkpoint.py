"""Finds the files of a model: its configuration and the tensors of its shards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sm70_policy.errors import describe
from sm70_tools.errors import CheckpointError
from sm70_tools.explain.safetensors import TensorInfo, read_header

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_NAMED = 3


@dataclass(frozen=True)
class Checkpoint:
    """A model's files.

    Attributes:
        name: Last part of its path.
        config: Content of `config.json`.
        quantization: The quantization configuration; None for a model without one.
        tensors: Tensors by name; None when only a configuration was given.
    """

    name: str
    config: dict[str, Any]
    quantization: dict[str, Any] | None
    tensors: dict[str, TensorInfo] | None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint's folder, or a `config.json` alone.

    Raises:
        CheckpointError: A file is missing or damaged. The message names it.
    """
    if path.is_file():
        config = read_json(path)
        return Checkpoint(path.name, config, _quantization(config, None), None)
    if not path.is_dir():
        raise CheckpointError(
            describe(
                asked=f"the model {str(path)!r}, which does not exist",
                allowed="the folder of a checkpoint, or a config.json",
                fix="Download the model first and pass its folder",
            )
        )
    config_file = path / "config.json"
    if not config_file.is_file():
        raise CheckpointError(
            describe(
                asked=f"{path}, which holds no config.json",
                allowed="a folder with config.json and *.safetensors",
                fix="Pass the folder that the model's files were downloaded to",
            )
        )
    config = read_json(config_file)
    return Checkpoint(path.resolve().name, config, _quantization(config, path), _read_shards(path))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: The file cannot be read or holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            describe(
                asked=f"reading {path}, but {error}",
                allowed="a JSON object",
                fix="Download or copy the file again",
            )
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            describe(
                asked=f"{path}, which holds a JSON {type(content).__name__}",
                allowed="a JSON object",
                fix="Download or copy the file again",
            )
        )
    return content


def _quantization(config: dict[str, Any], folder: Path | None) -> dict[str, Any] | None:
    nested = config.get("text_config")
    for place in (config, nested if isinstance(nested, dict) else {}):
        found = place.get("quantization_config") or place.get("compression_config")
        if isinstance(found, dict):
            return found
    # Older ModelOpt exports keep it in a file of its own.
    legacy = None if folder is None else folder / "hf_quant_config.json"
    if legacy is not None and legacy.is_file():
        return {"quant_method": "modelopt", **read_json(legacy)}
    return None


def _read_shards(folder: Path) -> dict[str, TensorInfo]:
    index = folder / _INDEX
    if index.is_file():
        return _read_indexed(folder, read_json(index))
    files = [folder / _SINGLE] if (folder / _SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(
            describe(
                asked=f"{folder}, which holds no *.safetensors file",
                allowed="a folder with the model's weights",
                fix="Download the weights, or pass the config.json itself to derive the layers from it",
            )
        )
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, info in read_header(file).items():
            if name in tensors:
                raise CheckpointError(
                    describe(
                        asked=f"{folder}: the tensor {name!r} is in {tensors[name].file} and in {info.file}",
                        allowed="each tensor once",
                        fix=f"Remove the file that does not belong to the model, or add {_INDEX}",
                    )
                )
            tensors[name] = info
    return tensors


def _read_indexed(folder: Path, index: dict[str, Any]) -> dict[str, TensorInfo]:
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise CheckpointError(
            describe(
                asked=f"{folder / _INDEX}, which has no usable weight_map",
                allowed="an object that maps tensor names to file names",
                fix="Download or copy the file again",
            )
        )
    files = sorted(set(places.values()))
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise CheckpointError(
            describe(
                asked=f"{folder}: {len(missing)} of {len(files)} shards are missing: {_some(missing)}",
                allowed=f"every file that {_INDEX} names",
                fix="Download the missing files",
            )
        )
    found = {file: read_header(folder / file) for file in files}
    lost = [name for name, file in places.items() if name not in found[file]]
    if lost:
        raise CheckpointError(
            describe(
                asked=f"{folder}: {len(lost)} tensors are not where {_INDEX} says: {_some(lost)}",
                allowed="an index that agrees with the files",
                fix="Download the index and the weights again, from the same revision",
            )
        )
    return {name: found[file][name] for name, file in places.items()}


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
