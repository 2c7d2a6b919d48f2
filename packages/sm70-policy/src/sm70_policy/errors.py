"""The error tree of the suite. Every message says what was asked, what is allowed, and what to do."""

from __future__ import annotations


class Sm70Error(Exception):
    """Base of every error that the suite raises on purpose."""


class SettingsError(Sm70Error, ValueError):
    """A setting has an unknown name, a wrong type or a value outside its range."""


class ProblemError(Sm70Error, ValueError):
    """A problem descriptor is malformed: sizes that no layer can have."""


class WeightError(Sm70Error, ValueError):
    """A checkpoint's tensors do not form a valid quantized weight. The layer is left as it was."""


class RouteError(Sm70Error, RuntimeError):
    """No kernel can serve a layer. The message lists every kernel with its reason."""


class ContractError(Sm70Error, RuntimeError):
    """A provider was built for another contract version, or is not a provider at all."""


class HostError(Sm70Error, RuntimeError):
    """The installed vLLM is unknown to the suite, or differs from what an adapter expects."""


class DriverError(Sm70Error, RuntimeError):
    """A call to the CUDA driver failed."""


def describe(*, asked: str, allowed: str, fix: str) -> str:
    """Build a message from its three parts.

    Args:
        asked: What the caller wanted, with all numbers.
        allowed: What would have been accepted.
        fix: What the reader should do next.
    """
    return f"{asked.rstrip('.')}. Allowed: {allowed.rstrip('.')}. {fix.rstrip('.')}."
