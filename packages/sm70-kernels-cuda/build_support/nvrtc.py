"""NVRTC by ctypes: CUDA C++ source to a cubin or to PTX."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from build_support.libraries import BuildError, cuda_include, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def compile_source(
    source: Path, architecture: str, include: Sequence[Path], defines: Sequence[str] = ()
) -> bytes:
    """Compile one file.

    Args:
        source: The .cu file.
        architecture: `sm_70` and the like for a cubin, `compute_80` and the like for PTX.
        include: Folders for #include, besides CUDA's own.
        defines: Preprocessor names to define.

    Raises:
        BuildError: The compiler rejected the source; the message is its log.
    """
    library = load("cuda_nvrtc/lib/libnvrtc.so.12", "nvidia-cuda-nvrtc-cu12==12.9.86")
    program = ctypes.c_void_p()
    _check(
        library,
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None
        ),
    )
    folders = [*include, cuda_include()]
    options = [
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        *(f"--include-path={folder}" for folder in folders),
        *(f"--define-macro={name}" for name in defines),
    ]
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if library.nvrtcCompileProgram(program, len(options), encoded):
        log = _fetch(library, program, "ProgramLog").rstrip(b"\0").decode()
        message = f"NVRTC could not compile {source.name} for {architecture}:\n{log}"
        raise BuildError(message)
    result = _fetch(library, program, "CUBIN" if architecture.startswith("sm_") else "PTX")
    _check(library, library.nvrtcDestroyProgram(ctypes.byref(program)))
    return result


def _fetch(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(library: ctypes.CDLL, result: int) -> None:
    if result:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        message = f"NVRTC: {library.nvrtcGetErrorString(result).decode()}"
        raise BuildError(message)
