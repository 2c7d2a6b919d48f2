"""Where pip put NVIDIA's build-time libraries and headers."""

from __future__ import annotations

import ctypes
from pathlib import Path


class BuildError(RuntimeError):
    """The kernels could not be compiled; the message holds the compiler's own log."""


def find(relative: str, package: str) -> Path:
    """Return the path of a file or folder below the `nvidia` namespace package.

    Raises:
        BuildError: The pip package that brings it is not installed.
    """
    try:
        import nvidia
    except ImportError:
        roots: list[str] = []
    else:
        roots = list(nvidia.__path__)
    for root in roots:
        path = Path(root) / relative
        if path.exists():
            return path
    where = ", ".join(roots) or "any nvidia package: there is none"
    message = f"{relative} was not found below {where}; pip install {package}"
    raise BuildError(message)


def load(relative: str, package: str) -> ctypes.CDLL:
    """Load a shared library of one of NVIDIA's pip packages."""
    return ctypes.CDLL(str(find(relative, package)))


def cuda_include() -> Path:
    """Folder of cuda_fp16.h."""
    return find("cuda_runtime/include", "nvidia-cuda-runtime-cu12==12.9.79")
