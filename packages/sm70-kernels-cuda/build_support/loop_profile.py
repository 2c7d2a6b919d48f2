"""Counts the hot loops of the strip kernels in their machine code.

    python -m build_support.loop_profile           writes src/sm70_kernels_cuda/profile/strip_loops.json
    python -m build_support.loop_profile --check   exits 1 when that file is not what the sources give

Run it in packages/sm70-kernels-cuda with src on the path; it needs the compiler's packages and triton 3.6.0.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from build_support.disassembly import Instruction, disassemble, registers
from build_support.fatbin import include_folders
from build_support.libraries import BuildError
from build_support.nvrtc import compile_source
from sm70_kernels_cuda.launch import VARIANTS
from sm70_kernels_cuda.profile.loops import REPLAY_LATENCIES, TABLE, LoopProfile, Loops, to_text

ARCHITECTURES = ("70", "75", "90")
"""The targets of the model, and the card that its error is measured on."""

ROOT = Path(__file__).resolve().parents[1]

_STREAMING_LOAD = re.compile(r"LDG\.E\.(NA|EF|LU)\.")
_PIPES: tuple[tuple[str, str], ...] = (
    ("tensor", r"HMMA"),
    ("half", r"H(MUL|FMA|ADD|SET|SETP|MNMX)2"),
    ("weight_loads", _STREAMING_LOAD.pattern + r"128"),
    ("scale_loads", _STREAMING_LOAD.pattern + r"64"),
    ("activation_loads", r"LDG\.E\.128"),
    ("shared", r"(LDS|STS|LDSM)"),
    ("multiply", r"(IMAD|FFMA|FMUL|FADD)"),
    ("integer", r"(LOP3|SHF|PRMT|IADD|LEA|ISETP|SEL|IMNMX|VIADD|VIMNMX|PLOP3|MOV|SHL|SHR|FSEL|FSETP)"),
    ("foreign_loads", r"(LDG|LD|ATOM|STG|ST|LDL|STL|RED)\b"),
)


def profile_kernel(name: str, instructions: list[Instruction], register_count: int) -> LoopProfile:
    """Profile one kernel.

    Raises:
        BuildError: The hot loop cannot be found, or does not read its weight as this table assumes.
    """
    body = hot_loop(name, instructions)
    counts = Counter(_pipe(item) for item in body)
    if counts["foreign_loads"] or not (counts["weight_loads"] and counts["scale_loads"]):
        message = (
            f"{name}: the hot loop has {counts['weight_loads']} streaming loads of 16 bytes, "
            f"{counts['scale_loads']} of 8 and {counts['foreign_loads']} other accesses; the table "
            "knows only the first two and 16-byte loads of x. Teach build_support/loop_profile.py more"
        )
        raise BuildError(message)
    return LoopProfile(
        registers=register_count,
        instructions=len(body),
        tensor=counts["tensor"],
        half=counts["half"],
        integer=counts["integer"],
        multiply=counts["multiply"],
        activation_loads=counts["activation_loads"],
        weight_loads=counts["weight_loads"],
        scale_loads=counts["scale_loads"],
        shared=counts["shared"],
        other=counts["other"],
        cover_cycles=_cover(body),
        serial_cycles=tuple(_replay(body, latency) for latency in REPLAY_LATENCIES),
    )


def hot_loop(name: str, instructions: list[Instruction]) -> list[Instruction]:
    """The instructions from the target of the backward branch that spans all HMMAs to that branch.

    Raises:
        BuildError: There is no such branch, or an HMMA stands outside: the loop was peeled or unrolled.
    """
    products = [i for i, item in enumerate(instructions) if _pipe(item) == "tensor"]
    if not products:
        message = f"{name}: no HMMA, so there is no hot loop to profile"
        raise BuildError(message)
    spans = [
        (item.target, i)
        for i, item in enumerate(instructions)
        if item.target is not None and item.target <= products[0] and products[-1] <= i
    ]
    if not spans:
        message = (
            f"{name}: no backward branch spans all {len(products)} HMMAs: the compiler split, peeled or "
            "unrolled the loop. Mark it `#pragma unroll 1`, or teach build_support/loop_profile.py the form"
        )
        raise BuildError(message)
    start, end = min(spans, key=lambda span: span[1] - span[0])
    return instructions[start : end + 1]


def _pipe(instruction: Instruction) -> str:
    for pipe, pattern in _PIPES:
        if re.match(pattern, instruction.opcode):
            return pipe
    return "other"


def _is_weight(instruction: Instruction) -> bool:
    return _STREAMING_LOAD.match(instruction.opcode) is not None


def _cover(body: list[Instruction]) -> int:
    """Stall cycles from the last load of the next unit to the first wait for any of them, around the loop."""
    loads = [i for i, item in enumerate(body) if _is_weight(item)]
    barriers = {body[i].sets for i in loads}
    cycles = body[loads[-1]].stall
    for step in range(1, len(body)):
        item = body[(loads[-1] + step) % len(body)]
        if barriers & item.waits:
            break
        cycles += item.stall
    return cycles


def _replay(body: list[Instruction], latency: int) -> int:
    """Cycles of one iteration of a lone warp whose loads of x take `latency` cycles."""
    now = 0
    ready: dict[int, int] = {}
    for item in body:
        now = max([now, *(ready[barrier] for barrier in item.waits if barrier in ready)])
        if _pipe(item) == "activation_loads" and item.sets is not None:
            ready[item.sets] = now + latency
        now += item.stall
    return now


def profile_all(folder: Path) -> Loops:
    """Compile the kernels and profile every variant; cubins go to `folder`."""
    loops: Loops = {}
    for architecture in ARCHITECTURES:
        cubin = folder / f"sm_{architecture}.cubin"
        source = ROOT / "csrc" / "sm70_kernels.cu"
        cubin.write_bytes(compile_source(source, f"sm_{architecture}", include_folders(ROOT)))
        code, used = disassemble(cubin), registers(cubin)
        names = [variant.kernel for variant in VARIANTS]
        loops[architecture] = {name: profile_kernel(name, code[name], used[name]) for name in names}
    return loops


def main(argv: list[str] | None = None) -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        text = to_text(profile_all(Path(folder)))
    if not arguments.check:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    if text == TABLE.read_text(encoding="utf-8"):
        return 0
    sys.stderr.write(f"{TABLE.name} is stale; run python -m build_support.loop_profile\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
