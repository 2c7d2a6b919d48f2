"""Build hook: compiles csrc/sm70_kernels.cu into one fat binary with NVRTC and nvFatbin from PyPI.

Neither nvcc nor a GPU is needed, and the bytes depend on the sources and the pinned compiler alone, so the
wheel is `py3-none-any` and reproducible.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class CudaBuildHook(BuildHookInterface[Any]):
    """Compiles the kernels before the wheel is assembled, for editable installs too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Write src/sm70_kernels_cuda/binaries/sm70_kernels.fatbin and let the wheel include it."""
        sys.path.insert(0, str(ROOT))
        try:
            from build_support.fatbin import build_fatbin
        finally:
            sys.path.pop(0)
        target = ROOT / "src" / "sm70_kernels_cuda" / "binaries" / "sm70_kernels.fatbin"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(build_fatbin(ROOT))
