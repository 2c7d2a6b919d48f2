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

_SHARED_BYTES_FOR_ALL = 48 * 1024
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
_CLUSTER_DIMENSION = 4  # CUlaunchAttributeID
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


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
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
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
        self._shared_allowed: dict[int, int] = {}

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
        if launch.shared_bytes > _SHARED_BYTES_FOR_ALL:
            self._allow_shared(driver, launch.shared_bytes, device)
        config = _config.fill(launch, stream)
        for attempt in range(2):
            result = driver.library.cuLaunchKernelEx(config, self._handle, arguments.pointers, None)
            # A thread that has not touched CUDA yet has no context: give it the device's own, once.
            if result != _INVALID_CONTEXT or attempt:
                break
            _set_primary_context(driver, device)
        driver.check(result, f"launch of {self._name} with grid {launch.grid} on device {device}")

    def resident_clusters(self, launch: Launch, device: int) -> int:
        """Clusters of a launch that the device can run at once: its processing clusters are not all alike.

        Args:
            launch: Cluster size, threads and shared memory; the grid does not matter.
            device: CUDA device index; its context must be current.

        Raises:
            DriverError: The driver refuses to say.
        """
        driver = _driver()
        _set_primary_context(driver, device)
        self._allow_shared(driver, launch.shared_bytes, device)
        function, count = ctypes.c_void_p(), ctypes.c_int()
        driver.check(
            driver.library.cuKernelGetFunction(ctypes.byref(function), self._handle),
            f"cuKernelGetFunction({self._name})",
        )
        config = ctypes.c_void_p(_config.fill(launch, 0))
        driver.check(
            driver.library.cuOccupancyMaxActiveClusters(ctypes.byref(count), function, config),
            f"cuOccupancyMaxActiveClusters({self._name})",
        )
        return count.value

    def _allow_shared(self, driver: _Driver, shared_bytes: int, device: int) -> None:
        """Ask once a device for more shared memory than every kernel may have."""
        if self._shared_allowed.get(device, 0) >= shared_bytes:
            return
        handle = ctypes.c_int()
        driver.check(driver.library.cuDeviceGet(ctypes.byref(handle), device), f"cuDeviceGet({device})")
        driver.check(
            driver.library.cuKernelSetAttribute(
                _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes, self._handle, handle
            ),
            f"{shared_bytes} bytes of shared memory for {self._name}",
        )
        self._shared_allowed[device] = shared_bytes


class _AttributeValue(ctypes.Union):
    _fields_ = (
        ("cluster", ctypes.c_uint * 3),
        ("programmatic_serialization", ctypes.c_int),
        ("padding", ctypes.c_char * 64),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", _AttributeValue))


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _ReusedConfig(threading.local):
    """The launch configuration of the calling thread."""

    def __init__(self) -> None:
        self._attributes = (_Attribute * 2)()
        self._config = _LaunchConfig()
        self._config.grid[2] = self._config.block[1] = self._config.block[2] = 1
        self._config.attributes = ctypes.addressof(self._attributes)
        self._address = ctypes.addressof(self._config)

    def fill(self, launch: Launch, stream: int) -> int:
        """Return the address of a configuration for `launch` on `stream`."""
        config = self._config
        config.grid[0], config.grid[1] = launch.grid
        config.block[0] = launch.threads
        config.shared_bytes = launch.shared_bytes
        config.stream = stream
        count = 0
        if launch.cluster > 1:
            self._attributes[0].id = _CLUSTER_DIMENSION
            self._attributes[0].value.cluster[:] = (launch.cluster, 1, 1)
            count = 1
        if launch.overlaps_previous:
            self._attributes[count].id = _PROGRAMMATIC_STREAM_SERIALIZATION
            self._attributes[count].value.programmatic_serialization = 1
            count += 1
        config.attribute_count = count
        return self._address


_config = _ReusedConfig()


def current_stream(device: int) -> int:
    """Raw handle of torch's current stream on a device."""
    import torch

    # What Inductor's generated code calls; torch.cuda.current_stream builds an object first, for 4 us.
    return int(torch._C._cuda_getCurrentRawStream(device))  # noqa: SLF001


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
