"""The package's kernels on a CUDA device, with poisoned and guarded outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from nvfp4_oracle import Checkpoint
    from sm70_kernels_cuda.launch import Variant
    from sm70_kernels_cuda.nvfp4 import Nvfp4Kernels

GUARD = 4096
GUARD_VALUE = 1234.0


@dataclass(frozen=True)
class PackedWeight:
    """A checkpoint's weight on the device, in the resident layout."""

    weight: Tensor
    row_factor: Tensor
    k: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, device: str = "cuda") -> PackedWeight:
        n, k = checkpoint.shape
        codes = torch.from_numpy(checkpoint.codes).to(device)
        scales = torch.from_numpy(checkpoint.scales).to(device)
        factor = torch.from_numpy(checkpoint.row_factor).to(device)
        return cls(Nvfp4Block(n, k).pack(codes, scales), factor, k)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Call the operator."""
        result: Tensor = torch.ops.sm70.nvfp4_linear(x, self.weight, self.row_factor, bias, self.k)
        return result


@contextmanager
def guarded_output(m: int, n: int) -> Iterator[Tensor]:
    """A NaN-poisoned FP16 [M, N] between two guards, which must survive what is run inside."""
    storage = torch.full((m * n + 2 * GUARD,), GUARD_VALUE, dtype=torch.float16, device="cuda")
    y = storage[GUARD : GUARD + m * n].view(m, n)
    y.fill_(float("nan"))
    yield y
    torch.cuda.synchronize()
    assert bool((storage[:GUARD] == GUARD_VALUE).all()), "written before the output"
    assert bool((storage[-GUARD:] == GUARD_VALUE).all()), "written after the output"


@dataclass(frozen=True)
class GpuKernels:
    """One binary's kernels, run like the emulated ones."""

    kernels: Nvfp4Kernels

    def run(
        self,
        variant: Variant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one variant on a NaN-poisoned output between two guards, which must survive."""
        packed = PackedWeight.of(weight)
        device_bias = None if bias is None else torch.from_numpy(bias).cuda()
        rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
        with guarded_output(x.shape[0], weight.shape[0]) as y:
            self.kernels.run(variant, rows, packed.weight, packed.row_factor, device_bias, y)
        return np.asarray(y.cpu().numpy())
