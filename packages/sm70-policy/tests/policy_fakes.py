"""Stand-ins for providers: kernels whose answers a test decides, and entry points that load them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import TYPE_CHECKING

from sm70_policy.__about__ import CONTRACT_VERSION
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import Provider
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict

if TYPE_CHECKING:
    import pytest

    from sm70_policy.capability import Device
    from sm70_policy.provider import LinearKernel, PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings

REFUSAL = Rejection("k-not-multiple", "K=576 is not a multiple of 128", "use another kernel")


@dataclass
class FakeKernel:
    """A kernel that gives one fixed answer and remembers what it was asked."""

    name: str
    priority: int = 100
    setting: str | None = None
    answer: Verdict = SUPPORTED
    asked: list[tuple[LinearProblem, Device]] = field(default_factory=list)

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        self.asked.append((problem, device))
        return self.answer

    def resident_bytes(self, problem: LinearProblem) -> int:
        return problem.weight_bytes

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        raise NotImplementedError


def make_problem(n: int = 64, k: int = 576) -> LinearProblem:
    """An NVFP4 layer without shards."""
    return LinearProblem("model.layers.0.mlp.down_proj", NVFP4, n, k, ActivationDtype.FLOAT16)


def make_provider(name: str, *kernels: LinearKernel, contract: int = CONTRACT_VERSION) -> Provider:
    """A provider called `name` of the distribution `fake-<name>`."""
    return Provider(name, f"fake-{name}", "1.2.3", contract, kernels)


def install_module(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    """Make `import name` give a module with these attributes, for the length of a test."""
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def entry(name: str, value: str) -> EntryPoint:
    """An entry point of the group that providers use."""
    return EntryPoint(name=name, value=value, group="sm70.providers")
