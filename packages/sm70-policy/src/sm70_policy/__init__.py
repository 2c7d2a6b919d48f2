"""Typed configuration, capability and routes: the package that every other package of the suite points to."""

from sm70_policy.__about__ import CONTRACT_VERSION, __version__

__all__ = ["CONTRACT_VERSION", "__version__"]
