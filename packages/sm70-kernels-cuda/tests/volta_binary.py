"""The 7.x path of the kernels compiled for the card at hand: slow there, but the same code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from emulated_kernels import PACKAGE

if TYPE_CHECKING:
    import pytest


def volta_binary(config: pytest.Config) -> bytes:
    """The file given as `--sm70-volta-fatbin`, or a build for this card's own architecture."""
    given = config.getoption("--sm70-volta-fatbin")
    if given is not None:
        return Path(given).read_bytes()
    from build_support.fatbin import build_fatbin

    major, minor = torch.cuda.get_device_capability()
    return build_fatbin(PACKAGE, architectures=(f"{major}{minor}",), ptx=None, defines=("SM70_VOLTA_ATOM",))
