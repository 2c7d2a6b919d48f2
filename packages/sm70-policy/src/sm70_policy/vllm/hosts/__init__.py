"""Which adapter belongs to which vLLM version."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sm70_policy.errors import HostError, describe

if TYPE_CHECKING:
    from sm70_policy.vllm.hosts.base import Host

_VERSION_PATTERN = re.compile(r"v?(\d+)\.(\d+)(?:\.|\D|$)")


@dataclass(frozen=True)
class HostLine:
    """Release lines (major, minor) of vLLM and the module whose `HOST` adapts to them."""

    releases: tuple[tuple[int, int], ...]
    module: str


HOST_LINES: tuple[HostLine, ...] = (
    HostLine(((0, 19),), "sm70_policy.vllm.hosts.v0_19"),
    HostLine(((0, 32), (0, 33)), "sm70_policy.vllm.hosts.v0_32_to_v0_33"),
)


def known_releases() -> str:
    """The release lines that the suite knows, for people."""
    releases = sorted(release for line in HOST_LINES for release in line.releases)
    return ", ".join(f"{major}.{minor}.x" for major, minor in releases)


def installed_version() -> str:
    """Version of the vLLM in this environment.

    Raises:
        HostError: vLLM is not installed, or does not say its version.
    """
    try:
        version = getattr(importlib.import_module("vllm"), "__version__", None)
    except ImportError as error:
        raise HostError(
            describe(
                asked=f"a vLLM to adapt to, but importing it failed: {error}",
                allowed=f"vLLM {known_releases()}",
                fix="Install one of these",
            )
        ) from error
    if not isinstance(version, str):
        raise HostError(
            describe(
                asked=f"vllm.__version__, which is {version!r}",
                allowed=f"vLLM {known_releases()}",
                fix="Install one of these",
            )
        )
    return version


def find_host(version: str) -> Host:
    """Return the adapter for a vLLM version such as `0.33.0` or `0.33.1.dev7+gabcdef`.

    Raises:
        HostError: The suite does not know this version.
    """
    match = _VERSION_PATTERN.match(version)
    release = (int(match[1]), int(match[2])) if match else None
    for line in HOST_LINES:
        if release in line.releases:
            return cast("Host", importlib.import_module(line.module).HOST)
    raise HostError(
        describe(
            asked=f"vLLM {version}, unknown to this sm70-policy; vLLM runs as if the suite were absent",
            allowed=f"vLLM {known_releases()}",
            fix="Install one of these, or an sm70-policy that knows this one",
        )
    )
