import json
from pathlib import Path

import numpy as np
import pytest

from sm70_demo.tensor_file import list_tensors, read_tensor


def write_file(path: Path, header: dict[str, object], payload: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + payload)


def test_tensors_are_found_in_several_files(tmp_path: Path) -> None:
    halves = np.array([[1.5, -2.0]], dtype="<f2")
    header: dict[str, object] = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [3, 7]},
    }
    write_file(tmp_path / "model-1.safetensors", header, bytes([7, 8, 9]) + halves.tobytes())
    other: dict[str, object] = {"c": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    write_file(tmp_path / "model-2.safetensors", other, bytes([0x7E]))
    entries = list_tensors(tmp_path)
    assert sorted(entries) == ["a", "b", "c"]
    assert read_tensor(entries["a"]).tolist() == [7, 8, 9]
    assert read_tensor(entries["b"]).tolist() == [[1.5, -2.0]]
    assert read_tensor(entries["c"]).tolist() == [0x7E]


def test_folder_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no \.safetensors file"):
        list_tensors(tmp_path)


def test_name_in_two_files_is_refused(tmp_path: Path) -> None:
    header: dict[str, object] = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    write_file(tmp_path / "x.safetensors", header, b"0")
    write_file(tmp_path / "y.safetensors", header, b"0")
    with pytest.raises(ValueError, match=r"a is in x\.safetensors and in y\.safetensors"):
        list_tensors(tmp_path)


def test_unknown_dtype_is_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "x.safetensors", {"a": {"dtype": "I4", "shape": [1], "data_offsets": [0, 1]}}, b"0")
    with pytest.raises(ValueError, match="dtype I4 is not one of"):
        read_tensor(list_tensors(tmp_path)["a"])
