"""The paths of 7.x compiled for the card at hand, for the kernels' tests on newer cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from emulated_kernels import ATOM_DEFINES, PACKAGE
from sm70_kernels_cuda.launch import TURING_ATOM, VOLTA_ATOM, Atom

if TYPE_CHECKING:
    import pytest

OLDER_ATOMS = {"volta-atom": VOLTA_ATOM, "turing-atom": TURING_ATOM}
"""m8n8k4 is emulated by the compiler from 8.0 on and slow there; m16n8k8 is native. The code is the same."""

_OPTIONS = {VOLTA_ATOM: "--sm70-volta-fatbin", TURING_ATOM: "--sm70-turing-fatbin"}


def atom_binary(config: pytest.Config, atom: Atom) -> bytes:
    """The file given for an atom of 7.x by its option, or a build for this card's own architecture."""
    given = config.getoption(_OPTIONS[atom])
    if given is not None:
        return Path(given).read_bytes()
    from build_support.fatbin import build_fatbin

    major, minor = torch.cuda.get_device_capability()
    return build_fatbin(PACKAGE, architectures=(f"{major}{minor}",), ptx=None, defines=(ATOM_DEFINES[atom],))
