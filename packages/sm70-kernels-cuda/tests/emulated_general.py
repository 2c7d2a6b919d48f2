"""The general NVFP4 kernels in the emulator, for each atom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulated_kernels import PACKAGE, EmulatedKernels, pack, poisoned
from emulator.emulator import DeviceBuffer, EmulatedLibrary
from sm70_kernels_cuda.launch_general import GeneralVariant, launch_general
from sm70_kernels_cuda.operands import LinearArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_oracle import Checkpoint
    from sm70_kernels_cuda.launch import Atom

HOSTS = Path(__file__).resolve().parent / "emulated"
ALL_KERNELS = HOSTS / "general_host.cpp"
ONE_KERNEL = HOSTS / "general_one_host.cpp"
THE_ONE = GeneralVariant(6, 2, 4)
"""The one that tests break: two sets of atoms on 7.x, one with `AMPERE_ATOM`, several passes."""


@dataclass(frozen=True)
class EmulatedGeneral:
    """One build of the general kernels for the CPU; with `gated`, weights merge gate and up."""

    atom: Atom
    library: EmulatedLibrary
    gated: bool = False

    @classmethod
    def build(
        cls, atom: Atom, cache: Path, source: Path = ALL_KERNELS, root: Path = PACKAGE
    ) -> EmulatedGeneral:
        """Compile the kernels below `root` with g++ for one atom."""
        return cls(atom, EmulatedKernels.build(atom, cache, source=source, root=root).library)

    def run(
        self,
        variant: GeneralVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one kernel on a NaN-poisoned output. Every access is checked by the emulator."""
        return self.run_packed(variant, weight, pack(weight), x, bias)

    def run_packed(
        self,
        variant: GeneralVariant,
        weight: Checkpoint,
        packed: NDArray[np.uint8],
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one kernel on given bytes of the resident layout; `weight` gives sizes and row factors."""
        (n, k), m = weight.shape, x.shape[0]
        buffers = {
            "weight": DeviceBuffer("weight", packed),
            "x": DeviceBuffer("x", x),
            "y": DeviceBuffer("y", poisoned(m, n, gated=self.gated), writable=True),
            "row_factor": DeviceBuffer("row_factor", weight.row_factor),
        }
        if bias is not None:
            buffers["bias"] = DeviceBuffer("bias", bias)
        addresses = {name: buffer.address for name, buffer in buffers.items()}
        arguments = LinearArguments(**addresses, m=m, n=n, k=k, gated=self.gated)
        plan = launch_general(variant, m, n, self.atom)
        self.library.call(
            f"run_{plan.kernel}",
            arguments,
            plan.grid[0],
            plan.shared_bytes,
            registered=list(buffers.values()),
        )
        return np.asarray(buffers["y"].array.copy())
