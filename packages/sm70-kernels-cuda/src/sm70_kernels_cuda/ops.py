"""The operators that torch sees: `sm70::nvfp4_linear`, opaque to compilers, with a fake and a CPU reference.

Importing this module registers them, which `modules.py` does when the first layer is prepared.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from sm70_kernels_cuda import binary, launch
from sm70_kernels_cuda.driver import ArgumentBlock
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.reference import decode_nvfp4
from sm70_policy.errors import ProblemError, describe

_SCHEMA = "nvfp4_linear(Tensor x, Tensor weight, Tensor row_factor, Tensor? bias, int k) -> Tensor"
_LIBRARY = torch.library.Library("sm70", "FRAGMENT")


class _Qpn2Arguments(ctypes.Structure):
    """Mirror of sm70::Qpn2Arguments."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("row_factor", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("m", ctypes.c_int),
        ("n", ctypes.c_int),
        ("k", ctypes.c_int),
    )


class _DequantizeArguments(ctypes.Structure):
    """Mirror of sm70::DequantizeArguments."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("row_factor", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
        ("n", ctypes.c_int),
        ("k", ctypes.c_int),
    )


_qpn2_block = ArgumentBlock(_Qpn2Arguments)
_dequantize_block = ArgumentBlock(_DequantizeArguments)


@functools.cache
def _atom(device: int) -> launch.Atom:
    major, minor = torch.cuda.get_device_capability(device)
    return launch.atom_of(major * 10 + minor)


def _nvfp4_linear_cuda(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int) -> Tensor:
    _check(x, weight, row_factor, bias, k)
    n = row_factor.shape[0]
    y = x.new_empty((*x.shape[:-1], n))
    m = y.numel() // n
    if m == 0:
        return y
    with torch.cuda._DeviceGuard(x.device.index):  # noqa: SLF001 - the public guard costs 5 us a call
        if m <= launch.NATIVE_ROWS:
            variant = launch.choose_variant(m, k, _atom(x.device.index))
            run_variant(variant, x, weight, row_factor, bias, y)
        else:
            dense = dequantize(weight, row_factor, k)
            rows = x.reshape(m, k)
            out = y.view(m, n)
            if bias is None:
                torch.mm(rows, dense.t(), out=out)
            else:
                torch.addmm(bias, rows, dense.t(), out=out)
    return y


def run_variant(
    variant: launch.Variant, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, y: Tensor
) -> None:
    """Launch one QPN2 kernel on the current stream of x's device, which must be current.

    Args:
        variant: The compiled kernel; it takes up to `8 * token_tiles` rows.
        x: FP16 [..., K].
        weight: uint8, `nvfp4_block`.
        row_factor: float32 [N].
        bias: FP16 [N] or None.
        y: FP16 [..., N], contiguous; written completely.
    """
    k, n = x.shape[-1], row_factor.shape[0]
    x = x.contiguous()
    if x.data_ptr() % 16:  # the kernel reads 16 bytes at a time
        x = x.clone()
    device = x.device.index
    values = _qpn2_block.values
    values.weight = weight.data_ptr()
    values.x = x.data_ptr()
    values.y = y.data_ptr()
    values.row_factor = row_factor.data_ptr()
    values.bias = None if bias is None else bias.data_ptr()
    values.m, values.n, values.k = y.numel() // n, n, k
    plan = launch.launch_variant(variant, n, _atom(device))
    stream = torch._C._cuda_getCurrentRawStream(device)  # type: ignore[attr-defined] # noqa: SLF001 - as Inductor's code does
    binary.module().kernel(plan.kernel).launch(plan, _qpn2_block, device, stream)


def dequantize(weight: Tensor, row_factor: Tensor, k: int) -> Tensor:
    """Decode a packed weight into a new dense FP16 tensor [N, K] on the current stream of its device.

    Args:
        weight: uint8, `nvfp4_block`.
        row_factor: float32 [N].
        k: Input features.
    """
    n = row_factor.shape[0]
    dense = torch.empty((n, k), dtype=torch.float16, device=weight.device)
    device = weight.device.index
    values = _dequantize_block.values
    values.weight = weight.data_ptr()
    values.row_factor = row_factor.data_ptr()
    values.dense = dense.data_ptr()
    values.n, values.k = n, k
    plan = launch.launch_dequantize(n, k)
    stream = torch._C._cuda_getCurrentRawStream(device)  # type: ignore[attr-defined] # noqa: SLF001 - as Inductor's code does
    binary.module().kernel(plan.kernel).launch(plan, _dequantize_block, device, stream)
    return dense


def _nvfp4_linear_cpu(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int) -> Tensor:
    _check(x, weight, row_factor, bias, k)
    codes, scales = Nvfp4Block(row_factor.shape[0], k).unpack(weight)
    dense = decode_nvfp4(codes, scales.view(torch.float8_e4m3fn), row_factor)
    y = x.float() @ dense.t()
    return (y if bias is None else y + bias.float()).to(x.dtype)


def _nvfp4_linear_fake(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int) -> Tensor:  # noqa: ARG001 - the operator's signature
    return x.new_empty((*x.shape[:-1], row_factor.shape[0]))


def _check(x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, k: int) -> None:
    n = row_factor.shape[0]
    shape = Nvfp4Block(n, k).storage_shape
    problems = []
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
                allowed="what Qpn2NvFp4LinearKernel.prepare returned, and FP16 activations",
                fix="Pass --dtype float16, and let the layer call the operator",
            )
        )


_LIBRARY.define(_SCHEMA)
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cuda, "CUDA")
_LIBRARY.impl("nvfp4_linear", _nvfp4_linear_cpu, "CPU")
torch.library.register_fake("sm70::nvfp4_linear", _nvfp4_linear_fake, lib=_LIBRARY)
