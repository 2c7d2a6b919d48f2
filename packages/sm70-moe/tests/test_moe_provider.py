"""The installed entry point loads, fits the contract and offers nothing."""

import subprocess
import sys
from importlib.metadata import entry_points, version

from sm70_policy.provider import Provider
from sm70_policy.registry import discover


def test_the_entry_point_names_the_provider() -> None:
    (entry,) = entry_points(group="sm70.providers", name="moe")
    assert entry.value == "sm70_moe.provider:PROVIDER"


def test_the_entry_point_loads_a_provider_without_kernels() -> None:
    (entry,) = entry_points(group="sm70.providers", name="moe")
    provider = entry.load()
    assert isinstance(provider, Provider)
    assert provider.name == "moe"
    assert provider.distribution == "sm70-moe"
    assert provider.linear_kernels == ()


def test_the_version_is_that_of_the_distribution() -> None:
    (entry,) = entry_points(group="sm70.providers", name="moe")
    assert entry.load().version == version("sm70-moe")


def test_the_policy_accepts_it_and_gets_no_kernel() -> None:
    registry = discover(entry_points(group="sm70.providers", name="moe"))
    assert [provider.name for provider in registry.providers] == ["moe"]
    assert registry.linear_kernels() == ()
    assert "sm70-moe" not in [absence.distribution for absence in registry.absences]


def test_loading_it_imports_neither_torch_nor_triton_nor_vllm() -> None:
    program = "import sys, sm70_moe.provider; print(sorted({'torch', 'triton', 'vllm'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
