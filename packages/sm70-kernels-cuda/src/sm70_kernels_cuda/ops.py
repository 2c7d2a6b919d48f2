"""The operators that torch sees: `sm70::nvfp4_linear`, opaque to compilers, with a fake and a CPU reference.

Importing this module registers them, which `modules.py` does when the first layer is prepared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE
from sm70_kernels_cuda.layouts.nvfp4_block import GROUP_COLUMNS, Nvfp4Block
from sm70_kernels_cuda.nvfp4 import kernels_for
from sm70_kernels_cuda.reference import decode_nvfp4
from sm70_policy.errors import ProblemError, describe

_SCHEMA = (
    "nvfp4_linear(Tensor x, Tensor weight, Tensor row_factor, Tensor? bias, int k, bool qpn2=True) -> Tensor"
)
_LIBRARY = torch.library.Library("sm70", "FRAGMENT")


def _nvfp4_linear_cuda(
    x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, qpn2: bool = True
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
        if m < kernels.dense_rows:
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
    x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, qpn2: bool = True
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
) -> Tensor:
    return x.new_empty((*x.shape[:-1], row_factor.shape[0]))


def _check(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int, *, qpn2: bool) -> None:
    n = row_factor.shape[0]
    shape = Nvfp4Block(n, k).storage_shape
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
    if bias is not None and (bias.dtype, tuple(bias.shape), bias.is_contiguous()) != (
        torch.float16,
        (n,),
        True,
    ):
        asked = f"bias of dtype {bias.dtype} and shape {list(bias.shape)}"
        problems.append(f"{asked}, allowed: contiguous float16 [{n}]")
    tensors: tuple[Any, ...] = (weight, row_factor, *(() if bias is None else (bias,)))
    if any(tensor.device != x.device for tensor in tensors):
        problems.append(f"tensors on {sorted({str(t.device) for t in (x, *tensors)})}, allowed: one device")
    if problems:
        raise ProblemError(
            describe(
                asked=f"sm70::nvfp4_linear with N={n}, K={k}: " + "; ".join(problems),
                allowed="what the kernel's prepare returned, and FP16 activations",
                fix="Pass --dtype float16, and let the layer call the operator",
            )
        )


_LIBRARY.define(_SCHEMA)
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cuda, "CUDA")
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cpu, "CPU")
torch.library.register_fake("sm70::nvfp4_linear", _nvfp4_linear_fake, lib=_LIBRARY)
