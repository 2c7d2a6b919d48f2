"""The fat binary that the build hook compiled."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.fp4_block import LAYOUT_ABI
from sm70_policy.errors import DriverError, describe

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from sm70_kernels_cuda.driver import Module


_IDENTIFIER = re.compile(rb"sm70_kernels_layout_abi_(\d+)")


def _resource() -> Traversable:
    return files("sm70_kernels_cuda") / "binaries" / "sm70_kernels.fatbin"


@functools.cache
def is_present() -> bool:
    """Whether the binary is part of this installation."""
    return _resource().is_file()


def layout_abi_of(image: bytes) -> int | None:
    """Number of the layout rules that a fat binary was compiled for; None in one without a number."""
    match = _IDENTIFIER.search(image)
    return None if match is None else int(match[1])


@functools.cache
def layout_abi() -> int | None:
    """`layout_abi_of` this installation's binary, which must be present."""
    return layout_abi_of(_resource().read_bytes())


def fits_layouts() -> bool:
    """Whether this installation's binary reads the layouts as this package writes them."""
    return layout_abi() == LAYOUT_ABI


@functools.cache
def module() -> Module:
    """Load the binary, once a process.

    Raises:
        DriverError: The binary is missing, was compiled for other layouts, or the driver rejects it.
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
    if not fits_layouts():
        raise DriverError(
            describe(
                asked=f"sm70_kernels.fatbin for layout ABI {LAYOUT_ABI}; the installed has {layout_abi()}",
                allowed="a binary that was built from the same sources as the Python files beside it",
                fix="Reinstall it: pip install --force-reinstall sm70-kernels-cuda",
            )
        )
    return Module(_resource().read_bytes())
