"""Repeated calls of an operator: what they launch, what they still refuse, and that threads keep apart."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from fake_driver import INVALID_CONTEXT, OUT_OF_MEMORY, Launched
from fake_machine import STREAM, K, Machine, N, OnCuda0, OnCuda1, Operands, operator
from sm70_kernels_cuda import ops, prepared
from sm70_kernels_cuda.kernel_set import NVFP4_KERNELS
from sm70_kernels_cuda.nvfp4 import DequantizeArguments
from sm70_kernels_cuda.nvfp4_cluster import ClusterArguments
from sm70_kernels_cuda.nvfp4_warpgroup import PackTokensArguments, WarpgroupArguments
from sm70_kernels_cuda.operands import LinearArguments
from sm70_policy.errors import DriverError, ProblemError

MakeMachine = Callable[[int], Machine]


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch) -> MakeMachine:
    return functools.partial(Machine.install, monkeypatch=monkeypatch)


def given(arguments: Any) -> list[int | None]:
    return [arguments.weight, arguments.x, arguments.y, arguments.row_factor, arguments.bias]


def plain(value: Any) -> Any:
    """A field's value; arrays of ctypes compare by identity."""
    return list(value) if isinstance(value, ctypes.Array) else value


EACH_FAMILY = pytest.mark.parametrize(
    ("sm", "m", "qpn2", "structure", "kernel"),
    [
        (70, 3, True, LinearArguments, "qpn2_nvfp4_t1"),
        (70, 3, False, LinearArguments, "general_nvfp4"),
        (90, 3, True, ClusterArguments, "cluster_nvfp4_t1"),
        (90, 33, True, WarpgroupArguments, "warpgroup_nvfp4_t64"),
    ],
    ids=["strip", "general", "cluster", "warpgroup"],
)


@EACH_FAMILY
def test_a_repeated_call_differs_only_in_addresses_and_stream(
    machine_of: MakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    sm: int,
    m: int,
    qpn2: bool,
    structure: type[ctypes.Structure],
    kernel: str,
) -> None:
    machine, linear = machine_of(sm), operator()
    launches: list[Launched] = []
    settled: list[dict[str, Any]] = []
    for repeat, bias in enumerate((True, False, True, False)):
        operands = replace(Operands.of(m, bias=bias), qpn2=qpn2)
        monkeypatch.setattr(prepared, "current_stream", lambda device, repeat=repeat: repeat * 16)
        y = operands.call(linear)
        assert (y.shape, y.dtype, y.is_contiguous()) == ((m, N), torch.float16, True)
        launch = machine.driver.launched[-1]
        arguments = launch.read(structure)
        assert launch.stream == repeat * 16
        expected = operands.addresses(y)
        if structure is WarpgroupArguments:
            packing = machine.driver.launched[-2]
            packed = packing.read(PackTokensArguments)
            assert (packing.stream, packed.x, packed.m, packed.k) == (repeat * 16, expected[1], m, K)
            expected[1] = packed.packed
        assert given(arguments) == expected
        launches.append(replace(launch, stream=0, arguments=0))
        settled.append({name: plain(getattr(arguments, name)) for name, _ in structure._fields_[5:]})  # type: ignore[misc]
    assert machine.prepared == 2, "once with a bias and once without"
    assert launches[0].kernel.startswith(kernel)
    assert all(item == launches[0] for item in launches)
    assert all(item == settled[0] for item in settled)
    assert (settled[0]["m"], settled[0]["n"], settled[0]["k"]) == (m, N, K)


