"""The NVFP4 kernels of one binary, callable on torch tensors."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from sm70_kernels_cuda import binary, launch
from sm70_kernels_cuda.driver import ArgumentBlock, Module


class Qpn2Arguments(ctypes.Structure):
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


class DequantizeArguments(ctypes.Structure):
    """Mirror of sm70::DequantizeArguments."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("row_factor", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
        ("n", ctypes.c_int),
        ("k", ctypes.c_int),
    )


_qpn2_block = ArgumentBlock(Qpn2Arguments)
_dequantize_block = ArgumentBlock(DequantizeArguments)


class Nvfp4Kernels:
    """The kernels of a loaded binary, for one tensor-core atom.

    Every call enqueues on the current stream of its tensors' device, which must be the current device.
    Nothing is kept between calls: scratch belongs to the invocation.
    """

    def __init__(self, module: Module, atom: launch.Atom) -> None:
        """Use the kernels of `module`, which were compiled for `atom`."""
        self._module = module
        self._atom = atom

    def linear(self, x: Tensor, weight: Tensor, row_factor: Tensor, bias: Tensor | None, y: Tensor) -> None:
        """Multiply up to 32 rows with the variant that suits them; see `run`."""
        variant = launch.choose_variant(y.numel() // row_factor.shape[0], x.shape[-1], self._atom)
        self.run(variant, x, weight, row_factor, bias, y)

    def run(
        self,
        variant: launch.Variant,
        x: Tensor,
        weight: Tensor,
        row_factor: Tensor,
        bias: Tensor | None,
        y: Tensor,
    ) -> None:
        """Run one variant.

        Args:
            variant: The compiled kernel; it takes up to `8 * token_tiles` rows.
            x: FP16 [..., K].
            weight: uint8, `nvfp4_block`.
            row_factor: float32 [N].
            bias: FP16 [N] or None.
            y: FP16 [..., N], contiguous; written completely.
        """
        n = row_factor.shape[0]
        x = x.contiguous()
        if x.data_ptr() % 16:  # the kernel reads 16 bytes at a time
            x = x.clone()
        values = _qpn2_block.values
        values.weight = weight.data_ptr()
        values.x = x.data_ptr()
        values.y = y.data_ptr()
        values.row_factor = row_factor.data_ptr()
        values.bias = None if bias is None else bias.data_ptr()
        values.m, values.n, values.k = y.numel() // n, n, x.shape[-1]
        self._enqueue(launch.launch_variant(variant, n, self._atom), _qpn2_block, weight.device.index)

    def dequantize(self, weight: Tensor, row_factor: Tensor, k: int) -> Tensor:
        """Decode a packed weight into a new dense FP16 tensor [N, K].

        Args:
            weight: uint8, `nvfp4_block`.
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
        self._enqueue(launch.launch_dequantize(n, k), _dequantize_block, weight.device.index)
        return dense

    def _enqueue(self, plan: launch.Launch, arguments: ArgumentBlock, device: int) -> None:
        # The raw getter is what Inductor's generated code calls; the public one builds an object first.
        stream = torch._C._cuda_getCurrentRawStream(device)  # noqa: SLF001
        self._module.kernel(plan.kernel).launch(plan, arguments, device, stream)


@functools.cache
def kernels_for(device: int) -> Nvfp4Kernels:
    """The package's own kernels on a CUDA device."""
    major, minor = torch.cuda.get_device_capability(device)
    return Nvfp4Kernels(binary.module(), launch.atom_of(major * 10 + minor))
