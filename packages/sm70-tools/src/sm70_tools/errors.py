"""Errors of the command line."""

from __future__ import annotations

from sm70_policy.errors import Sm70Error


class CheckpointError(Sm70Error, ValueError):
    """A model's files are missing, damaged, contradict each other, or are of a kind that cannot be read."""


class ArgumentError(Sm70Error, ValueError):
    """An option has a value that this model, or this command, cannot take."""


class NothingToDoError(Sm70Error, RuntimeError):
    """What was asked for does not exist yet, which is neither a mistake of the caller nor a failure."""


class SnapshotError(Sm70Error, ValueError):
    """A file of routes is damaged, of another version, or does not fit what it is compared with."""


class WorkerError(Sm70Error, RuntimeError):
    """A process that asks vLLM for routes failed."""
