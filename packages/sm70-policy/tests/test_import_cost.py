"""Importing the policy costs neither torch nor vLLM: command lines and plug-in discovery stay fast."""

import subprocess
import sys

import pytest

_HEAVY = {"torch", "triton", "vllm", "numpy", "rich"}
_MODULES = (
    "capability",
    "errors",
    "formats",
    "problem",
    "provider",
    "registry",
    "route",
    "settings",
    "verdict",
    "weights",
)


@pytest.mark.parametrize("module", ["sm70_policy", *(f"sm70_policy.{name}" for name in _MODULES)])
def test_importing_a_module_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(sorted({_HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
