"""Build CUDA kernels for the CPU with g++ and run them on numpy arrays, with every memory access checked."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

EMULATOR_INCLUDE = Path(__file__).resolve().parent / "include"
# "" for headers without a suffix, such as nv/target.
HEADER_SUFFIXES = frozenset({".h", ".hpp", ".cuh", ".cpp", ".inc", ""})
# cudaMalloc aligns to 256 bytes; kernels may rely on that.
BUFFER_ALIGNMENT = 256
SMALLEST_GUARD = 1 << 16
COMPILER_FLAGS = (
    "-std=c++17",
    "-DSM70_EMULATED=1",
    "-O2",
    "-fPIC",
    "-shared",
    # Several libraries live in one process: none may share another's emulator state.
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    # nvcc does not use strict aliasing either.
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
)


class BuildError(RuntimeError):
    """The kernel could not be compiled for the CPU."""


class KernelError(RuntimeError):
    """The emulator stopped a kernel; the text names the place and the operation."""


class DeviceBuffer:
    """One argument array of a kernel, copied into guarded memory as `cudaMalloc` would hand it out.

    `array` is the copy, with the same shape and dtype: fill it before the launch, read results from it after.
    The address is a multiple of 256 bytes, and at least as many unregistered bytes as the array has, 65536 or
    more, lie on either side, so that an access out of bounds does not land in another buffer.
    """

    def __init__(
        self, name: str, array: NDArray[Any], *, writable: bool = False, from_previous_kernel: bool = False
    ) -> None:
        """Copy `array`; the kernel may store to it only when `writable`.

        `from_previous_kernel` says that the kernel ahead in the stream writes it and may still run: each
        thread must call wait_for_previous_kernel before it loads from this buffer or stores to any.
        """
        guard = max(SMALLEST_GUARD, array.nbytes)
        storage = np.empty(array.nbytes + 2 * guard + BUFFER_ALIGNMENT, np.uint8)
        start = guard + (-(storage.ctypes.data + guard)) % BUFFER_ALIGNMENT
        self.name = name
        self.writable = writable
        self.from_previous_kernel = from_previous_kernel
        self.array: NDArray[Any] = (
            storage[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        )
        self.array[...] = array

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return int(self.array.ctypes.data)


class _CBuffer(ctypes.Structure):
    """The layout of sm70_emulator::Buffer."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_int32),
        ("from_previous_kernel", ctypes.c_int32),
        ("name", ctypes.c_char_p),
    )


CValue = ctypes.c_int64 | ctypes.c_uint32 | ctypes.c_char_p | ctypes.c_void_p | ctypes.Structure
Argument = DeviceBuffer | int | float | CValue


def _c_argument(value: Argument) -> ctypes.c_int | ctypes.c_float | CValue:
    """Turn an argument into what the C prototype expects: pointer, int, float, or the given value."""
    if isinstance(value, DeviceBuffer):
        return ctypes.c_void_p(value.address)
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, int):
        return ctypes.c_int(value)
    return value


@dataclass(frozen=True)
class EmulatedLibrary:
    """A compiled host file whose exported functions launch kernels in the emulator."""

    path: Path
    library: ctypes.CDLL

    def call(self, name: str, *arguments: Argument, registered: Sequence[DeviceBuffer] = ()) -> None:
        """Call `const char* name(const Buffer* buffers, int count, arguments...)`, raise what it returns.

        Every DeviceBuffer among `arguments` is registered for the launch and passed as its address;
        `registered` adds buffers that the kernel reaches in another way, such as through a parameter struct.
        Python ints are passed as `int`, floats as `float`.

        Raises KernelError with the emulator's text, and AttributeError when the library exports no such name.
        """
        buffers = [*registered, *(value for value in arguments if isinstance(value, DeviceBuffer))]
        table = (_CBuffer * len(buffers))(
            *(
                _CBuffer(
                    buffer.address,
                    buffer.array.nbytes,
                    int(buffer.writable),
                    int(buffer.from_previous_kernel),
                    buffer.name.encode(),
                )
                for buffer in buffers
            )
        )
        function = getattr(self.library, name)
        function.restype = ctypes.c_char_p
        error: bytes | None = function(table, len(buffers), *(_c_argument(value) for value in arguments))
        if error is not None:
            raise KernelError(error.decode(errors="replace"))


