"""Finding a model's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sm70_tools.errors import CheckpointError
from sm70_tools.explain.checkpoint import load
from tools_checkpoints import (
    compressed_tensors,
    linear_tensors,
    llama_config,
    llama_tensors,
    write_checkpoint,
    write_safetensors,
    write_sharded,
)

if TYPE_CHECKING:
    from pathlib import Path


def _message(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    return str(caught.value).replace(str(path), "PATH")


def test_a_folder_of_one_file(tmp_path: Path) -> None:
    checkpoint = load(write_checkpoint(tmp_path / "model", llama_config(), llama_tensors()))
    assert checkpoint.name == "model"
    assert checkpoint.quantization is None
    assert checkpoint.tensors is not None
    assert set(checkpoint.tensors) == set(llama_tensors())


def test_a_configuration_alone(tmp_path: Path) -> None:
    config = llama_config(quantization_config=compressed_tensors())
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = load(tmp_path / "config.json")
    assert (checkpoint.name, checkpoint.tensors) == ("config.json", None)
    assert checkpoint.quantization == compressed_tensors()


@pytest.mark.parametrize("place", ["quantization_config", "compression_config"])
def test_the_quantization_may_stand_beside_the_text_model(tmp_path: Path, place: str) -> None:
    config = {"text_config": llama_config(**{place: compressed_tensors()})}
    assert load(write_checkpoint(tmp_path, config, llama_tensors())).quantization == compressed_tensors()


def test_the_file_of_older_modelopt_exports_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, llama_config(), llama_tensors("modelopt"))
    legacy = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(legacy))
    assert load(tmp_path).quantization == {"quant_method": "modelopt", **legacy}


def test_shards_with_an_index(tmp_path: Path) -> None:
    shards = {
        "model-00001-of-00002.safetensors": linear_tensors("a", 16, 16, "dense"),
        "model-00002-of-00002.safetensors": linear_tensors("b", 16, 16, "dense"),
    }
    write_sharded(tmp_path, llama_config(), shards)
    write_safetensors(tmp_path / "consolidated.safetensors", linear_tensors("a", 16, 16, "dense"))
    tensors = load(tmp_path).tensors
    assert tensors is not None
    assert {name: info.file for name, info in tensors.items()} == {
        "a.weight": "model-00001-of-00002.safetensors",
        "b.weight": "model-00002-of-00002.safetensors",
    }


def test_missing_shards_are_named(tmp_path: Path) -> None:
    files = [f"model-{number:05d}-of-00005.safetensors" for number in range(1, 6)]
    shards = {file: linear_tensors(f"m{index}", 16, 16, "dense") for index, file in enumerate(files)}
    write_sharded(tmp_path, llama_config(), shards)
    for file in files[1:]:
        (tmp_path / file).unlink()
    assert _message(tmp_path) == (
        "PATH: 4 of 5 shards are missing: model-00002-of-00005.safetensors, "
        "model-00003-of-00005.safetensors, "
        "model-00004-of-00005.safetensors and 1 more. Allowed: every file that "
        "model.safetensors.index.json names. "
        "Download the missing files."
    )


def test_an_index_that_names_tensors_which_are_not_there(tmp_path: Path) -> None:
    write_sharded(tmp_path, llama_config(), {"a.safetensors": linear_tensors("a", 16, 16, "dense")})
    index = {"weight_map": {"a.weight": "a.safetensors", "b.weight": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert _message(tmp_path).startswith(
        "PATH: 1 tensors are not where model.safetensors.index.json says: b.weight."
    )


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_without_a_map(tmp_path: Path, index: object) -> None:
    write_checkpoint(tmp_path, llama_config(), llama_tensors())
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "which has no usable weight_map" in _message(tmp_path)


def test_one_tensor_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama_config()))
    for file in ("a.safetensors", "b.safetensors"):
        write_safetensors(tmp_path / file, linear_tensors("x", 16, 16, "dense"))
    assert _message(tmp_path).startswith(
        "PATH: the tensor 'x.weight' is in a.safetensors and in b.safetensors."
    )


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, llama_config(), llama_tensors())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert _message(tmp_path).startswith("PATH/model.safetensors: the tensor 'lm_head.weight' ends at byte")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert _message(tmp_path / "nothing") == (
        "the model 'PATH', which does not exist. Allowed: the folder of a checkpoint, or a config.json. "
        "Download the model first and pass its folder."
    )


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", llama_tensors())
    assert _message(tmp_path).startswith("PATH, which holds no config.json.")


def test_a_folder_without_weights_points_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama_config()))
    assert _message(tmp_path).endswith(
        "Download the weights, or pass the config.json itself to derive the layers from it."
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "reading PATH/config.json, but "),
        (b"\xff", "reading PATH/config.json, but "),
        (b"[]", "PATH/config.json, which holds a JSON list."),
    ],
)
def test_a_configuration_that_is_no_object(tmp_path: Path, content: bytes, expected: str) -> None:
    write_checkpoint(tmp_path, {}, llama_tensors())
    (tmp_path / "config.json").write_bytes(content)
    assert _message(tmp_path).startswith(expected)
