"""The operators that torch sees: opaque to compilers, each with a fake and a CPU reference.

`sm70::nvfp4_linear` and `sm70::mxfp4_linear` take the same arguments; which layout a weight has follows from
the bytes of its blocks. `sm70::nvfp4_gated_linear` and `sm70::mxfp4_gated_linear` take them as well, for a
weight that merges a gate and an up projection, and return silu(gate) * up. Importing this
module registers them, which `modules.py` does when the first layer is prepared.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sm70_kernels_cuda.kernel_set import MXFP4_KERNELS, NVFP4_HALF_KERNELS, NVFP4_KERNELS, KernelSet
from sm70_kernels_cuda.launch import GATED_N_MULTIPLE, QPN2_K_MULTIPLE
from sm70_kernels_cuda.nvfp4 import kernels_for
from sm70_kernels_cuda.prepared import Call, PreparedCalls, PreparedDense, PreparedLinear
from sm70_kernels_cuda.reference import decode_fp4
from sm70_policy.errors import ProblemError, describe

_ARGUMENTS = (
    "Tensor x, Tensor weight, Tensor row_factor, Tensor? bias, int k, bool qpn2=True, int dense_rows=0"
)
_LIBRARY = torch.library.Library("sm70", "FRAGMENT")


@dataclass(frozen=True)
class _Linear:
    """One operator: y = (x @ w^T) * row_factor + bias, or silu(gate) * up of it, for the layouts of a format.

    Attributes:
        name: Name of the operator.
        kernel_sets: Kernels by the bytes of a block. A weight of none of them is judged by the first.
        calls: What calls on CUDA have prepared.
        gated: Whether the rows of w are those of a gate and of an up projection.
    """

    name: str
    kernel_sets: dict[int, KernelSet]
    gated: bool
    calls: PreparedCalls = field(default_factory=PreparedCalls)

    @classmethod
    def of(cls, name: str, *kernel_sets: KernelSet, gated: bool = False) -> _Linear:
        return cls(name, {item.layout.block_bytes(): item for item in kernel_sets}, gated)

    def register(self) -> None:
        _LIBRARY.define(f"{self.name}({_ARGUMENTS}) -> Tensor")
        _LIBRARY.impl(self.name, self.cuda, "CUDA")
        _LIBRARY.impl(self.name, self.cpu, "CPU")
        torch.library.register_fake(f"sm70::{self.name}", self.fake, lib=_LIBRARY)

    def cuda(
        self,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        k: int,
        qpn2: bool = True,
        dense_rows: int = 0,
    ) -> Tensor:
        # All that `_checked` and `_prepare` look at: what was served once under a key is served again.
        # Indices suffice as devices, since a process has one kind of accelerator; the CPU's is -1.
        key = (
            x.shape,
            x.dtype,
            x.get_device(),
            weight.shape,
            weight.dtype,
            weight.get_device(),
            weight.is_contiguous(),
            row_factor.shape,
            row_factor.dtype,
            row_factor.get_device(),
            row_factor.is_contiguous(),
            bias if bias is None else (bias.shape, bias.dtype, bias.get_device(), bias.is_contiguous()),
            k,
            qpn2,
            dense_rows,
        )
        call = self.calls.by_key.get(key)
        if call is None:
            prepared = self._prepare(x, weight, row_factor, bias, k, qpn2, dense_rows)
            call = self.calls.keep(key, prepared)
        return call(x, weight, row_factor, bias)

    def _prepare(
        self,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        k: int,
        qpn2: bool,
        dense_rows: int,
    ) -> Call:
        """Check the operands and settle everything that follows from the key of `cuda`."""
        kernel_set = self._checked(x, weight, row_factor, bias, k, qpn2=qpn2)
        n, device = row_factor.shape[0], x.get_device()
        shape = (*x.shape[:-1], self._columns(n))
        m = math.prod(shape[:-1])
        if m == 0:
            return lambda x, *_: x.new_empty(shape)
        with torch.cuda.device(device):
            kernels = kernels_for(device, kernel_set)
            if m < (dense_rows or kernels.dense_rows):
                product = kernels.prepare_linear(m, n, k, device, qpn2=qpn2, gated=self.gated)
                return PreparedLinear(product, shape, device).call
            decode = kernels.prepare_dequantize(n, k, device)
            return PreparedDense(decode, n, k, shape, device, gated=self.gated).call

    def cpu(
        self,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        k: int,
        qpn2: bool = True,
        dense_rows: int = 0,  # noqa: ARG002 - the operator's signature
    ) -> Tensor:
        layout = self._checked(x, weight, row_factor, bias, k, qpn2=qpn2).layout(row_factor.shape[0], k)
        codes, stored = layout.unpack(weight)
        y = x.float() @ decode_fp4(codes, layout.group_factors(stored), row_factor).t()
        y = y if bias is None else y + bias.float()
        if self.gated:
            gate, up = y.chunk(2, dim=-1)
            y = torch.nn.functional.silu(gate) * up
        return y.to(x.dtype)

    def fake(
        self,
        x: Tensor,
        weight: Tensor,  # noqa: ARG002 - the operator's signature
        row_factor: Tensor,
        bias: Tensor | None,  # noqa: ARG002
        k: int,  # noqa: ARG002
        qpn2: bool = True,  # noqa: ARG002
        dense_rows: int = 0,  # noqa: ARG002
    ) -> Tensor:
        return x.new_empty((*x.shape[:-1], self._columns(row_factor.shape[0])))

    def _checked(
        self, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, *, qpn2: bool
    ) -> KernelSet:
        """Raise ProblemError unless the operands fit each other."""
        kernel_set = self.kernel_sets.get(weight.shape[-1]) or next(iter(self.kernel_sets.values()))
        n = row_factor.shape[0]
        device = x.device
        fits = (
            n > 0
            and not (self.gated and n % GATED_N_MULTIPLE)
            and x.dtype is torch.float16
            and x.shape[-1] == k
            and k % _k_multiple(kernel_set, qpn2=qpn2) == 0
            and weight.dtype is torch.uint8
            and weight.shape == _storage_shape(kernel_set, n, k)
            and weight.is_contiguous()
            and row_factor.dtype is torch.float32
            and row_factor.is_contiguous()
            and weight.device == device
            and row_factor.device == device
            and (bias is None or (_fits_bias(bias, n) and bias.device == device))
        )
        if not fits:
            raise ProblemError(_misfit(self, kernel_set, x, weight, row_factor, bias, k, qpn2=qpn2))
        return kernel_set

    def _columns(self, n: int) -> int:
        """Columns of the result."""
        return n // 2 if self.gated else n


def _k_multiple(kernel_set: KernelSet, *, qpn2: bool) -> int:
    return QPN2_K_MULTIPLE if qpn2 else kernel_set.layout.group_columns


@functools.lru_cache(maxsize=4096)
def _storage_shape(kernel_set: KernelSet, n: int, k: int) -> tuple[int, int, int]:
    return kernel_set.layout(n, k).storage_shape


def _fits_bias(bias: Tensor, n: int) -> bool:
    return bias.dtype is torch.float16 and bias.shape == (n,) and bias.is_contiguous()


def _misfit(
    operator: _Linear,
    kernel_set: KernelSet,
    x: Tensor,
    weight: Tensor,
    row_factor: Tensor,
    bias: Tensor | None,
    k: int,
    *,
    qpn2: bool,
) -> str:
    n = row_factor.shape[0]
    shape = _storage_shape(kernel_set, n, k)
    problems = [] if n else ["row_factor without elements, allowed: one for each of N >= 1 output features"]
    if operator.gated and n % GATED_N_MULTIPLE:
        problems.append(f"N={n} of gate and up together, allowed: multiples of {GATED_N_MULTIPLE}")
    multiple = _k_multiple(kernel_set, qpn2=qpn2)
    if k % multiple:
        problems.append(f"K={k} with qpn2={qpn2}, allowed: multiples of {multiple}")
    if x.dtype != torch.float16 or x.shape[-1] != k:
        problems.append(f"x of dtype {x.dtype} and shape {list(x.shape)}, allowed: float16 [..., {k}]")
    if weight.dtype != torch.uint8 or tuple(weight.shape) != shape or not weight.is_contiguous():
        asked = f"weight of dtype {weight.dtype} and shape {list(weight.shape)}"
        problems.append(f"{asked}, allowed: contiguous uint8 {list(shape)}")
    if row_factor.dtype != torch.float32 or not row_factor.is_contiguous():
        problems.append(f"row_factor of dtype {row_factor.dtype}, allowed: contiguous float32 [N]")
    if bias is not None and not _fits_bias(bias, n):
        asked = f"bias of dtype {bias.dtype} and shape {list(bias.shape)}"
        problems.append(f"{asked}, allowed: contiguous float16 [{n}]")
    devices = sorted({str(item.device) for item in (x, weight, row_factor, bias) if item is not None})
    if len(devices) > 1:
        problems.append(f"tensors on {', '.join(devices)}, allowed: one device")
    return describe(
        asked=f"sm70::{operator.name} with N={n}, K={k}: " + "; ".join(problems),
        allowed="what the kernel's prepare returned, and FP16 activations",
        fix="Pass --dtype float16, and let the layer call the operator",
    )


for _operator in (
    _Linear.of("nvfp4_linear", NVFP4_KERNELS, NVFP4_HALF_KERNELS),
    _Linear.of("mxfp4_linear", MXFP4_KERNELS),
    _Linear.of("nvfp4_gated_linear", NVFP4_KERNELS, NVFP4_HALF_KERNELS, gated=True),
    _Linear.of("mxfp4_gated_linear", MXFP4_KERNELS, gated=True),
):
    _operator.register()