def cuda_include_dir() -> Path:
    """Return the folder of `cuda_fp16.h` in the CUDA runtime's wheel; raise BuildError if it is absent."""
    try:
        roots = [Path(root) for root in importlib.import_module("nvidia").__path__]
    except ModuleNotFoundError:
        roots = []
    for root in roots:
        for header in sorted(root.glob("*/include/cuda_fp16.h")):
            return header.parent
    message = (
        f"no cuda_fp16.h under the nvidia packages {[str(root) for root in roots]}; install "
        "nvidia-cuda-runtime-cu12 (12.9.79 is tested)"
    )
    raise BuildError(message)


def _compiler_path(compiler: str) -> str:
    """Return the compiler's full path; raise BuildError when it is not installed."""
    path = shutil.which(compiler)
    if path is None:
        message = f"the C++ compiler {compiler!r} is not on PATH; the emulator needs g++ 10 or newer"
        raise BuildError(message)
    return path


def _content_hash(command: Iterable[str], source: str, folders: Iterable[Path]) -> str:
    """Hash everything that decides the result of a build: command, source and all headers in the folders."""
    digest = hashlib.sha256("\0".join(command).encode())
    digest.update(source.encode())
    for folder in folders:
        for header in sorted(folder.rglob("*")):
            if header.suffix in HEADER_SUFFIXES and header.is_file():
                digest.update(f"\0{header.relative_to(folder)}\0".encode())
                digest.update(header.read_bytes())
    return digest.hexdigest()[:32]


def _compile(command: Sequence[str], source: str, origin: str, output: Path) -> None:
    """Compile `source` to `output`, which appears only once complete; quote the compiler in a BuildError."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        # The line directive keeps the source's own name in messages.
        unit = Path(folder) / "unit.cpp"
        unit.write_text(f'#line 1 "{origin}"\n{source}', encoding="utf-8")
        partial = Path(folder) / output.name
        result = subprocess.run(
            [*command, str(unit), "-o", str(partial)], capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            message = f"{command[0]} failed on {origin} (exit status {result.returncode}):\n{result.stderr}"
            raise BuildError(message)
        os.replace(partial, output)  # noqa: PTH105 - atomic, also against a second test process


def build(
    source: str | Path,
    *,
    cache_dir: Path,
    include_dirs: Sequence[Path] = (),
    defines: Mapping[str, str] | None = None,
    compiler: str = "g++",
) -> EmulatedLibrary:
    """Compile a host file, or source text, for the CPU and load it.

    A file's own folder is searched for its includes, then `include_dirs`, then the emulator and the CUDA
    headers. The library is kept in `cache_dir` under a hash of the source, all headers in those folders and
    the command.

    Raises BuildError when the compiler or the CUDA headers are missing or the compiler fails.
    """
    if isinstance(source, str):
        text, origin, own_folder = source, "<source text>", []
    else:
        text, origin, own_folder = source.read_text("utf-8"), str(source), [source.resolve().parent]
    folders = [*own_folder, *include_dirs, EMULATOR_INCLUDE]
    command = [
        _compiler_path(compiler),
        *COMPILER_FLAGS,
        *(f"-D{name}={value}" for name, value in sorted((defines or {}).items())),
        *(f"-I{folder}" for folder in folders),
        f"-isystem{cuda_include_dir()}",
        f"-idirafter{EMULATOR_INCLUDE / 'toolkit_headers'}",
    ]
    output = cache_dir / f"{_content_hash([*command, origin], text, folders)}.so"
    if not output.exists():
        _compile(command, text, origin, output)
    return EmulatedLibrary(output, ctypes.CDLL(str(output)))
