"""The cluster kernels in the emulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulated_kernels import PACKAGE, EmulatedKernels, pack, poisoned
from emulator.emulator import DeviceBuffer, EmulatedLibrary
from sm70_kernels_cuda.launch import AMPERE_ATOM
from sm70_kernels_cuda.launch_cluster import Card, ClusterVariant, plan_cluster
from sm70_kernels_cuda.nvfp4_cluster import ClusterArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_oracle import Checkpoint

HOST = Path(__file__).resolve().parent / "emulated" / "cluster_host.cpp"
SHARED_BYTES = 227 * 1024


@dataclass(frozen=True)
class EmulatedCluster:
    """One build of the cluster kernels for the CPU, on a card of a few multiprocessors.

    Attributes:
        library: The build.
        multiprocessors: Of the imagined card.
        overlapped: Whether the launch may start before the kernel that writes x has ended.
        gated: Whether weights merge a gate and an up projection, so that y has half their rows.
    """

    library: EmulatedLibrary
    multiprocessors: int = 6
    overlapped: bool = True
    gated: bool = False

    @classmethod
    def build(cls, cache: Path, root: Path = PACKAGE) -> EmulatedCluster:
        """Compile the kernels below `root` with g++."""
        return cls(EmulatedKernels.build(AMPERE_ATOM, cache, source=HOST, root=root).library)

    def run(
        self,
        variant: ClusterVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one kernel on a NaN-poisoned output; x is what the kernel before it wrote."""
        (n, k), m = weight.shape, x.shape[0]
        card = Card(self.multiprocessors, SHARED_BYTES)
        plan = plan_cluster(variant, m, n, k, card, gated=self.gated)
        assert plan is not None
        plan = replace(plan, launch=replace(plan.launch, overlaps_previous=self.overlapped))
        buffers = {
            "weight": DeviceBuffer("weight", pack(weight)),
            "x": DeviceBuffer("x", x, from_previous_kernel=self.overlapped),
            "y": DeviceBuffer("y", poisoned(m, n, gated=self.gated), writable=True),
            "row_factor": DeviceBuffer("row_factor", weight.row_factor),
        }
        if bias is not None:
            buffers["bias"] = DeviceBuffer("bias", bias)
        arguments = ClusterArguments(
            **{name: buffer.address for name, buffer in buffers.items()},
            m=m,
            n=n,
            k=k,
            gated=self.gated,
            overlapped=self.overlapped,
            strips_each=plan.strips_each,
            clusters_plus1=plan.clusters_plus1,
            inverse_blocks=plan.inverse_blocks,
            segment_shift=plan.segment_shift,
            received_offset=plan.received_offset,
            tokens_offset=plan.tokens_offset,
            barriers_offset=plan.barriers_offset,
            finish_offset=plan.finish_offset,
            owners_offset=plan.owners_offset,
        )
        self.library.call(
            f"run_{plan.launch.kernel}",
            arguments,
            plan.launch.grid[0],
            plan.launch.shared_bytes,
            registered=list(buffers.values()),
        )
        return np.asarray(buffers["y"].array.copy())
