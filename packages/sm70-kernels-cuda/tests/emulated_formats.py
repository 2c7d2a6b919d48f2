"""The kernels of every layout in the emulator, for either atom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from emulated_kernels import EmulatedKernels, poisoned
from emulator.emulator import DeviceBuffer, EmulatedLibrary
from sm70_kernels_cuda.launch import Variant, launch_dequantize, launch_variant
from sm70_kernels_cuda.launch_general import GeneralVariant, launch_general
from sm70_kernels_cuda.nvfp4 import DequantizeArguments
from sm70_kernels_cuda.operands import LinearArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_oracle import Checkpoint
    from sm70_kernels_cuda.kernel_set import KernelSet
    from sm70_kernels_cuda.launch import Atom, Launch

HOST = Path(__file__).resolve().parent / "emulated" / "formats_host.cpp"


@dataclass(frozen=True)
class Resident:
    """A weight as it stays on the device."""

    packed: NDArray[np.uint8]
    row_factor: NDArray[np.float32]
    k: int

    @property
    def n(self) -> int:
        return int(self.row_factor.shape[0])


def resident(kernel_set: KernelSet, weight: Checkpoint) -> Resident:
    """The weight in the layout of a set of kernels."""
    n, k = weight.shape
    packed, factor = kernel_set.layout(n, k).resident(
        "the layer",
        torch.from_numpy(weight.codes),
        torch.from_numpy(weight.scales),
        torch.from_numpy(weight.row_factor),
    )
    return Resident(packed.numpy(), factor.numpy(), k)


@dataclass(frozen=True)
class EmulatedFormat:
    """The kernels of one layout in one build for the CPU; with `gated`, weights merge gate and up."""

    atom: Atom
    kernel_set: KernelSet
    library: EmulatedLibrary
    gated: bool = False

    @classmethod
    def build(cls, atom: Atom, kernel_set: KernelSet, cache: Path) -> EmulatedFormat:
        """Compile the kernels with g++ for one atom."""
        return cls(atom, kernel_set, EmulatedKernels.build(atom, cache, source=HOST).library)

    def run(
        self,
        variant: Variant | GeneralVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one kernel on a NaN-poisoned output. Every access is checked by the emulator."""
        return self.run_resident(variant, resident(self.kernel_set, weight), x, bias)

    def run_resident(
        self,
        variant: Variant | GeneralVariant,
        weight: Resident,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """`run` on given bytes of the layout."""
        m = x.shape[0]
        buffers = {
            "weight": DeviceBuffer("weight", weight.packed),
            "x": DeviceBuffer("x", x),
            "y": DeviceBuffer("y", poisoned(m, weight.n, gated=self.gated), writable=True),
            "row_factor": DeviceBuffer("row_factor", weight.row_factor),
        }
        if bias is not None:
            buffers["bias"] = DeviceBuffer("bias", bias)
        addresses = {name: buffer.address for name, buffer in buffers.items()}
        plan = self._launch(variant, m, weight.n)
        self.library.call(
            f"run_{plan.kernel}",
            LinearArguments(**addresses, m=m, n=weight.n, k=weight.k, gated=self.gated),
            plan.grid[0],
            plan.shared_bytes,
            registered=list(buffers.values()),
        )
        return np.asarray(buffers["y"].array.copy())

    def _launch(self, variant: Variant | GeneralVariant, m: int, n: int) -> Launch:
        if isinstance(variant, Variant):
            return launch_variant(variant, n, self.atom)
        return launch_general(variant, m, n, self.atom)

    def dequantize(self, weight: Checkpoint) -> NDArray[np.float16]:
        """Run the decoder to dense FP16 on a NaN-poisoned output."""
        held = resident(self.kernel_set, weight)
        packed = DeviceBuffer("weight", held.packed)
        factor = DeviceBuffer("row_factor", held.row_factor)
        dense = DeviceBuffer("dense", np.full((held.n, held.k), np.nan, np.float16), writable=True)
        arguments = DequantizeArguments(packed.address, factor.address, dense.address, held.n, held.k)
        plan = launch_dequantize(held.n, held.k, self.kernel_set.dequantize)
        self.library.call(f"run_{plan.kernel}", arguments, *plan.grid, registered=[packed, factor, dense])
        return np.asarray(dense.array.copy())
