"""The command `sm70`: what this machine has, and how a model would run on a card."""

from sm70_tools.__about__ import __version__

__all__ = ["__version__"]
