"""Routes asked of real vLLM: the committed snapshot, one changed priority, two hash seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sm70_tools.routes import difference, encoding, processes
from sm70_tools.routes.categories import find_category, row_ids
from sm70_tools.routes.hosts import DEFAULT_HOST
from sm70_tools.routes.request import Request
from sm70_tools.routes.snapshot import Snapshot

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TESTS = Path(__file__).parent
GOLDEN = TESTS.parents[2] / "snapshots" / f"nvfp4-{DEFAULT_HOST}.json"
CARD = "v100"

UNAFFECTED = {
    f"nvfp4/edge/{name}"
    for name in (
        "qpn4-prepared",
        "qpn4-preparation-fails",
        "qpn4-workspace-fails",
        "operators-missing",
        "layout-abi-old",
        "k-of-general",
        "k-unsupported",
        "deprecated-qpn2",
    )
}
"""Edge cases in which QPN2 takes no layer, so that its order with TurboMind does not matter."""


def _asked(folder: Path, rows: Iterable[str], *program: str, hash_seed: str = "0") -> dict[str, Any]:
    """The rows that a program answers for the card, in a process of its own."""
    request, answer = folder / "request.json", folder / "answer.json"
    request.write_text(
        json.dumps(asdict(Request("nvfp4", DEFAULT_HOST, CARD, tuple(rows)))), encoding="utf-8"
    )
    command = [sys.executable, *program[:2], str(request), str(answer), *program[2:]]
    environment = {**processes._environment(()), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))["rows"]
    return found


def _of_card(golden: Snapshot) -> dict[str, Any]:
    """What the golden says of the one card, by row."""
    return {row_id: row["cards"][CARD] for row_id, row in golden.rows.items() if "cards" in row}


def test_one_changed_priority_changes_exactly_the_rows_of_the_two_kernels(tmp_path: Path) -> None:
    golden = encoding.read(GOLDEN)
    ids = row_ids(find_category("nvfp4"))
    script = str(TESTS / "tools_routes_worker.py")
    # Above QPN2's 210 and below QPN4's 220.
    found = _asked(tmp_path, ids, "-I", script, "TurboMindNvFp4LinearKernel", "215")
    before = _of_card(golden)
    assert found.keys() == before.keys()
    rows = {
        row_id: {**row, "cards": {**row["cards"], CARD: found[row_id]}} if row_id in found else row
        for row_id, row in golden.rows.items()
    }
    changes = difference.compare(golden, Snapshot("nvfp4", DEFAULT_HOST, {}, {}, rows))
    changed = {change.row_id for change in changes}
    applicable = {row_id for row_id, row in golden.rows.items() if "not_applicable" not in row}
    assert changed == applicable - UNAFFECTED
    assert len(changed) == 216 + 10
    for change in changes:
        assert any("Qpn2NvFp4LinearKernel -> TurboMindNvFp4LinearKernel" in line for line in change.details)
    expected = frozenset(changed)
    assert difference.judge(changes, expected).good
    assert not difference.judge(changes, expected - {min(expected)}).good
    assert not difference.judge(changes, expected | {min(UNAFFECTED)}).good


def test_hash_seeds_change_nothing_and_the_golden_is_met(tmp_path: Path) -> None:
    golden = _of_card(encoding.read(GOLDEN))
    # Each model, number of ranks and kind of speculation, and all edge cases.
    rows = [
        row_id
        for row_id in golden
        if "/edge/" in row_id or ("kv=fp8_e5m2" in row_id and "conc=4/budget=8192" in row_id)
    ]
    answers = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        answers.append(_asked(folder, rows, "-m", "sm70_tools.routes.vllm.worker", hash_seed=seed))
    assert json.dumps(answers[0]) == json.dumps(answers[1])
    assert answers[0] == {row_id: golden[row_id] for row_id in rows}
    assert len(rows) == 18 + 12
