"""Two cards without a card: tensors of the CPU that say they are on one, and a driver that takes notes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fake_driver import FakeDriver
from sm70_kernels_cuda import nvfp4_warpgroup, ops, prepared
from sm70_kernels_cuda.choice import choose_linear
from sm70_kernels_cuda.kernel_set import NVFP4_HALF_KERNELS, NVFP4_KERNELS, KernelSet
from sm70_kernels_cuda.launch import atom_of
from sm70_kernels_cuda.launch_cluster import Card
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.nvfp4 import Nvfp4Kernels
from sm70_kernels_cuda.nvfp4_cluster import ClusterKernels
from sm70_kernels_cuda.nvfp4_general import GeneralKernels
from sm70_kernels_cuda.nvfp4_warpgroup import WarpgroupKernels
from sm70_kernels_cuda.tuning.table import NO_TUNING

if TYPE_CHECKING:
    import pytest

    from sm70_kernels_cuda.driver import Module

N, K = 64, 256
CARDS = {70: Card(80, 96 * 1024), 90: Card(132, 227 * 1024)}
STREAM = 0x5EED


class OnCuda0(torch.Tensor):
    index = 0

    def get_device(self) -> int:
        return self.index

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.index)


class OnCuda1(OnCuda0):
    index = 1


@dataclass
class Machine:
    """Two cards and their driver.

    Attributes:
        sm: Their compute capability, 70 for 7.0.
        driver: What launches are noted by.
        module: The loaded binary.
        current: The current device.
        made_current: Devices that a call made current, in order.
        prepared: Calls that were not repeated ones.
    """

    sm: int
    driver: FakeDriver
    module: Module
    current: int = 0
    made_current: list[int] = field(default_factory=list)
    prepared: int = 0

    def exchange(self, device: int) -> int:
        previous, self.current = self.current, device
        if previous != device:
            self.made_current.append(device)
        return previous

    def kernels_for(self, device: int, kernel_set: KernelSet) -> Nvfp4Kernels:
        assert self.current == device
        self.prepared += 1
        module, atom, card = self.module, atom_of(self.sm), CARDS[self.sm]
        choose = functools.partial(
            choose_linear, sm_number=self.sm, atom=atom, card=card, tuning=NO_TUNING, kernel_set=kernel_set
        )
        cluster = ClusterKernels(module, card) if self.sm == 90 else None
        warpgroup = WarpgroupKernels(module, card) if self.sm == 90 else None
        general = GeneralKernels(module, atom)
        return Nvfp4Kernels(module, atom, general, choose, cluster, warpgroup, kernel_set)

    @classmethod
    def install(cls, sm: int, monkeypatch: pytest.MonkeyPatch) -> Machine:
        """Be the machine of this test."""
        driver = FakeDriver()
        machine = cls(sm, driver, driver.install(monkeypatch))
        monkeypatch.setattr(ops, "kernels_for", machine.kernels_for)
        for name in ("exchange_device", "restore_device"):
            monkeypatch.setattr(prepared, name, machine.exchange)
        for name in ("_exchange_device", "_maybe_exchange_device"):
            monkeypatch.setattr(torch.cuda, name, machine.exchange)
        monkeypatch.setattr(prepared, "current_stream", lambda device: STREAM + device)
        for user in (prepared, nvfp4_warpgroup):
            monkeypatch.setattr(user, "empty_strided", torch._C._dynamo.guards._empty_strided_cpu)
        return machine


def operator(*, gated: bool = False) -> ops._Linear:
    return ops._Linear.of("nvfp4_linear", NVFP4_KERNELS, NVFP4_HALF_KERNELS, gated=gated)


@dataclass
class Operands:
    """Arguments of a call."""

    x: Tensor
    weight: Tensor
    row_factor: Tensor
    bias: Tensor | None
    k: int = K
    qpn2: bool = True
    dense_rows: int = 0

    @classmethod
    def of(cls, m: int = 1, *, bias: bool = False, kind: type[OnCuda0] = OnCuda0) -> Operands:
        def on_card(tensor: Tensor) -> Tensor:
            return tensor.as_subclass(kind)

        return cls(
            on_card(torch.arange(m * K).view(m, K).half()),
            on_card(torch.zeros(Nvfp4Block(N, K).storage_shape, dtype=torch.uint8)),
            on_card(torch.ones(N)),
            on_card(torch.zeros(N, dtype=torch.float16)) if bias else None,
        )

    def call(self, linear: ops._Linear) -> Tensor:
        return linear.cuda(*vars(self).values())

    def addresses(self, y: Tensor) -> list[int | None]:
        tensors = (self.weight, self.x, y, self.row_factor, self.bias)
        return [None if item is None else item.data_ptr() for item in tensors]
