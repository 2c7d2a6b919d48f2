"""The operators that torch sees: `sm70::nvfp4_linear`, opaque to compilers, with a fake and a CPU reference.

Importing this module registers them, which `modules.py` does when the first layer is prepared.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE
from sm70_kernels_cuda.layouts.nvfp4_block import GROUP_COLUMNS, Nvfp4Block
from sm70_kernels_cuda.nvfp4 import kernels_for
from sm70_kernels_cuda.reference import decode_nvfp4
from sm70_policy.errors import ProblemError, describe

_SCHEMA = (
    "nvfp4_linear(Tensor x, Tensor weight, Tensor row_factor, Tensor? bias, int k, bool qpn2=True, "
    "int dense_rows=0) -> Tensor"
)
_LIBRARY = torch.library.Library("sm70", "FRAGMENT")


def _nvfp4_linear_cuda(
    x: Tensor,
    weight: Tensor,
    row_factor: Tensor,
    bias: Tensor | None,
    k: int,
    qpn2: bool = True,
    dense_rows: int = 0,
) -> Tensor:
    _check(x, weight, row_factor, bias, k, qpn2=qpn2)
    n = row_factor.shape[0]
    y = x.new_empty((*x.shape[:-1], n))
    m = y.numel() // n
    if m == 0:
        return y
    # The public guard costs 5 us a call, more than the launch.
    with torch.cuda._DeviceGuard(x.device.index):  # noqa: SLF001
        kernels = kernels_for(x.device.index)
        if m < (dense_rows or kernels.dense_rows):
            kernels.linear(x, weight, row_factor, bias, y, qpn2=qpn2)
        else:
            _dense_product(x.reshape(m, k), kernels.dequantize(weight, row_factor, k), bias, y.view(m, n))
    return y


def _dense_product(x: Tensor, dense: Tensor, bias: Tensor | None, y: Tensor) -> None:
    if bias is None:
        torch.mm(x, dense.t(), out=y)
    else:
        torch.addmm(bias, x, dense.t(), out=y)


def _nvfp4_linear_cpu(
    x: Tensor,
    weight: Tensor,
    row_factor: Tensor,
    bias: Tensor | None,
    k: int,
    qpn2: bool = True,
    dense_rows: int = 0,  # noqa: ARG001 - the operator's signature
) -> Tensor:
    _check(x, weight, row_factor, bias, k, qpn2=qpn2)
    codes, scales = Nvfp4Block(row_factor.shape[0], k).unpack(weight)
    dense = decode_nvfp4(codes, scales.view(torch.float8_e4m3fn), row_factor)
    y = x.float() @ dense.t()
    return (y if bias is None else y + bias.float()).to(x.dtype)


def _nvfp4_linear_fake(
    x: Tensor,
    weight: Tensor,  # noqa: ARG001 - the operator's signature
    row_factor: Tensor,
    bias: Tensor | None,  # noqa: ARG001
    k: int,  # noqa: ARG001
    qpn2: bool = True,  # noqa: ARG001
    dense_rows: int = 0,  # noqa: ARG001
) -> Tensor:
    return x.new_empty((*x.shape[:-1], row_factor.shape[0]))


def _check(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, *, qpn2: bool) -> None:
    """Raise ProblemError unless the operands fit each other. One expression on the way of every call."""
    n = row_factor.shape[0]
    device = x.device
    fits = (
        x.dtype is torch.float16
        and x.shape[-1] == k
        and k % (QPN2_K_MULTIPLE if qpn2 else GROUP_COLUMNS) == 0
        and weight.dtype is torch.uint8
        and weight.shape == _storage_shape(n, k)
        and weight.is_contiguous()
        and row_factor.dtype is torch.float32
        and row_factor.is_contiguous()
        and weight.device == device
        and row_factor.device == device
        and (bias is None or (_fits_bias(bias, n) and bias.device == device))
    )
    if not fits:
        raise ProblemError(_misfit(x, weight, row_factor, bias, k, qpn2=qpn2))


@functools.lru_cache(maxsize=4096)
def _storage_shape(n: int, k: int) -> tuple[int, int, int]:
    return Nvfp4Block(n, k).storage_shape


def _fits_bias(bias: Tensor, n: int) -> bool:
    return bias.dtype is torch.float16 and bias.shape == (n,) and bias.is_contiguous()


def _misfit(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, *, qpn2: bool) -> str:
    n = row_factor.shape[0]
    shape = _storage_shape(n, k)
    problems = []
    multiple = QPN2_K_MULTIPLE if qpn2 else GROUP_COLUMNS
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
        asked=f"sm70::nvfp4_linear with N={n}, K={k}: " + "; ".join(problems),
        allowed="what the kernel's prepare returned, and FP16 activations",
        fix="Pass --dtype float16, and let the layer call the operator",
    )


_LIBRARY.define(_SCHEMA)
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cuda, "CUDA")
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cpu, "CPU")
torch.library.register_fake("sm70::nvfp4_linear", _nvfp4_linear_fake, lib=_LIBRARY)
