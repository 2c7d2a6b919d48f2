"""The fat binary that the build hook compiled."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TYPE_CHECKING

from sm70_policy.errors import DriverError, describe

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from sm70_kernels_cuda.driver import Module


def _resource() -> Traversable:
    return files("sm70_kernels_cuda") / "binaries" / "sm70_kernels.fatbin"


@functools.cache
def is_present() -> bool:
    """Whether the binary is part of this installation."""
    return _resource().is_file()


@functools.cache
def module() -> Module:
    """Load the binary, once a process.

    Raises:
        DriverError: The binary is missing, or the driver rejects it.
    """
    from sm70_kernels_cuda.driver import Module

    if not is_present():
        raise DriverError(
            describe(
                asked="sm70_kernels.fatbin, which this installation of sm70-kernels-cuda lacks",
                allowed="an installation from a wheel, or from source on Linux",
                fix="Reinstall it: pip install --force-reinstall sm70-kernels-cuda",
            )
        )
    return Module(_resource().read_bytes())
