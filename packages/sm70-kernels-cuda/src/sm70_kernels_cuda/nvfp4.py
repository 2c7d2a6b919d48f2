"""The kernels of one binary for weights of E2M1 codes, callable on torch tensors."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from sm70_kernels_cuda import binary, launch
from sm70_kernels_cuda.choice import choose_linear
from sm70_kernels_cuda.driver import ArgumentBlock, Module, current_stream
from sm70_kernels_cuda.kernel_set import NVFP4_KERNELS, KernelSet
from sm70_kernels_cuda.launch_cluster import Card, has_clusters
from sm70_kernels_cuda.launch_general import GeneralVariant
from sm70_kernels_cuda.nvfp4_cluster import ClusterKernels
from sm70_kernels_cuda.nvfp4_general import GeneralKernels
from sm70_kernels_cuda.nvfp4_warpgroup import WarpgroupKernels, with_clusters
from sm70_kernels_cuda.operands import LinearArguments, fill_operands
from sm70_kernels_cuda.tuning.table import NO_TUNING
from sm70_kernels_cuda.tuning.table import load as load_tuning

WARPGROUP_SM = 90
"""The one compute capability with wgmma."""
CLUSTER_ROWS = 16
"""Most rows of the cluster kernels. With more the warpgroup kernels run, where there are any."""
WARPGROUP_DENSE_ROWS = 1024
"""On an H200 the warpgroup kernels are measured to be faster than a dense GEMM of a decoded weight at 512
rows, and slower at 4096; the number between is the default of 7.x, not measured here."""


class DequantizeArguments(ctypes.Structure):
    """Mirror of sm70::DequantizeArguments."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("row_factor", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
        ("n", ctypes.c_int),
        ("k", ctypes.c_int),
    )


Choice = Callable[[int, int, int, bool], launch.Variant | GeneralVariant]
"""From M, N, K and whether a QPN2 kernel may run to the variant that runs."""

_qpn2_block = ArgumentBlock(LinearArguments)
_dequantize_block = ArgumentBlock(DequantizeArguments)


class Nvfp4Kernels:
    """The kernels of a loaded binary for one layout and one tensor-core atom.

    Every call enqueues on the current stream of its tensors' device, which must be the current device.
    Nothing is kept between calls: scratch belongs to the invocation.

    Attributes:
        dense_rows: From so many rows on, `dequantize` and a dense GEMM are faster than `linear`.
        general: The general kernels of the same binary.
    """

    def __init__(
        self,
        module: Module,
        atom: launch.Atom,
        general: GeneralKernels,
        choose: Choice,
        cluster: ClusterKernels | None = None,
        warpgroup: WarpgroupKernels | None = None,
        kernel_set: KernelSet = NVFP4_KERNELS,
    ) -> None:
        """Use `kernel_set` of `module`, compiled for `atom`, and those that only some cards have."""
        self.dense_rows = atom.dense_rows if warpgroup is None else WARPGROUP_DENSE_ROWS
        self._module = module
        self._atom = atom
        self.general = general
        self._choose = choose
        self._cluster = cluster
        self._warpgroup = warpgroup
        self._set = kernel_set

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
        *,
        qpn2: bool,
    ) -> None:
        """Multiply with the kernel that suits the number of rows.

        With a y of half the width, w is a merged gate and up projection, the gate first, and y becomes
        silu(gate) * up. N is a multiple of 64 then.

        Args:
            x: FP16 [..., K].
            weight: uint8, in the layout of these kernels.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or [..., N / 2], contiguous; written completely.
            qpn2: Whether a QPN2 kernel may run; it needs K in multiples of 128.
        """
        x = _readable(x)
        n, columns = row_factor.shape[0], y.shape[-1]
        m, k = y.numel() // columns, x.shape[-1]
        plan = None
        if self._cluster is not None and qpn2:
            plan = self._cluster.plan(m, n, k, gated=columns != n)
        if self._cluster is not None and plan is not None:
            self._cluster.run(plan, x, weight, row_factor, bias, y)
            return
        if self._warpgroup is not None and m > CLUSTER_ROWS:
            self._warpgroup.run(self._warpgroup.plan(m, n, k), x, weight, row_factor, bias, y)
            return
        variant = self._choose(m, n, k, qpn2)
        if isinstance(variant, launch.Variant):
            self.run(variant, x, weight, row_factor, bias, y)
        else:
            self.general.run(variant, x, weight, row_factor, bias, y)

    def run(
        self,
        variant: launch.Variant,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Run one variant of the strip kernel.

        Args:
            variant: The compiled kernel; it takes up to `8 * token_tiles` rows.
            x: FP16 [..., K].
            weight: uint8, in the layout of these kernels.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N] or, for silu(gate) * up, [..., N / 2], contiguous; written completely.
        """
        fill_operands(_qpn2_block.values, _readable(x), weight, row_factor, bias, y)
        n = row_factor.shape[0]
        self._enqueue(launch.launch_variant(variant, n, self._atom), _qpn2_block, weight.device.index)

    def dequantize(self, weight: Tensor, row_factor: Tensor, k: int) -> Tensor:
        """Decode a packed weight into a new dense FP16 tensor [N, K].

        Args:
            weight: uint8, in the layout of these kernels.
            row_factor: float32 [N].
            k: Input features.
        """
        n = row_factor.shape[0]
        dense = torch.empty((n, k), dtype=torch.float16, device=weight.device)
        values = _dequantize_block.values
        values.weight = weight.data_ptr()
        values.row_factor = row_factor.data_ptr()
        values.dense = dense.data_ptr()
        values.n, values.k = n, k
        plan = launch.launch_dequantize(n, k, self._set.dequantize)
        self._enqueue(plan, _dequantize_block, weight.device.index)
        return dense

    def _enqueue(self, plan: launch.Launch, arguments: ArgumentBlock, device: int) -> None:
        self._module.kernel(plan.kernel).launch(plan, arguments, device, current_stream(device))


def _readable(x: Tensor) -> Tensor:
    """`x` itself, or a copy: the kernels read contiguous rows, 16 bytes at a time."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


@functools.cache
def kernels_for(device: int, kernel_set: KernelSet = NVFP4_KERNELS) -> Nvfp4Kernels:
    """The package's own kernels of one layout on a CUDA device."""
    properties = torch.cuda.get_device_properties(device)
    module, number = binary.module(), properties.major * 10 + properties.minor
    card = Card(properties.multi_processor_count, properties.shared_memory_per_block_optin)
    atom = launch.atom_of(number)
    cluster = warpgroup = None
    if kernel_set.newer_kernels and has_clusters(properties.major):
        cluster = ClusterKernels(module, card)
    if kernel_set.newer_kernels and number == WARPGROUP_SM:
        warpgroup = WarpgroupKernels(module, with_clusters(card, module, device))
    choose = functools.partial(
        choose_linear,
        sm_number=number,
        atom=atom,
        card=card,
        tuning=load_tuning() if kernel_set is NVFP4_KERNELS else NO_TUNING,
        kernel_set=kernel_set,
    )
    # A model has few distinct sizes, and the choice is arithmetic of them alone.
    choice = functools.lru_cache(maxsize=1024)(choose)
    return Nvfp4Kernels(module, atom, GeneralKernels(module, atom), choice, cluster, warpgroup, kernel_set)