@EACH_FAMILY
def test_a_gated_call_says_so_to_the_kernel(
    machine_of: MakeMachine,
    sm: int,
    m: int,
    qpn2: bool,
    structure: type[ctypes.Structure],
    kernel: str,
) -> None:
    machine, linear = machine_of(sm), operator(gated=True)
    y = replace(Operands.of(m), qpn2=qpn2).call(linear)
    assert y.shape == (m, N // 2)
    launched = machine.driver.launched[-1]
    arguments = launched.read(structure)
    assert launched.kernel.startswith(kernel)
    assert (arguments.m, arguments.n, arguments.k, arguments.gated) == (m, N, K, 1)


WRONG: dict[str, Callable[[Operands], dict[str, Any]]] = {
    "x-dtype": lambda good: {"x": good.x.bfloat16()},
    "x-width": lambda good: {"x": good.x[:, :128].contiguous()},
    "x-device": lambda good: {"x": good.x.as_subclass(OnCuda1)},
    "weight-dtype": lambda good: {"weight": good.weight.view(torch.int8)},
    "weight-shape": lambda good: {"weight": good.weight[:-1]},
    "weight-view": lambda good: {"weight": good.weight.view(1, *good.weight.shape)},
    "weight-strides": lambda good: {"weight": good.weight.repeat(1, 1, 2)[:, :, ::2]},
    "weight-device": lambda good: {"weight": good.weight.as_subclass(OnCuda1)},
    "factor-dtype": lambda good: {"row_factor": good.row_factor.half()},
    "factor-shape": lambda good: {"row_factor": good.row_factor[:0]},
    "factor-strides": lambda good: {"row_factor": good.row_factor.repeat(2)[::2]},
    "factor-device": lambda good: {"row_factor": good.row_factor.as_subclass(OnCuda1)},
    "bias-dtype": lambda good: {"bias": cast("Tensor", good.bias).float()},
    "bias-shape": lambda good: {"bias": cast("Tensor", good.bias)[:-1]},
    "bias-strides": lambda good: {"bias": cast("Tensor", good.bias).repeat(2)[::2]},
    "bias-device": lambda good: {"bias": cast("Tensor", good.bias).as_subclass(OnCuda1)},
    "k": lambda good: {"k": 128},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_repeated_call_refuses_what_the_first_refuses(machine_of: MakeMachine, what: str) -> None:
    machine, linear = machine_of(90), operator()
    good = Operands.of(3, bias=True)
    good.call(linear)
    wrong = replace(good, **WRONG[what](good))
    messages = []
    for used in (linear, linear, operator()):
        with pytest.raises(ProblemError) as caught:
            wrong.call(used)
        messages.append(str(caught.value))
    assert messages == [messages[0]] * 3
    assert len(machine.driver.launched) == 1
    good.call(linear)
    assert machine.prepared == 1, "a refused call must not displace the good one"


def test_each_call_gets_what_its_own_arguments_ask_for(machine_of: MakeMachine) -> None:
    machine, linear = machine_of(70), operator()
    good = Operands.of(3)
    expected = {
        "qpn2_nvfp4": good,
        "general_nvfp4": replace(good, qpn2=False),
        "dequantize_nvfp4": replace(good, dense_rows=2),
    }
    for _ in range(2):
        for kernel, operands in expected.items():
            operands.call(linear)
            assert machine.driver.launched[-1].kernel.startswith(kernel)
        assert replace(good, x=good.x.view(1, 3, K)).call(linear).shape == (1, 3, N)
    assert machine.prepared == 4


@pytest.mark.parametrize("what", ["misaligned", "strided", "both", "transposed"])
def test_rows_that_no_kernel_can_read_are_copied(machine_of: MakeMachine, what: str) -> None:
    machine, linear = machine_of(90), operator()
    good = Operands.of(3)
    good.call(linear)
    values = good.x.as_subclass(Tensor)
    if what == "misaligned":
        x = torch.zeros(3 * K + 8, dtype=torch.float16)[1 : 3 * K + 1].view(3, K)
    elif what == "transposed":
        x = torch.zeros(K, 3, dtype=torch.float16).t()
    else:
        x = torch.zeros(3, K + 9, dtype=torch.float16)[:, what == "both" :][:, :K]
    x.copy_(values)
    read: list[bytes] = []

    def on_launch(launch: Launched) -> None:
        address = launch.read(ClusterArguments).x
        assert address % 16 == 0
        assert address != x.data_ptr()
        read.append(ctypes.string_at(address, 2 * 3 * K))

    machine.driver.on_launch = on_launch
    replace(good, x=x.as_subclass(OnCuda0)).call(linear)
    assert read == [np.asarray(values.numpy()).tobytes()]
    assert machine.prepared == 1


def test_a_thread_keeps_a_bounded_number_of_calls(
    machine_of: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, linear = machine_of(90), operator()
    monkeypatch.setattr(prepared, "MOST_CALLS", 4)
    for m in range(1, 11):
        Operands.of(m).call(linear)
        assert len(linear.calls.by_key) <= 4
    assert machine.prepared == 10
    for m in (10, 9, 8, 7):
        Operands.of(m).call(linear)
    assert machine.prepared == 10
    Operands.of(1).call(linear)
    assert machine.prepared == 11


def test_threads_and_devices_keep_apart(machine_of: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both threads have filled in their launch before either of them is read."""
    machine, linear = machine_of(90), operator()
    # Which device is current is a matter of each thread, and of no interest here.
    monkeypatch.setattr(prepared, "exchange_device", lambda device: device)
    kernels = machine.kernels_for(0, NVFP4_KERNELS)
    monkeypatch.setattr(ops, "kernels_for", lambda device, kernel_set: kernels)
    both = threading.Barrier(2, timeout=60)
    seen: dict[int, tuple[int, list[int | None]]] = {}

    def on_launch(launch: Launched) -> None:
        both.wait()
        seen[threading.get_ident()] = launch.stream, given(launch.read(ClusterArguments))
        both.wait()

    def work(kind: type[OnCuda0]) -> None:
        for _ in range(5):
            operands = Operands.of(3, bias=True, kind=kind)
            y = operands.call(linear)
            assert seen[threading.get_ident()] == (STREAM + kind.index, operands.addresses(y))

    machine.driver.on_launch = on_launch
    for kinds in ((OnCuda0, OnCuda0), (OnCuda0, OnCuda1)):
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(work, kind) for kind in kinds]:
                future.result()


def test_a_thread_without_a_context_gets_the_devices_own(machine_of: MakeMachine) -> None:
    machine, linear = machine_of(90), operator()
    for _ in range(2):
        machine.driver.results = [INVALID_CONTEXT]
        Operands.of(3, kind=OnCuda1).call(linear)
    assert machine.driver.contexts == [1, 1]
    assert len(machine.driver.launched) == 2
    machine.driver.results = [INVALID_CONTEXT, INVALID_CONTEXT]
    with pytest.raises(DriverError, match=r"launch of cluster_nvfp4_t1_w8 with grid .* on device 1 .*201"):
        Operands.of(3, kind=OnCuda1).call(linear)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("m", [3, 2000], ids=["kernel", "dense"])
def test_the_current_device_is_left_as_it_was(machine_of: MakeMachine, m: int, fails: bool) -> None:
    machine, linear = machine_of(90), operator()
    Operands.of(m, kind=OnCuda1).call(linear)
    machine.made_current.clear()
    machine.driver.on_launch = lambda launch: machine.made_current.append(100 + machine.current)
    if fails:
        machine.driver.results = [OUT_OF_MEMORY]
        with pytest.raises(DriverError, match="on device 1"):
            Operands.of(m, kind=OnCuda1).call(linear)
        assert machine.made_current == [1, 0]
    else:
        Operands.of(m, kind=OnCuda1).call(linear)
        assert machine.made_current == [1, 101, 0]


@pytest.mark.parametrize("bias", [False, True])
def test_many_rows_are_multiplied_by_the_decoded_weight(
    machine_of: MakeMachine, bias: bool, rng: np.random.Generator
) -> None:
    machine, linear = machine_of(70), operator()
    dense = torch.from_numpy(rng.standard_normal((N, K)).astype(np.float16))

    def decode(launch: Launched) -> None:
        arguments = launch.read(DequantizeArguments)
        assert (launch.kernel, arguments.n, arguments.k) == ("dequantize_nvfp4", N, K)
        assert arguments.weight == operands.weight.data_ptr()
        assert arguments.row_factor == operands.row_factor.data_ptr()
        ctypes.memmove(arguments.dense, dense.data_ptr(), 2 * N * K)

    machine.driver.on_launch = decode
    for _ in range(2):
        operands = replace(Operands.of(6, bias=bias), dense_rows=6)
        operands.x = operands.x.view(2, 3, K).copy_(torch.from_numpy(rng.standard_normal((2, 3, K))))
        if operands.bias is not None:
            operands.bias.copy_(torch.from_numpy(rng.standard_normal(N)))
        y = operands.call(linear)
        assert y.shape == (2, 3, N)
        expected = operands.x.double() @ dense.double().t()
        if operands.bias is not None:
            expected += operands.bias.double()
        assert torch.allclose(y.double(), expected, rtol=1e-2, atol=0.1)
    assert machine.prepared == 1


def test_no_rows_launch_nothing(machine_of: MakeMachine) -> None:
    machine, linear = machine_of(90), operator()
    for _ in range(2):
        assert Operands.of(0).call(linear).shape == (0, N)
    assert not machine.driver.launched


def test_a_kernel_keeps_the_most_shared_memory_that_was_asked_for(machine_of: MakeMachine) -> None:
    machine = machine_of(90)
    kernel = machine.module.kernel("any")
    for device, size in ((0, 40_000), (0, 100_000), (0, 60_000), (1, 60_000)):
        kernel.allow_shared(size, device)
    assert machine.driver.shared == {("any", 0): 100_000, ("any", 1): 60_000}
