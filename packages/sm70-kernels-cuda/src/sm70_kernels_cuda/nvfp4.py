"""The kernels of one binary for weights of E2M1 codes, callable on torch tensors."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from sm70_kernels_cuda import binary, launch
from sm70_kernels_cuda.choice import choose_linear
from sm70_kernels_cuda.driver import Module, PreparedLaunch
from sm70_kernels_cuda.kernel_set import NVFP4_KERNELS, KernelSet
from sm70_kernels_cuda.launch_cluster import Card, has_clusters
from sm70_kernels_cuda.launch_general import GeneralVariant
from sm70_kernels_cuda.nvfp4_cluster import ClusterKernels
from sm70_kernels_cuda.nvfp4_general import GeneralKernels
from sm70_kernels_cuda.nvfp4_warpgroup import WarpgroupKernels, with_clusters
from sm70_kernels_cuda.operands import OPERAND_ADDRESSES, LinearArguments, LinearKernels, Product
from sm70_kernels_cuda.torch_internals import current_stream
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


_DEQUANTIZE_ADDRESSES = 3

Choice = Callable[[int, int, int, bool], launch.Variant | GeneralVariant]
"""From M, N, K and whether a QPN2 kernel may run to the variant that runs."""


class Nvfp4Kernels(LinearKernels[launch.Variant]):
    """The kernels of a loaded binary for one layout and one tensor-core atom.

    `prepare` and `run` are those of the strip kernels.

    Attributes:
        dense_rows: From so many rows on, `dequantize` and a dense GEMM are faster than `linear`.
        general: The general kernels of the same binary.
        cluster: The cluster kernels, where the card has clusters.
        warpgroup: The warpgroup kernels, on 9.0.
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
        self.cluster = cluster
        self.warpgroup = warpgroup
        self._set = kernel_set

    def prepare_linear(
        self, m: int, n: int, k: int, device: int, *, qpn2: bool, gated: bool = False
    ) -> Product:
        """Prepare the kernel that suits the number of rows.

        Args:
            m: Rows of x, 1 or more.
            n: Output features.
            k: Input features.
            device: CUDA device index; the device must be current.
            qpn2: Whether a QPN2 kernel may run; it needs K in multiples of 128.
            gated: See `LinearKernels.prepare`.
        """
        plan = self.cluster.plan(m, n, k, gated=gated) if self.cluster is not None and qpn2 else None
        if self.cluster is not None and plan is not None:
            return self.cluster.prepare(plan, m, n, k, device, gated=gated)
        if self.warpgroup is not None and m > CLUSTER_ROWS:
            return self.warpgroup.prepare(self.warpgroup.plan(m, n, k), m, n, k, device, gated=gated)
        variant = self._choose(m, n, k, qpn2)
        if isinstance(variant, launch.Variant):
            return self.prepare(variant, m, n, k, device, gated=gated)
        return self.general.prepare(variant, m, n, k, device, gated=gated)

    def prepare(
        self, chosen: launch.Variant, m: int, n: int, k: int, device: int, *, gated: bool = False
    ) -> Product:
        """Settle everything but the operands; see `LinearKernels`. M is up to `8 * token_tiles`."""
        strip = launch.launch_variant(chosen, n, self._atom)
        arguments = LinearArguments(m=m, n=n, k=k, gated=gated)
        kernel = self._module.kernel(strip.kernel)
        return PreparedLaunch(kernel, strip, arguments, OPERAND_ADDRESSES, device).enqueue

    def prepare_dequantize(self, n: int, k: int, device: int) -> Callable[[int, int, int, int], None]:
        """Settle everything but the stream and the addresses of weight, row factor and result."""
        decoder = launch.launch_dequantize(n, k, self._set.dequantize)
        arguments = DequantizeArguments(n=n, k=k)
        kernel = self._module.kernel(decoder.kernel)
        return PreparedLaunch(kernel, decoder, arguments, _DEQUANTIZE_ADDRESSES, device).enqueue

    def dequantize(self, weight: Tensor, row_factor: Tensor, k: int) -> Tensor:
        """Decode a packed weight into a new dense FP16 tensor [N, K].

        Args:
            weight: uint8, in the layout of these kernels.
            row_factor: float32 [N].
            k: Input features.
        """
        n, device = row_factor.shape[0], weight.device.index
        dense = torch.empty((n, k), dtype=torch.float16, device=weight.device)
        decode = self.prepare_dequantize(n, k, device)
        decode(current_stream(device), weight.data_ptr(), row_factor.data_ptr(), dense.data_ptr())
        return dense


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
