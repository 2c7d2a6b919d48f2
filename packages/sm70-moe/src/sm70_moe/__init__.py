"""Mixture-of-experts backend for NVFP4 checkpoints. No kernel is offered yet."""

from sm70_moe.__about__ import __version__

__all__ = ["__version__"]
