"""Errors of the measurements."""

from __future__ import annotations

from sm70_policy.errors import Sm70Error


class UnavailableError(Sm70Error, RuntimeError):
    """Something that a measurement or a chart needs is not there: CUDA, a package, the kernels."""


class WrongResultError(Sm70Error, ArithmeticError):
    """A result differs from the oracle by more than its tolerance, so it is not timed."""


class RowFileError(Sm70Error, ValueError):
    """A CSV file is not one of measured rows, or is damaged."""
