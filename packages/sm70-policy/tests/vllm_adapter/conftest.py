"""One process per compute capability and mode, started when a test first asks for it."""

from __future__ import annotations

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

    @functools.cache
    def run(capability: int, mode: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(f"scenario-{capability}-{mode}")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "SM70_"))
        }
        # No plug-in through entry points: the scenario registers the suite itself, or leaves it out.
        environment |= {"VLLM_PLUGINS": "", "PYTHONPATH": str(tests)}
        done = subprocess.run(
            [sys.executable, "-m", "vllm_adapter.scenarios", str(capability), mode, str(folder)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
