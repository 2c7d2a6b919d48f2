"""The warpgroup kernels in the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulated_kernels import PACKAGE, EmulatedKernels, pack, poisoned
from emulator.emulator import DeviceBuffer, EmulatedLibrary
from sm70_kernels_cuda.launch import AMPERE_ATOM
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.launch_warpgroup import WarpgroupPlan, WarpgroupVariant, plan_warpgroup
from sm70_kernels_cuda.nvfp4_warpgroup import PackTokensArguments, WarpgroupArguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nvfp4_oracle import Checkpoint

HOSTS = Path(__file__).resolve().parent / "emulated"
CARD = Card(6, 227 * 1024)


@dataclass(frozen=True)
class EmulatedWarpgroup:
    """One build of the warpgroup kernels for the CPU.

    Attributes:
        library: The build.
        split: Blocks of a cluster, at most as many as K has blocks.
        gated: Whether weights merge a gate and an up projection, so that y has half their rows.
    """

    library: EmulatedLibrary
    split: int = 1
    gated: bool = False

    @classmethod
    def build(cls, cache: Path, root: Path = PACKAGE, host: str = "warpgroup_host.cpp") -> EmulatedWarpgroup:
        """Compile the kernels below `root` with g++."""
        return cls(EmulatedKernels.build(AMPERE_ATOM, cache, source=HOSTS / host, root=root).library)

    def run(
        self,
        variant: WarpgroupVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Pack x and run one kernel on a NaN-poisoned output; the kernel starts while x is being packed."""
        (n, k), m = weight.shape, x.shape[0]
        plan = plan_warpgroup(variant, min(self.split, -(-k // 256)), m, n, k, CARD)
        assert plan is not None
        packed = DeviceBuffer("packed", self.pack(plan, x), from_previous_kernel=True)
        y = DeviceBuffer("y", poisoned(m, n, gated=self.gated), writable=True)
        buffers = {
            "weight": DeviceBuffer("weight", pack(weight)),
            "x": packed,
            "y": y,
            "row_factor": DeviceBuffer("row_factor", weight.row_factor),
        }
        if bias is not None:
            buffers["bias"] = DeviceBuffer("bias", bias)
        arguments = WarpgroupArguments(
            **{name: buffer.address for name, buffer in buffers.items()},
            m=m,
            n=n,
            k=k,
            gated=self.gated,
            token_blocks=plan.token_blocks,
            stages=plan.stages,
            received_offset=plan.received_offset,
            barriers_offset=plan.barriers_offset,
        )
        self.library.call(
            f"run_{plan.launch.kernel}",
            arguments,
            plan.launch.grid[0],
            plan.launch.shared_bytes,
            plan.launch.cluster,
            registered=list(buffers.values()),
        )
        return np.asarray(y.array.copy())

    def pack(self, plan: WarpgroupPlan, x: NDArray[np.float16]) -> NDArray[np.float16]:
        """Run the kernel that packs x."""
        rows = DeviceBuffer("x", x, from_previous_kernel=True)
        packed = DeviceBuffer("packed", np.full(plan.packed_bytes // 2, np.nan, np.float16), writable=True)
        arguments = PackTokensArguments(rows.address, packed.address, *x.shape, plan.block_tokens)
        self.library.call(
            "run_pack_tokens", arguments, *plan.pack.grid, plan.pack.threads, registered=[rows, packed]
        )
        return np.asarray(packed.array.copy())
