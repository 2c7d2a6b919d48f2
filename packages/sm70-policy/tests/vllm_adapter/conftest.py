"""One process per compute capability and mode, started when a test first asks for it.

The workers of pytest-xdist share what came out: a process imports torch and vLLM, and those seconds are most
of the session.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Outcome = Callable[[int, str], dict[str, Any]]


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Call it with a capability and a mode of `vllm_adapter.scenarios`."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    tests = Path(__file__).parents[1]

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @functools.cache
    def run(capability: int, mode: str) -> dict[str, Any]:
        folder = shared / f"scenario-{capability}-{mode}"
        folder.mkdir(exist_ok=True)
        result = folder / "outcome.json"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                result.write_text(_start(tests, capability, mode, folder))
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    return run


def _start(tests: Path, capability: int, mode: str, folder: Path) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "SM70_"))
    }
    # No plug-in through entry points: the scenario registers the suite itself, or leaves it out.
    paths = [str(tests), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"VLLM_PLUGINS": "", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "vllm_adapter.scenarios", str(capability), mode, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
