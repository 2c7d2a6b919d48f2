"""Hot loops of the strip and general kernels: instructions by pipe, registers, duration for a lone warp."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("loops.json")
"""Written by `python -m build_support.loop_profile`; a test compares it with the sources."""

SCHEMA = "sm70-loops/2"

REPLAY_LATENCIES = (0, 50, 100, 200, 400, 800)
"""Latencies of a load of x, in cycles, for which the table holds the duration of one iteration."""


@dataclass(frozen=True)
class LoopProfile:
    """One iteration of a kernel's hot loop, for one warp.

    For a strip kernel that is one unit of weight, for a general kernel one slab or, unrolled, several.

    Attributes:
        slabs: Slabs of an iteration; 1 for a strip kernel.
        registers: Registers of a thread.
        instructions: All instructions, both sides of a branch included.
        tensor: HMMA. On 7.0 one `mma` is four of them.
        half: Packed FP16 arithmetic, such as HMUL2.
        integer: Logic, shifts, comparisons and additions.
        multiply: IMAD and FFMA, moves by IMAD among them.
        activation_loads: 16-byte loads of x.
        weight_loads: 16-byte loads of codes.
        scale_loads: 8-byte loads of scales.
        shared: Loads from and stores to shared memory.
        shared_wavefronts: Passes of 128 bytes that these take, free of bank conflicts.
        other: Branches, moves of special registers and the rest.
        cover_cycles: Cycles between the loads of the next unit or slab and the first wait for them.
        serial_cycles: Duration for a lone warp whose weight is there, for each of REPLAY_LATENCIES.
    """

    slabs: int
    registers: int
    instructions: int
    tensor: int
    half: int
    integer: int
    multiply: int
    activation_loads: int
    weight_loads: int
    scale_loads: int
    shared: int
    shared_wavefronts: int
    other: int
    cover_cycles: int
    serial_cycles: tuple[int, ...]

    @property
    def unit_bytes(self) -> int:
        """Weight bytes that a warp reads in one iteration."""
        return 32 * (16 * self.weight_loads + 8 * self.scale_loads)

    def serial(self, latency: float) -> float:
        """Duration in cycles for a latency of x in cycles: linear between the replays and beyond the last."""
        right = min(bisect_right(REPLAY_LATENCIES, latency), len(REPLAY_LATENCIES) - 1)
        x0, x1 = REPLAY_LATENCIES[right - 1], REPLAY_LATENCIES[right]
        y0, y1 = self.serial_cycles[right - 1], self.serial_cycles[right]
        return y0 + (y1 - y0) * (latency - x0) / (x1 - x0)


Loops = dict[str, dict[str, LoopProfile]]
"""Architecture (`70`) to kernel name to loop."""


def to_text(loops: Loops) -> str:
    """The table as JSON, one kernel a line."""
    parts = []
    for architecture, kernels in loops.items():
        rows = [f'   "{name}": {json.dumps(asdict(loop))}' for name, loop in kernels.items()]
        parts.append(f'  "{architecture}": {{\n' + ",\n".join(rows) + "\n  }")
    return f'{{\n "schema": "{SCHEMA}",\n "loops": {{\n' + ",\n".join(parts) + "\n }\n}\n"


def from_text(text: str) -> Loops:
    """Read what `to_text` wrote."""
    document: dict[str, Any] = json.loads(text)
    return {
        architecture: {
            name: LoopProfile(**{**row, "serial_cycles": tuple(row["serial_cycles"])})
            for name, row in kernels.items()
        }
        for architecture, kernels in document["loops"].items()
    }


def load() -> Loops:
    """The table of the installed kernels."""
    return from_text(TABLE.read_text(encoding="utf-8"))
