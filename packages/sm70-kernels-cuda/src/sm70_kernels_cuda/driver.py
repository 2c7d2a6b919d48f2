"""The CUDA driver by ctypes: load a fat binary once, launch its kernels on any device from any thread.

Kernels are held as `CUkernel` handles, which belong to no context, so one handle serves every device. The
host side of a launch is one foreign call; its argument block is reused by the calling thread.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_policy.errors import DriverError, describe

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch import Launch

_SUCCESS = 0
_INVALID_CONTEXT = 201
_NO_BINARY_FOR_GPU = 209


@dataclass(frozen=True)
class _Driver:
    library: ctypes.CDLL

    def check(self, result: int, what: str) -> None:
        """Raise DriverError unless `result` is success."""
        if result == _SUCCESS:
            return
        name = ctypes.c_char_p()
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(result, ctypes.byref(name))
        self.library.cuGetErrorString(result, ctypes.byref(text))
        symbol = (name.value or b"unknown").decode()
        detail = (text.value or b"no description").decode()
        hint = ""
        if result == _NO_BINARY_FOR_GPU:
            hint = "; the fat binary holds no code for this card, which needs compute capability 7.0 or newer"
        message = f"{what} failed: {symbol} ({result}): {detail}{hint}"
        raise DriverError(message)


@functools.cache
def _driver() -> _Driver:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError(
            describe(
                asked=f"libcuda.so.1, which could not be loaded: {error}",
                allowed="a machine with NVIDIA's driver",
                fix="Install the driver, or run on the CPU",
            )
        ) from error
    driver = _Driver(library)
    library.cuLaunchKernel.argtypes = [
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    driver.check(library.cuInit(0), "cuInit")
    return driver


class Module:
    """A loaded fat binary."""

    def __init__(self, image: bytes) -> None:
        """Load `image`. It stays loaded for the life of the process.

        Raises:
            DriverError: There is no driver, or it rejects the binary.
        """
        driver = _driver()
        self._image = image
        self._handle = ctypes.c_void_p()
        driver.check(
            driver.library.cuLibraryLoadData(ctypes.byref(self._handle), image, None, None, 0, None, None, 0),
            "cuLibraryLoadData",
        )
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, name: str) -> Kernel:
        """Return the kernel called `name`.

        Raises:
            DriverError: The binary holds no such kernel for the current card.
        """
        kernel = self._kernels.get(name)
        if kernel is None:
            driver = _driver()
            handle = ctypes.c_void_p()
            driver.check(
                driver.library.cuLibraryGetKernel(ctypes.byref(handle), self._handle, name.encode()),
                f"cuLibraryGetKernel({name})",
            )
            kernel = self._kernels.setdefault(name, Kernel(name, handle))
        return kernel


class Kernel:
    """One kernel, launchable on every device."""

    def __init__(self, name: str, handle: ctypes.c_void_p) -> None:
        """Keep the handle; `Module.kernel` is the way to get one."""
        self._name = name
        self._handle = handle

    def launch(self, launch: Launch, arguments: ArgumentBlock, device: int, stream: int) -> None:
        """Enqueue the kernel.

        Args:
            launch: Grid, threads and shared memory.
            arguments: The kernel's one argument, a structure.
            device: CUDA device index; its context must be current, or none at all.
            stream: Raw stream handle.

        Raises:
            DriverError: The driver refuses the launch.
        """
        driver = _driver()
        x, y = launch.grid
        for attempt in range(2):
            result = driver.library.cuLaunchKernel(
                self._handle,
                *(x, y, 1),
                *(launch.threads, 1, 1),
                launch.shared_bytes,
                stream,
                arguments.pointers,
                None,
            )
            # A thread that has not touched CUDA yet has no context: give it the device's own, once.
            if result != _INVALID_CONTEXT or attempt:
                break
            _set_primary_context(driver, device)
        driver.check(result, f"launch of {self._name} with grid {launch.grid} on device {device}")


def _set_primary_context(driver: _Driver, device: int) -> None:
    handle = ctypes.c_int()
    context = ctypes.c_void_p()
    driver.check(driver.library.cuDeviceGet(ctypes.byref(handle), device), f"cuDeviceGet({device})")
    # torch holds the primary context for the life of the process; one more reference changes nothing.
    driver.check(
        driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain"
    )
    driver.check(driver.library.cuCtxSetCurrent(context), "cuCtxSetCurrent")


class ArgumentBlock(threading.local):
    """The structure that a kernel takes by value, one a thread, and the pointers that the driver wants."""

    def __init__(self, structure: type[ctypes.Structure]) -> None:
        """Allocate the block of the calling thread."""
        self.values = structure()
        self._array = (ctypes.c_void_p * 1)(ctypes.addressof(self.values))
        self.pointers = ctypes.addressof(self._array)
