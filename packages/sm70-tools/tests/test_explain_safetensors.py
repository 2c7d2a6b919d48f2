"""Headers of safetensors files: what is read, and the one clear error for each kind of damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sm70_tools.errors import CheckpointError
from sm70_tools.explain.safetensors import TensorInfo, read_header
from tools_checkpoints import header_of, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from tools_checkpoints import Tensors

TENSORS: Tensors = {
    "a.weight": ("BF16", (4, 6)),
    "a.scale": ("F8_E4M3", (4,)),
    "scalar": ("F32", ()),
    "empty": ("U8", (0, 3)),
}


def _write(path: Path, header: Any, data: int = 0) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(data))
    return path


def _message(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    return str(caught.value).replace(str(path), "FILE")


def test_a_valid_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", TENSORS)
    assert read_header(tmp_path / "m.safetensors") == {
        "a.weight": TensorInfo("BF16", (4, 6), 48, "m.safetensors"),
        "a.scale": TensorInfo("F8_E4M3", (4,), 4, "m.safetensors"),
        "scalar": TensorInfo("F32", (), 4, "m.safetensors"),
        "empty": TensorInfo("U8", (0, 3), 0, "m.safetensors"),
    }


def test_only_the_header_is_read(tmp_path: Path) -> None:
    # A hole of 64 GiB, which would not fit into memory.
    tensors: Tensors = {"x": ("U8", (64, 1 << 30))}
    write_safetensors(tmp_path / "m", tensors)
    assert read_header(tmp_path / "m")["x"].nbytes == 64 << 30


def test_elements_are_the_product_of_the_sizes() -> None:
    assert TensorInfo("U8", (3, 4, 5), 60, "f").elements == 60
    assert TensorInfo("F32", (), 4, "f").elements == 1


def test_a_dtype_of_the_future_is_taken_as_it_is(tmp_path: Path) -> None:
    path = _write(tmp_path / "m", {"x": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, 3)
    assert read_header(path)["x"] == TensorInfo("F6_E2M3", (4,), 3, "m")


def test_a_file_shorter_than_the_length_field(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"\x01\x02")
    assert _message(tmp_path / "m") == (
        "FILE: a file of 2 bytes. Allowed: at least the 8 bytes of the header's length: the file is "
        "truncated. "
        "Download or copy the file again."
    )


def test_an_absurd_header_length(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    assert _message(tmp_path / "m") == (
        "FILE: a header of 1152921504606846976 bytes. Allowed: up to 100000000 bytes: this is no "
        "safetensors file, "
        "or it is damaged. Download or copy the file again."
    )


def test_a_header_that_ends_beyond_the_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes((500).to_bytes(8, "little") + b"{}")
    assert _message(tmp_path / "m") == (
        "FILE: a header of 500 bytes in a file of 10 bytes. Allowed: headers that end within the file: "
        "the file is truncated. Download or copy the file again."
    )


def test_a_tensor_beyond_the_end_of_the_file(tmp_path: Path) -> None:
    header, size = header_of(TENSORS)
    path = _write(tmp_path / "m", header, size - 1)
    assert _message(path) == (
        "FILE: the tensor 'scalar' ends at byte 56 of the data. Allowed: up to 55, where the file ends: "
        "it is truncated. Download or copy the file again."
    )


@pytest.mark.parametrize("header", [b"not json", b'{"a": ', b"\xff\xfe{}", b""])
def test_a_header_that_is_not_json(tmp_path: Path, header: bytes) -> None:
    assert _message(_write(tmp_path / "m", header)).startswith("FILE: a header that is not JSON (")


def test_a_header_that_is_no_object(tmp_path: Path) -> None:
    assert _message(_write(tmp_path / "m", [1])).startswith("FILE: a header that is a JSON list.")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {"dtype": "U8", "shape": [1]},
        {"dtype": "U8", "data_offsets": [0, 1]},
        {"shape": [1], "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": [1], "data_offsets": [0]},
        {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]},
    ],
)
def test_an_entry_without_its_parts(tmp_path: Path, entry: Any) -> None:
    message = _message(_write(tmp_path / "m", {"x": entry}, 1))
    assert message.startswith("FILE: the entry 'x' without dtype, shape and two data_offsets.")


@pytest.mark.parametrize(
    ("shape", "offsets"), [([-1], [0, 1]), ([1.5], [0, 1]), ([1], [1, 0]), ([True], [0, 1]), ([1], [-1, 0])]
)
def test_sizes_that_no_tensor_has(tmp_path: Path, shape: list[Any], offsets: list[int]) -> None:
    header = {"x": {"dtype": "U8", "shape": shape, "data_offsets": offsets}}
    assert "the entry 'x' with shape" in _message(_write(tmp_path / "m", header, 1))


def test_bytes_that_do_not_agree_with_dtype_and_shape(tmp_path: Path) -> None:
    header = {"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 4]}}
    assert _message(_write(tmp_path / "m", header, 4)).startswith(
        "FILE: the tensor 'x' of BF16 [3] in 4 bytes."
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert _message(tmp_path / "m").startswith("reading FILE, but No such file or directory.")
