"""Each rule about imports and the environment, once kept and broken in several ways."""

from pathlib import Path

import pytest

import check_imports
from tree_builder import add_suite, write

MOE = "packages/sm70-moe/src/sm70_moe"
POLICY = "packages/sm70-policy/src/sm70_policy"
TOOLS = "packages/sm70-tools/src/sm70_tools"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    add_suite(tmp_path)
    return tmp_path


def directions(root: Path) -> list[str]:
    return check_imports.check_directions(root, check_imports.load_modules(root))


def loading(root: Path) -> list[str]:
    return check_imports.check_loading(root, check_imports.load_modules(root))


def environment(root: Path, *readers: str) -> list[str]:
    return check_imports.check_environment(root, check_imports.load_modules(root), frozenset(readers))


def test_a_clean_tree_has_no_findings(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_imports.main(["--root", str(root)]) == 0
    assert capsys.readouterr().out == "check_imports: ok\n"


@pytest.mark.parametrize(
    "statement",
    [
        "import json",
        "import sm70_policy.route",
        "from sm70_policy import route",
        "import torch",
        "from . import a",
    ],
)
def test_allowed_imports(root: Path, statement: str) -> None:
    write(root, f"{MOE}/experts.py", f"{statement}\n")
    assert directions(root) == []


@pytest.mark.parametrize(
    ("place", "statement", "named"),
    [
        (f"{MOE}/experts.py", "import sm70_tools", "sm70_moe imports sm70_tools"),
        (f"{MOE}/experts.py", "def f():\n    from sm70_tools import cli", "sm70_moe imports sm70_tools"),
        (f"{MOE}/experts.py", "import requests", "sm70_moe imports requests"),
        (f"{POLICY}/route.py", "from sm70_moe.provider import PROVIDER", "sm70_policy imports sm70_moe"),
        (f"{POLICY}/route.py", "import rich", "sm70_policy imports rich"),
        (f"{TOOLS}/cli.py", "import sm70_moe", "sm70_tools imports sm70_moe when loaded"),
    ],
)
def test_wrong_imports_are_found(root: Path, place: str, statement: str, named: str) -> None:
    write(root, place, f"{statement}\n")
    findings = directions(root)
    assert findings
    assert all(named in finding and place in finding for finding in findings)
    assert check_imports.main(["--root", str(root)]) == 1


def test_the_tools_may_import_an_extra_inside_a_function(root: Path) -> None:
    write(root, f"{TOOLS}/cli.py", "def explain():\n    import sm70_moe\n")
    assert directions(root) == []


@pytest.mark.parametrize("heavy", ["import torch", "from vllm import config", "import triton.language as tl"])
def test_a_provider_that_loads_something_heavy_is_found(root: Path, heavy: str) -> None:
    write(root, f"{MOE}/provider.py", f"{heavy}\n")
    assert loading(root) == [
        f"{MOE}/provider.py: loading it imports sm70_moe.provider -> {heavy.split()[1].partition('.')[0]}"
    ]


def test_a_heavy_import_is_found_through_other_modules(root: Path) -> None:
    write(root, f"{POLICY}/vllm/plugin.py", "from sm70_policy.vllm import adapter\n")
    write(root, f"{POLICY}/vllm/__init__.py", "")
    write(root, f"{POLICY}/vllm/adapter.py", "from ..layers import x\n")
    write(root, f"{POLICY}/layers.py", "try:\n    import torch\nexcept ImportError:\n    torch = None\n")
    (finding,) = loading(root)
    assert finding.endswith(
        "sm70_policy.vllm.plugin -> sm70_policy.vllm.adapter -> sm70_policy.layers -> torch"
    )


def test_a_heavy_import_in_the_package_itself_is_found(root: Path) -> None:
    write(root, f"{MOE}/__init__.py", "import torch\n")
    write(root, f"{MOE}/provider.py", "")
    assert loading(root) == [f"{MOE}/provider.py: loading it imports sm70_moe -> torch"]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import torch\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
        "import typing\nif typing.TYPE_CHECKING:\n    from torch import Tensor\n",
    ],
)
def test_lazy_and_typing_imports_cost_nothing(root: Path, source: str) -> None:
    write(root, f"{MOE}/provider.py", source)
    assert loading(root) == []


@pytest.mark.parametrize(
    "use",
    ["os.environ['A']", "os.environ.get('A')", "os.getenv('A')", "dict(os.environ)"],
)
def test_reading_the_environment_is_for_named_modules(root: Path, use: str) -> None:
    write(root, f"{TOOLS}/doctor.py", f"import os\nvalue = {use}\n")
    assert environment(root, "sm70_tools.doctor") == []
    (finding,) = environment(root)
    assert (
        finding
        == f"{TOOLS}/doctor.py:2: sm70_tools.doctor reads the environment and is not among its readers"
    )


def test_importing_environ_counts_as_reading(root: Path) -> None:
    write(root, f"{TOOLS}/doctor.py", "from os import environ\n")
    assert len(environment(root)) == 1


@pytest.mark.parametrize(
    "write_statement",
    [
        "os.environ['A'] = '1'",
        "del os.environ['A']",
        "os.environ.setdefault('A', '1')",
        "os.environ.update(A='1')",
        "os.environ.pop('A')",
        "os.environ |= {}",
        "os.putenv('A', '1')",
        "os.environ = {}",
    ],
)
def test_writing_the_environment_is_for_nobody(root: Path, write_statement: str) -> None:
    write(root, f"{TOOLS}/doctor.py", f"import os\n{write_statement}\n")
    (finding,) = environment(root, "sm70_tools.doctor")
    assert "the environment is written" in finding
