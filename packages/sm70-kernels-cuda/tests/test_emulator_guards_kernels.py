"""The emulator must notice when the package's own kernels are broken: each case breaks one line of them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_kernels import PACKAGE, EmulatedKernels
from emulator.emulator import KernelError
from nvfp4_oracle import random_checkpoint
from sm70_kernels_cuda.launch import ATOMS, Atom, Variant

if TYPE_CHECKING:
    from pathlib import Path

GEMM = "include/sm70/gemm/qpn2_nvfp4.cuh"
FAULTS = {
    "no barrier before the sum": (
        GEMM,
        "    __syncthreads();\n    if (args.gated)",
        "    if (args.gated)",
        "uninitialised read",
    ),
    "no barrier before the next tile": (GEMM, "    if (i > 0) __syncthreads();", "    ", "race"),
    "barrier in a branch": (
        GEMM,
        "    __syncthreads();\n    if (args.gated)",
        "    if (warp_index != 1) __syncthreads();\n    if (args.gated)",
        "barrier|deadlock",
    ),
    "sum beyond the shared memory": (
        GEMM,
        "partial.store((warp_index * kTokenTile + token) * kPitch + row, value);",
        "partial.store((warp_index * kTokenTile + token + 1) * kPitch + row, value);",
        "bounds|span",
    ),
    "padding of K multiplied": (
        GEMM,
        "if (chunk_column >= k) break;",
        "",
        "outside|bounds|not in|no registered",
    ),
    "tokens not clamped": (
        GEMM,
        "(token < args.m ? token : args.m - 1)",
        "(token)",
        "outside|bounds|not in|no registered",
    ),
    "rows not clamped": (GEMM, "if (m >= args.m || n >= args.n) continue;", "", "outside|bounds|not in|race"),
}


@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_stopped(fault: str, atom: Atom, tmp_path: Path) -> None:
    file, line, broken, text = FAULTS[fault]
    for folder in ("include", "csrc", "src"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (tmp_path / file).read_text(encoding="utf-8")
    assert source.count(line) == 1, "the line to break has changed"
    (tmp_path / file).write_text(source.replace(line, broken), encoding="utf-8")
    kernels = EmulatedKernels.build(atom, tmp_path / "cache", root=tmp_path)

    rng = np.random.default_rng(70)
    weight = random_checkpoint(rng, 40, 384)
    x = rng.standard_normal((11, 384)).astype(np.float16)
    with pytest.raises(KernelError, match=text):
        kernels.run(Variant(2, 8), weight, x, None)
