"""The package's kernels in the emulator, for each atom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from build_support.fatbin import include_folders
from emulator.emulator import DeviceBuffer, EmulatedLibrary, build
from sm70_kernels_cuda import launch
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.nvfp4 import DequantizeArguments
from sm70_kernels_cuda.operands import LinearArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_oracle import Checkpoint

PACKAGE = Path(__file__).resolve().parents[1]
HOST = Path(__file__).resolve().parent / "emulated" / "nvfp4_host.cpp"

ATOM_DEFINES = {launch.VOLTA_ATOM: "SM70_VOLTA_ATOM", launch.TURING_ATOM: "SM70_TURING_ATOM"}
"""What a build for the CPU or for a newer card defines to get an atom of 7.x."""


def pack(weight: Checkpoint) -> NDArray[np.uint8]:
    """The weight in the resident layout."""
    n, k = weight.shape
    packed = Nvfp4Block(n, k).pack(torch.from_numpy(weight.codes), torch.from_numpy(weight.scales))
    return np.asarray(packed.numpy())


def poisoned(m: int, n: int, *, gated: bool) -> NDArray[np.float16]:
    """An output full of NaN for a weight of N rows."""
    return np.full((m, n // 2 if gated else n), np.nan, np.float16)


@dataclass(frozen=True)
class EmulatedKernels:
    """One build of the kernels for the CPU.

    Attributes:
        atom: What it multiplies with.
        library: The build.
        gated: Whether weights merge a gate and an up projection, so that y has half their rows.
    """

    atom: launch.Atom
    library: EmulatedLibrary
    gated: bool = False

    @classmethod
    def build(
        cls, atom: launch.Atom, cache: Path, source: Path = HOST, root: Path = PACKAGE
    ) -> EmulatedKernels:
        """Compile the kernels below `root` with g++ for one atom."""
        defines = {"SM70_EMULATED": "1"}
        if atom in ATOM_DEFINES:
            defines[ATOM_DEFINES[atom]] = "1"
        library = build(source, cache_dir=cache, include_dirs=include_folders(root), defines=defines)
        return cls(atom, library)

    def run(
        self,
        variant: launch.Variant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one QPN2 kernel on a NaN-poisoned output. Every access is checked by the emulator."""
        (n, k), m = weight.shape, x.shape[0]
        buffers = {
            "weight": DeviceBuffer("weight", pack(weight)),
            "x": DeviceBuffer("x", x),
            "y": DeviceBuffer("y", poisoned(m, n, gated=self.gated), writable=True),
            "row_factor": DeviceBuffer("row_factor", weight.row_factor),
        }
        if bias is not None:
            buffers["bias"] = DeviceBuffer("bias", bias)
        addresses = {name: buffer.address for name, buffer in buffers.items()}
        arguments = LinearArguments(**addresses, m=m, n=n, k=k, gated=self.gated)
        plan = launch.launch_variant(variant, n, self.atom)
        self.library.call(
            f"run_{plan.kernel}",
            arguments,
            plan.grid[0],
            plan.shared_bytes,
            registered=list(buffers.values()),
        )
        return np.asarray(buffers["y"].array.copy())

    def dequantize(self, weight: Checkpoint) -> NDArray[np.float16]:
        """Run the decoder to dense FP16 on a NaN-poisoned output."""
        n, k = weight.shape
        packed = DeviceBuffer("weight", pack(weight))
        factor = DeviceBuffer("row_factor", weight.row_factor)
        dense = DeviceBuffer("dense", np.full((n, k), np.nan, np.float16), writable=True)
        arguments = DequantizeArguments(packed.address, factor.address, dense.address, n, k)
        plan = launch.launch_dequantize(n, k)
        self.library.call(
            f"run_{plan.kernel}",
            arguments,
            *plan.grid,
            registered=[packed, factor, dense],
        )
        return np.asarray(dense.array.copy())
