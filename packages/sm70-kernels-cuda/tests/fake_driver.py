"""A stand-in for the CUDA driver that notes what each launch was given at the moment of the call."""

# ruff: noqa: N802, N815 - the functions have their names in libcuda

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sm70_kernels_cuda import driver
from sm70_kernels_cuda.driver import Module

if TYPE_CHECKING:
    import pytest

SUCCESS, INVALID_CONTEXT, OUT_OF_MEMORY = 0, 201, 2


@dataclass(frozen=True)
class Launched:
    """One launch.

    Attributes:
        kernel: Name of the kernel.
        grid: Blocks in x, y and z.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory.
        stream: Raw handle.
        attributes: Numbers of the launch attributes, in order.
        arguments: Address of the kernel's argument, which must outlive the call.
    """

    kernel: str
    grid: tuple[int, ...]
    threads: int
    shared_bytes: int
    stream: int
    attributes: tuple[int, ...]
    arguments: int

    def read(self, structure: type[ctypes.Structure]) -> Any:
        """What the argument holds now."""
        return structure.from_buffer_copy(ctypes.string_at(self.arguments, ctypes.sizeof(structure)))


@dataclass
class FakeDriver:
    """Functions of libcuda.

    Attributes:
        launched: All launches that succeeded.
        results: What the next launches return; success when it is empty.
        on_launch: Called by each launch before it ends, as long as the argument may be read.
        shared: Allowed shared memory by kernel and device, as the driver would hold it.
        contexts: Devices whose context was made current.
    """

    launched: list[Launched] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    on_launch: Callable[[Launched], None] = lambda launch: None
    shared: dict[tuple[str, int], int] = field(default_factory=dict)
    contexts: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Module:
        """Be the driver of this test; returns a loaded binary."""
        held = driver._Driver(self)  # type: ignore[arg-type]
        monkeypatch.setattr(driver, "_driver", lambda: held)
        return Module(b"image")

    def cuLibraryLoadData(self, *given: Any) -> int:
        return SUCCESS

    def cuLibraryGetKernel(self, handle: Any, library: Any, name: bytes) -> int:
        self._names.append(name.decode())
        handle._obj.value = len(self._names)
        return SUCCESS

    def cuLaunchKernelEx(self, config: Any, kernel: Any, pointers: Any, extra: Any) -> int:
        result = self.results.pop(0) if self.results else SUCCESS
        if result != SUCCESS:
            return result
        given, attributes = config._obj.config, config._obj.attributes
        address = ctypes.addressof(attributes)
        assert given.attributes == address
        launch = Launched(
            self._names[kernel.value - 1],
            tuple(given.grid),
            given.block[0],
            given.shared_bytes,
            given.stream or 0,
            tuple(item.id for item in attributes[: given.attribute_count]),
            pointers[0],
        )
        self.on_launch(launch)
        self.launched.append(launch)
        return SUCCESS

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: Any, device: Any) -> int:
        self.shared[self._names[kernel.value - 1], device.value] = value
        return SUCCESS

    def cuDeviceGet(self, handle: Any, device: int) -> int:
        handle._obj.value = device
        return SUCCESS

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = device.value + 1
        return SUCCESS

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.contexts.append(context.value - 1)
        return SUCCESS

    def cuGetErrorName(self, result: int, text: Any) -> int:
        text._obj.value = f"ERROR_{result}".encode()
        return SUCCESS

    cuGetErrorString = cuGetErrorName
