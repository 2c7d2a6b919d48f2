"""The CUDA driver by ctypes: load a fat binary once, launch its kernels on any device from any thread.

Kernels are held as `CUkernel` handles, which belong to no context, so one handle serves every device. The
host side of a repeated launch is a `PreparedLaunch`: addresses are packed into its arguments, then one
foreign call.
"""

from __future__ import annotations

import ctypes
import functools
import struct
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
        self.name = name
        self.handle = handle
        self._shared_allowed: dict[int, int] = {}
        self._lock = threading.Lock()

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
        self.allow_shared(launch.shared_bytes, device)
        function, count = ctypes.c_void_p(), ctypes.c_int()
        driver.check(
            driver.library.cuKernelGetFunction(ctypes.byref(function), self.handle),
            f"cuKernelGetFunction({self.name})",
        )
        config = _Configuration.of(launch)
        driver.check(
            driver.library.cuOccupancyMaxActiveClusters(ctypes.byref(count), function, ctypes.byref(config)),
            f"cuOccupancyMaxActiveClusters({self.name})",
        )
        return count.value

    def allow_shared(self, shared_bytes: int, device: int) -> None:
        """Ask a device for more shared memory than every kernel may have; what was allowed stays allowed.

        Args:
            shared_bytes: Dynamic shared memory of a block.
            device: CUDA device index.

        Raises:
            DriverError: The device has less.
        """
        # Two threads that ask for different sizes must not leave the smaller one behind.
        with self._lock:
            if shared_bytes <= self._shared_allowed.get(device, _SHARED_BYTES_FOR_ALL):
                return
            driver = _driver()
            handle = ctypes.c_int()
            driver.check(driver.library.cuDeviceGet(ctypes.byref(handle), device), f"cuDeviceGet({device})")
            driver.check(
                driver.library.cuKernelSetAttribute(
                    _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes, self.handle, handle
                ),
                f"{shared_bytes} bytes of shared memory for {self.name}",
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


class _Configuration(ctypes.Structure):
    """A launch configuration and the attributes that it points to."""

    _fields_ = (("config", _LaunchConfig), ("attributes", _Attribute * 2))

    @classmethod
    def of(cls, launch: Launch) -> _Configuration:
        """A configuration for `launch` on the default stream."""
        made = cls()
        config = made.config
        config.grid[:] = (*launch.grid, 1)
        config.block[:] = (launch.threads, 1, 1)
        config.shared_bytes = launch.shared_bytes
        config.attributes = ctypes.addressof(made) + cls.attributes.offset
        if launch.cluster > 1:
            attribute = made.attributes[config.attribute_count]
            attribute.id = _CLUSTER_DIMENSION
            attribute.value.cluster[:] = (launch.cluster, 1, 1)
            config.attribute_count += 1
        if launch.overlaps_previous:
            attribute = made.attributes[config.attribute_count]
            attribute.id = _PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmatic_serialization = 1
            config.attribute_count += 1
        return made


class PreparedLaunch:
    """A launch of one kernel on one device, but for the stream and the addresses it works on.

    Its memory is filled anew by each call, so it belongs to one thread. The driver copies what it is given
    before it returns.
    """

    __slots__ = ("_arguments", "_config", "_device", "_foreign", "_kernel", "_launch", "_pack", "_stream")

    def __init__(
        self, kernel: Kernel, launch: Launch, arguments: ctypes.Structure, addresses: int, device: int
    ) -> None:
        """Fill in the configuration.

        Args:
            kernel: What runs.
            launch: Grid, threads and shared memory.
            arguments: The kernel's one argument, which begins with addresses; the rest is filled in.
            addresses: Their number.
            device: CUDA device index.

        Raises:
            DriverError: The device has less shared memory than that.
        """
        kernel.allow_shared(launch.shared_bytes, device)
        self._kernel, self._device = kernel, device
        self._arguments = arguments
        self._config = _Configuration.of(launch)
        self._stream = 0
        self._pack = struct.Struct(f"{addresses}P").pack_into
        self._launch = _driver().library.cuLaunchKernelEx
        self._foreign = (
            ctypes.byref(self._config),
            kernel.handle,
            (ctypes.c_void_p * 1)(ctypes.addressof(arguments)),
            None,
        )

    def enqueue(self, stream: int, *addresses: int) -> None:
        """Enqueue the kernel.

        Args:
            stream: Raw handle of a stream of the device, whose context must be current, or none at all.
            addresses: As many as the arguments begin with.

        Raises:
            DriverError: The driver refuses the launch.
        """
        self._pack(self._arguments, 0, *addresses)
        if stream != self._stream:
            self._config.config.stream = self._stream = stream
        result = self._launch(*self._foreign)
        if result:
            self._retry(result)

    def _retry(self, result: int) -> None:
        driver, kernel, grid = _driver(), self._kernel, self._config.config.grid
        # A thread that has not touched CUDA yet has no context: give it the device's own, once.
        if result == _INVALID_CONTEXT:
            _set_primary_context(driver, self._device)
            result = self._launch(*self._foreign)
        what = f"launch of {kernel.name} with grid {(grid[0], grid[1])} on device {self._device}"
        driver.check(result, what)


def _set_primary_context(driver: _Driver, device: int) -> None:
    handle = ctypes.c_int()
    context = ctypes.c_void_p()
    driver.check(driver.library.cuDeviceGet(ctypes.byref(handle), device), f"cuDeviceGet({device})")
    # torch holds the primary context for the life of the process; one more reference changes nothing.
    driver.check(
        driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain"
    )
    driver.check(driver.library.cuCtxSetCurrent(context), "cuCtxSetCurrent")
