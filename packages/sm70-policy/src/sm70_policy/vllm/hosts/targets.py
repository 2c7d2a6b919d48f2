"""Reading what a patch is about to change, and checking that it is what the patch was written for."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from sm70_policy.errors import HostError, describe

_FIX = "Install a supported vLLM version, or a newer sm70-policy"


def read(module: str, *names: str) -> Any:
    """The object at a dotted name, as it is now. Imports the module.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such name.
    """
    found: Any = importlib.import_module(module)
    for name in names:
        found = getattr(found, name)
    return found


def read_function(module: str, owner: str, name: str) -> Any:
    """The function below a class method: its bound object is made anew on each access.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such name.
    """
    return read(module, owner, name).__func__


def expect_parameters(function: Any, name: str, expected: list[str]) -> None:
    """Check a function's parameters.

    Raises:
        HostError: It has others.
    """
    found = list(inspect.signature(function).parameters)
    if found != expected:
        raise unexpected(f"{name} with the parameters {found}", f"{expected}")


def unexpected(asked: str, allowed: str) -> HostError:
    """The error for a vLLM that differs from what a patch was written for."""
    return HostError(describe(asked=asked, allowed=allowed, fix=_FIX))
