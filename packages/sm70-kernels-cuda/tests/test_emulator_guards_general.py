"""The emulator must notice when the general kernel is broken: each case breaks one line of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulated_general import ONE_KERNEL, THE_ONE, EmulatedGeneral
from emulated_kernels import PACKAGE
from emulator.emulator import KernelError
from nvfp4_oracle import random_checkpoint
from sm70_kernels_cuda.launch import AMPERE_ATOM, ATOMS, Atom

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

GEMM = "include/sm70/gemm/general_nvfp4.cuh"
OUTSIDE = "outside|bounds|not in|no registered"
SLAB_BARRIER = "      __syncthreads();  // the next slab is complete, and this one's buffer is free\n"
FAULTS = {
    "no barrier before the first slab": (
        "  x.finish(0);\n  __syncthreads();",
        "  x.finish(0);",
        "uninitialised|race",
    ),
    "no barrier between slabs": (SLAB_BARRIER, "", "uninitialised|race"),
    "barrier of some warps": (
        SLAB_BARRIER,
        SLAB_BARRIER.replace("__sync", "if (place.warp_k != 1) __sync"),
        "barrier|deadlock|race",
    ),
    "one buffer instead of two": (
        "return slab % 2 * Shape::kBufferPieces;",
        "return slab * 0 * Shape::kBufferPieces;",
        "race",
    ),
    "x beyond M is read": ("i * kTokenStep < tokens_ && column_ < k_", "column_ < k_", OUTSIDE),
    "x beyond K is read": (
        "i * kTokenStep < tokens_ && column_ < k_",
        "i * kTokenStep < tokens_",
        OUTSIDE,
    ),
    "weights beyond K are read": (
        "return Place<Shape>::layout_block(slab, warp_k_) < blocks_;",
        "return true;",
        OUTSIDE,
    ),
    "weights beyond N are read": (
        "weight_tile(args, first + f * Atom::kTiles + lane.tile)",
        "(first + f * Atom::kTiles + lane.tile)",
        OUTSIDE,
    ),
    "results beyond M and N are written": (
        "if (m >= args.m || n >= args.n) continue;",
        "",
        f"{OUTSIDE}|race",
    ),
    "no barrier before the sum": (
        "    __syncthreads();\n    if (args.gated)",
        "    if (args.gated)",
        "uninitialised|race",
    ),
    "no barrier before the next pass": (
        "    if (first > 0) __syncthreads();  // the previous pass has been read\n",
        "",
        "race",
    ),
    "sums beyond the shared memory": (
        "partial.store((tile_token + token) *",
        "partial.store((tile_token + token + 1) *",
        "bounds|span",
    ),
}


def _build_broken(line: str, broken: str, atom: Atom, folder: Path) -> EmulatedGeneral:
    for name in ("include", "csrc", "src"):
        shutil.copytree(PACKAGE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / GEMM).read_text(encoding="utf-8")
    assert source.count(line) == 1, "the line to break has changed"
    (folder / GEMM).write_text(source.replace(line, broken), encoding="utf-8")
    return EmulatedGeneral.build(atom, folder / "cache", source=ONE_KERNEL, root=folder)


def _run(kernels: EmulatedGeneral) -> NDArray[np.float16]:
    rng = np.random.default_rng(70)
    weight = random_checkpoint(rng, 90, 1040)
    x = rng.standard_normal((70, 1040)).astype(np.float16)
    return kernels.run(THE_ONE, weight, x, None)


@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_stopped(fault: str, atom: Atom, tmp_path: Path) -> None:
    line, broken, text = FAULTS[fault]
    with pytest.raises(KernelError, match=text):
        _run(_build_broken(line, broken, atom, tmp_path))


def test_a_copy_that_is_not_finished_leaves_nans(tmp_path: Path) -> None:
    kernels = _build_broken("if (more) x.finish(slab + 1);", "", AMPERE_ATOM, tmp_path)
    assert np.isnan(_run(kernels)).all()
