"""Machine code of the kernels, read with triton 3.6.0's disassembler: the last that reads sm_70."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import AMPERE_ATOM, TURING_ATOM, VOLTA_ATOM, Atom

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch_general import GeneralVariant

_TWO_SET_TILES = {VOLTA_ATOM: 6, TURING_ATOM: 8, AMPERE_ATOM: 0}

_USAGE = re.compile(r"Function (\w+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_FUNCTION = re.compile(r"^\.text\.(\w+):", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_.x]+)")


@dataclass(frozen=True)
class Resources:
    """What the assembler gave a kernel."""

    registers: int
    stack: int
    local: int


def unrolled_slabs(atom: Atom, variant: GeneralVariant) -> int:
    """Slabs in the body of a general kernel's loop: one for each set of atoms."""
    return 2 if variant.token_tiles <= _TWO_SET_TILES[atom] else 1


def _tool(name: str) -> Path:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        message = f"{name} is missing: pip install --no-deps triton==3.6.0"
        raise RuntimeError(message)
    return Path(spec.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / name


def _run(name: str, *arguments: str) -> str:
    result = subprocess.run([str(_tool(name)), *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        message = f"{name} {' '.join(arguments)}: {result.stderr}"
        raise RuntimeError(message)
    return result.stdout + result.stderr


def resources(cubin: Path) -> dict[str, Resources]:
    """Registers, stack and local memory of each kernel."""
    text = _run("cuobjdump", "-res-usage", str(cubin))
    return {
        match[1]: Resources(int(match[2]), int(match[3]), int(match[5])) for match in _USAGE.finditer(text)
    }


def instructions(cubin: Path) -> dict[str, Counter[str]]:
    """How often each instruction, with its modifiers, stands in each kernel."""
    return {name: Counter(items) for name, items in listing(cubin).items()}


def listing(cubin: Path) -> dict[str, list[str]]:
    """The instructions of each kernel, with their modifiers, in their order."""
    text = _run("nvdisasm", "-c", str(cubin))
    starts = list(_FUNCTION.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {
        match[1]: _INSTRUCTION.findall(text[match.end() : end])
        for match, end in zip(starts, ends, strict=True)
    }
