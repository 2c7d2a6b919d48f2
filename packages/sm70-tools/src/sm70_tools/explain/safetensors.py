"""Reads headers of safetensors files: names, dtypes, shapes and sizes, without the data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import describe
from sm70_tools.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

_LENGTH_BYTES = 8
# The format's own limit, which keeps a damaged length from becoming a read of gigabytes.
_HEADER_LIMIT = 100_000_000
_AGAIN = "Download or copy the file again"

_DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
}

FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint.

    Attributes:
        dtype: By the name that safetensors uses, such as `BF16`.
        shape: Its sizes.
        nbytes: Bytes in the file.
        file: Name of the file that holds it.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Read the header of one file.

    Raises:
        CheckpointError: The file cannot be read, is shorter than it says, or its header is malformed.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            _check_length(path, size, length)
            raw = stream.read(length)
    except OSError as error:
        raise CheckpointError(
            describe(
                asked=f"reading {path}, but {error.strerror or error}",
                allowed="a readable file",
                fix="Check the path and its permissions",
            )
        ) from error
    return _parse(path, raw, size - _LENGTH_BYTES - length)


def _check_length(path: Path, size: int, length: int) -> None:
    if size < _LENGTH_BYTES:
        raise CheckpointError(
            describe(
                asked=f"{path}: a file of {size} bytes",
                allowed=f"at least the {_LENGTH_BYTES} bytes of the header's length: the file is truncated",
                fix=_AGAIN,
            )
        )
    if length > _HEADER_LIMIT:
        raise CheckpointError(
            describe(
                asked=f"{path}: a header of {length} bytes",
                allowed=f"up to {_HEADER_LIMIT} bytes: this is no safetensors file, or it is damaged",
                fix=_AGAIN,
            )
        )
    if length > size - _LENGTH_BYTES:
        raise CheckpointError(
            describe(
                asked=f"{path}: a header of {length} bytes in a file of {size} bytes",
                allowed="headers that end within the file: the file is truncated",
                fix=_AGAIN,
            )
        )


def _parse(path: Path, raw: bytes, data_bytes: int) -> dict[str, TensorInfo]:
    try:
        header = json.loads(raw)
    except ValueError as error:
        raise _malformed(path, f"a header that is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _malformed(path, f"a header that is a JSON {type(header).__name__}")
    return {
        name: _tensor(path, name, entry, data_bytes)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _tensor(path: Path, name: str, entry: Any, data_bytes: int) -> TensorInfo:  # noqa: ANN401 - any JSON value
    try:
        dtype, shape = str(entry["dtype"]), tuple(entry["shape"])
        begin, end = entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise _malformed(path, f"the entry {name!r} without dtype, shape and two data_offsets") from error
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or begin > end:
        raise _malformed(path, f"the entry {name!r} with shape {list(shape)} and offsets {begin} to {end}")
    if end > data_bytes:
        raise CheckpointError(
            describe(
                asked=f"{path}: the tensor {name!r} ends at byte {end} of the data",
                allowed=f"up to {data_bytes}, where the file ends: it is truncated",
                fix=_AGAIN,
            )
        )
    info = TensorInfo(dtype, shape, end - begin, path.name)
    bits = _DTYPE_BITS.get(dtype)
    if bits is not None and info.elements * bits != info.nbytes * 8:
        raise _malformed(path, f"the tensor {name!r} of {dtype} {list(shape)} in {info.nbytes} bytes")
    return info


def _malformed(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        describe(
            asked=f"{path}: {what}", allowed="headers as the safetensors format defines them", fix=_AGAIN
        )
    )
