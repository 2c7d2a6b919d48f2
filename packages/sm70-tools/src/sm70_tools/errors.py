"""Errors of the command line."""

from __future__ import annotations

from sm70_policy.errors import Sm70Error


class CheckpointError(Sm70Error, ValueError):
    """A model's files are missing, damaged, contradict each other, or are of a kind that cannot be read."""


class ArgumentError(Sm70Error, ValueError):
    """An option has a value that this model, or this command, cannot take."""
