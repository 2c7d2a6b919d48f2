"""Reads safetensors files with numpy alone: 8 bytes of header length, a JSON header, then the raw tensors."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

LENGTH_BYTES = 8

# 8-bit floats have no numpy type: their bytes are returned as they are, for the caller to decode.
NUMPY_TYPES = {"U8": "<u1", "F8_E4M3": "<u1", "F16": "<f2", "F32": "<f4"}


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: its safetensors dtype name, its shape, and its byte range in `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def list_tensors(folder: Path) -> dict[str, TensorEntry]:
    """Return every tensor of the safetensors files in `folder`, by name.

    Raises FileNotFoundError where there is no such file, ValueError where two files hold the same name.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no .safetensors file")
    entries: dict[str, TensorEntry] = {}
    for path in files:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            header = json.loads(stream.read(length))
        base = LENGTH_BYTES + length
        for name, item in header.items():
            if name == "__metadata__":
                continue
            if name in entries:
                raise ValueError(f"{name} is in {entries[name].path.name} and in {path.name}")
            start, end = item["data_offsets"]
            entries[name] = TensorEntry(path, item["dtype"], tuple(item["shape"]), base + start, base + end)
    return entries


def read_tensor(entry: TensorEntry) -> npt.NDArray[np.generic]:
    """Return one tensor, F8_E4M3 as its uint8 bytes; raises ValueError for a dtype not in NUMPY_TYPES."""
    if entry.dtype not in NUMPY_TYPES:
        raise ValueError(f"dtype {entry.dtype} is not one of {sorted(NUMPY_TYPES)} ({entry.path.name})")
    dtype = np.dtype(NUMPY_TYPES[entry.dtype])
    count = (entry.end - entry.start) // dtype.itemsize
    return np.fromfile(entry.path, dtype=dtype, count=count, offset=entry.start).reshape(entry.shape)
