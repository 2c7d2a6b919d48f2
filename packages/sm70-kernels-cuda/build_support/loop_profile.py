"""Counts the hot loops of the strip and general kernels in their machine code.

    python -m build_support.loop_profile           writes src/sm70_kernels_cuda/profile/loops.json
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
from sm70_kernels_cuda.launch import VARIANTS, Atom, atom_of
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, warp_shape
from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_ROWS
from sm70_kernels_cuda.profile.loops import REPLAY_LATENCIES, TABLE, LoopProfile, Loops, to_text

ARCHITECTURES = {"70": "70", "75": "75", "90": "90a"}
"""The targets of the model and the card that its error is measured on; what the wheel compiles for each."""

ROOT = Path(__file__).resolve().parents[1]

_SHARED_LATENCY = 30
"""Cycles of a 16-byte load from shared memory: public microbenchmarks, not checked here."""

_LONG = 4000
"""A latency of weight, in cycles, that no loop covers: what is missing to it, the loop does cover."""

_ITERATIONS = 6
"""So many iterations of a replay reach its steady state."""

_STREAMING_LOAD = re.compile(r"LDG\.E\.(NA|EF|LU)\.")
_PIPES: tuple[tuple[str, str], ...] = (
    ("tensor", r"HMMA"),
    ("half", r"H(MUL|FMA|ADD|SET|SETP|MNMX)2"),
    ("weight_loads", _STREAMING_LOAD.pattern + r"128"),
    ("scale_loads", _STREAMING_LOAD.pattern + r"64"),
    ("activation_loads", r"LDG(STS)?\.E(\.BYPASS)?\.128"),
    ("shared", r"(LDS|STS|LDSM)"),
    ("multiply", r"(IMAD|FFMA|FMUL|FADD)"),
    ("integer", r"(LOP3|SHF|PRMT|IADD|LEA|ISETP|SEL|IMNMX|VIADD|VIMNMX|PLOP3|MOV|SHL|SHR|FSEL|FSETP)"),
    ("foreign_loads", r"(LDG|LD|ATOM|STG|ST|LDL|STL|RED)\b"),
)


def profile_kernel(
    name: str, instructions: list[Instruction], register_count: int, loads_of_slab: int | None = None
) -> LoopProfile:
    """Profile one kernel.

    Args:
        name: Name of the kernel.
        instructions: Its machine code.
        register_count: Registers of a thread.
        loads_of_slab: Loads of codes of one slab of a general kernel; None for a strip kernel.

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
        slabs=1 if loads_of_slab is None else counts["weight_loads"] // loads_of_slab,
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
        shared_wavefronts=sum(_wavefronts(item) for item in body),
        other=counts["other"],
        cover_cycles=_cover(body) if loads_of_slab is None else _steady_cover(body, counts, loads_of_slab),
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


def _steady_cover(body: list[Instruction], counts: Counter[str], loads_of_slab: int) -> int:
    """What a slab hides of the latency of weight: its groups' loads and waits alternate, so by replay."""
    slabs = counts["weight_loads"] // loads_of_slab
    return _LONG - (_replay(body, 0, _LONG) - _replay(body, 0)) // slabs


def _replay(body: list[Instruction], latency: int, weight_latency: int = 0) -> int:
    """Cycles of one iteration of a lone warp whose loads of x and weight take so many cycles."""
    latencies = {"activation_loads": latency, "weight_loads": weight_latency, "shared": _SHARED_LATENCY}
    now = start = asynchronous = 0
    ready: dict[int, int] = {}
    for _ in range(_ITERATIONS):
        start = now
        for item in body:
            now = max([now, *(ready[barrier] for barrier in item.waits if barrier in ready)])
            pipe = _pipe(item)
            if item.opcode.startswith("LDGSTS"):
                asynchronous = max(asynchronous, now + latency)
            elif item.opcode.startswith("DEPBAR"):
                now = max(now, asynchronous)
            elif pipe in latencies and item.sets is not None:
                ready[item.sets] = max(ready.get(item.sets, 0), now + latencies[pipe])
            now += item.stall
    return now - start


def _wavefronts(instruction: Instruction) -> int:
    """Passes of 128 bytes through shared memory: a warp's 4 bytes a lane are one."""
    if not re.match(r"(LDS|STS|LDGSTS)\b", instruction.opcode):
        return 0
    return 4 if ".128" in instruction.opcode else 2 if ".64" in instruction.opcode else 1


def profile_all(folder: Path) -> Loops:
    """Compile the kernels and profile every variant; cubins go to `folder`."""
    loops: Loops = {}
    for architecture, target in ARCHITECTURES.items():
        cubin = folder / f"sm_{architecture}.cubin"
        source = ROOT / "csrc" / "sm70_kernels.cu"
        cubin.write_bytes(compile_source(source, f"sm_{target}", include_folders(ROOT)))
        code, used = disassemble(cubin), registers(cubin)
        loads = _loads_of_slabs(atom_of(int(architecture)))
        loops[architecture] = {
            name: profile_kernel(name, code[name], used[name], count) for name, count in loads.items()
        }
    return loops


def _loads_of_slabs(atom: Atom) -> dict[str, int | None]:
    """All kernels in their order: for the general ones, the loads of codes that a lane does for a slab."""
    strip: dict[str, int | None] = dict.fromkeys(variant.kernel for variant in VARIANTS)
    tiles = warp_shape(atom).rows // BLOCK_ROWS
    return strip | dict.fromkeys((variant.kernel for variant in GENERAL_VARIANTS), tiles)


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
