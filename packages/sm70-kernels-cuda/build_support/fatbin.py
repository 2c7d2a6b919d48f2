"""One fat binary out of the package's sources: a cubin for each architecture and PTX for what comes later."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from build_support.libraries import BuildError, load
from build_support.nvrtc import compile_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ARCHITECTURES = ("70", "75", "80", "90a", "100")
"""Cubins of the wheel. A cubin also runs on later cards of its own major version: sm_80 on 8.6 and 8.9."""

PTX_ARCHITECTURE = "80"
"""The driver compiles this for cards of a later major version. Below 8.0 only the cubins count."""


def include_folders(root: Path) -> list[Path]:
    """Folders that the kernel sources include from, relative to the package's root."""
    return [root / "include", root / "csrc", root / "src" / "sm70_kernels_cuda" / "layouts"]


_LAYOUT_ABI = re.compile(r"^#define SM70_LAYOUT_ABI (\d+)$", re.MULTILINE)


def identifier(root: Path) -> bytes:
    """Name of each part of the fat binary. It stands there as plain bytes, and says what layouts are read.

    Raises:
        BuildError: layout_abi.cuh does not say it.
    """
    header = root / "src" / "sm70_kernels_cuda" / "layouts" / "layout_abi.cuh"
    match = _LAYOUT_ABI.search(header.read_text(encoding="utf-8"))
    if match is None:
        message = f"{header} does not define SM70_LAYOUT_ABI as a number"
        raise BuildError(message)
    return f"sm70_kernels_layout_abi_{match[1]}".encode()


def build_fatbin(
    root: Path,
    architectures: Sequence[str] = ARCHITECTURES,
    ptx: str | None = PTX_ARCHITECTURE,
    defines: Sequence[str] = (),
) -> bytes:
    """Compile csrc/sm70_kernels.cu and pack the results.

    Args:
        root: Root folder of the package's source tree.
        architectures: Compute capabilities to compile cubins for.
        ptx: Compute capability to compile PTX for; None leaves it out.
        defines: Preprocessor names for every compilation.
    """
    source = root / "csrc" / "sm70_kernels.cu"
    folders = include_folders(root)
    packer = _Packer(identifier(root))
    for architecture in architectures:
        packer.add_cubin(compile_source(source, f"sm_{architecture}", folders, defines), architecture)
    if ptx is not None:
        packer.add_ptx(compile_source(source, f"compute_{ptx}", folders, defines), ptx)
    return packer.finish()


class _Packer:
    """nvFatbin by ctypes."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._library = load("nvfatbin/lib/libnvfatbin.so.12", "nvidia-nvfatbin-cu12==12.9.82")
        self._handle = ctypes.c_void_p()
        options = (ctypes.c_char_p * 2)(b"-64", b"-compress-all")
        self._check(self._library.nvFatbinCreate(ctypes.byref(self._handle), options, ctypes.c_size_t(2)))

    def add_cubin(self, cubin: bytes, architecture: str) -> None:
        size = ctypes.c_size_t(len(cubin))
        self._check(
            self._library.nvFatbinAddCubin(self._handle, cubin, size, architecture.encode(), self._name)
        )

    def add_ptx(self, ptx: bytes, architecture: str) -> None:
        size = ctypes.c_size_t(len(ptx))
        self._check(
            self._library.nvFatbinAddPTX(self._handle, ptx, size, architecture.encode(), self._name, b"")
        )

    def finish(self) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library.nvFatbinSize(self._handle, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(self._library.nvFatbinGet(self._handle, buffer))
        self._check(self._library.nvFatbinDestroy(ctypes.byref(self._handle)))
        return buffer.raw

    def _check(self, result: int) -> None:
        if result:
            self._library.nvFatbinGetErrorString.restype = ctypes.c_char_p
            message = f"nvFatbin: {self._library.nvFatbinGetErrorString(result).decode()}"
            raise BuildError(message)
