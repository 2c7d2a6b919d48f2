"""Machine code with its control bits, read with triton 3.6.0's tools: the last that read sm_70."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from build_support.libraries import BuildError

_REGISTERS = re.compile(r"Function (\w+):\s*\n\s*REG:(\d+)")
_FUNCTION = re.compile(r"\.text\.(\w+):$")
_LABEL = re.compile(r"(\.L_\w+):$")
_LOW_WORD = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.+?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/$")
_HIGH_WORD = re.compile(r"/\* 0x([0-9a-f]{16}) \*/$")
_TARGET = re.compile(r"\((\.L_\w+)\)")

_NO_BARRIER = 7


@dataclass(frozen=True)
class Instruction:
    """One instruction of compute capability 7.0 to 9.0.

    Attributes:
        text: Opcode with modifiers and operands, without the predicate.
        stall: Cycles until the warp may issue its next instruction.
        sets: Scoreboard barrier that its result releases; None for instructions of fixed latency.
        waits: Barriers that must be released before it issues.
        target: Index of the instruction that it branches to; None for all others.
    """

    text: str
    stall: int = 1
    sets: int | None = None
    waits: frozenset[int] = frozenset()
    target: int | None = None

    @property
    def opcode(self) -> str:
        """Opcode with its modifiers."""
        return self.text.split(maxsplit=1)[0]


def registers(cubin: Path) -> dict[str, int]:
    """Registers of a thread of each kernel."""
    text = _run("cuobjdump", "-res-usage", str(cubin))
    return {match[1]: int(match[2]) for match in _REGISTERS.finditer(text)}


def disassemble(cubin: Path) -> dict[str, list[Instruction]]:
    """The instructions of each kernel in their order."""
    return parse(_run("nvdisasm", "-hex", "-c", str(cubin)))


def parse(text: str) -> dict[str, list[Instruction]]:
    """Read what `nvdisasm -hex -c` prints."""
    kernels: dict[str, list[Instruction]] = {}
    labels: dict[str, int] = {}
    current: list[Instruction] = []
    for line in map(str.strip, text.splitlines()):
        if match := _FUNCTION.match(line):
            current = kernels.setdefault(match[1], [])
        elif match := _LABEL.match(line):
            labels[match[1]] = len(current)
        elif match := _LOW_WORD.match(line):
            current.append(Instruction(match[1]))
        elif (match := _HIGH_WORD.match(line)) and current:
            current[-1] = _with_control(current[-1], int(match[1], 16))
    return {name: [_with_target(item, labels) for item in items] for name, items in kernels.items()}


def _with_control(instruction: Instruction, high: int) -> Instruction:
    # Bits 105 to 125 of the 128: stall count, yield, barriers set by the result and by the operands, waits.
    barrier = high >> 46 & 7
    mask = high >> 52 & 63
    return replace(
        instruction,
        stall=max(1, high >> 41 & 15),
        sets=None if barrier == _NO_BARRIER else barrier,
        waits=frozenset(i for i in range(6) if mask >> i & 1),
    )


def _with_target(instruction: Instruction, labels: dict[str, int]) -> Instruction:
    match = _TARGET.search(instruction.text)
    if not instruction.opcode.startswith("BRA") or match is None:
        return instruction
    return replace(instruction, target=labels[match[1]])


def _run(name: str, *arguments: str) -> str:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        message = f"{name} is missing: pip install --no-deps triton==3.6.0"
        raise BuildError(message)
    tool = Path(spec.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / name
    # Only NVIDIA's own disassembler is started, with a path that the caller made.
    result = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        message = f"{name} {' '.join(arguments)}: {result.stderr}"
        raise BuildError(message)
    return result.stdout
