"""Snapshots that tests can write down: two small rows of a category, and a way to change one part of them."""

from __future__ import annotations

import copy
from typing import Any

from sm70_tools.routes.snapshot import Snapshot

ONE = "nvfp4/27b-nvfp4/kv=auto/tp=4/spec=none/conc=1/budget=4096"
FOUR = "nvfp4/27b-nvfp4/kv=auto/tp=4/spec=none/conc=4/budget=4096"
OTHER = "nvfp4/35b-awq/kv=auto/tp=4/spec=none/conc=1/budget=4096"
EDGE = "nvfp4/edge/n-padded"
REFUSED = "nvfp4/edge/k-unsupported"


def layer(*rows: int, served_by: str = "FastKernel", grid: int = 56) -> dict[str, Any]:
    """What one layer takes for numbers of rows."""
    return {
        "n": 3584,
        "k": 5120,
        "class": served_by,
        "entry": "sm70::nvfp4_linear(qpn2=True, dense_rows=0, k=5120)",
        "weight": "uint8 [224, 20, 2304]",
        "passed_over": {"SlowKernel": "disabled-by-setting"},
        "launches": {str(m): f"kernel_{m} grid={grid}x1 threads=512 shared=33792" for m in rows},
    }


def rows() -> dict[str, dict[str, Any]]:
    """One row of each kind; a fresh copy at each call."""
    return copy.deepcopy(
        {
            ONE: {
                "decode_m": 1,
                "prefill_m": 4096,
                "cards": {
                    "v100": {"layers": {"qkv_proj": layer(1, 4096)}},
                    "rtx8000": {"layers": {"qkv_proj": layer(1, 4096, grid=112)}},
                },
            },
            FOUR: {
                "decode_m": 4,
                "prefill_m": 4096,
                "cards": {
                    "v100": {"layers": {"qkv_proj": layer(4, 4096)}},
                    "rtx8000": {"refused": "ValueError: no", "passed_over": {}},
                },
            },
            OTHER: {"not_applicable": "the scope's checkpoint is awq"},
            EDGE: {"about": "little N", "cards": {"v100": {"layers": {"in_proj_ba": layer(1, 4096)}}}},
            REFUSED: {
                "about": "odd K",
                "cards": {"v100": {"refused": "RouteError: no", "passed_over": {"FastKernel": "k"}}},
            },
        }
    )


def snapshot(content: dict[str, dict[str, Any]] | None = None, category: str = "nvfp4") -> Snapshot:
    """A snapshot of these rows, or of those of `rows`."""
    return Snapshot(
        category,
        "0.33.0",
        {"vllm": "0.33.0", "triton": None},
        {"rows": "written by hand"},
        rows() if content is None else content,
    )
