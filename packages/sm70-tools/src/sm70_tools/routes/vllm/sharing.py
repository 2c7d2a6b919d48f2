"""Kernels whose preparation of equal sizes runs once: a snapshot loads the same sizes hundreds of times."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sm70_policy.registry import Registry

if TYPE_CHECKING:
    from sm70_policy.capability import Device
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import LinearKernel, PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings
    from sm70_policy.verdict import Verdict


class SharedPreparation:
    """A kernel that answers as another does, and prepares each combination of sizes and settings once.

    What `prepare` returns is a copy on the meta device: a route does not depend on a weight's values.

    Attributes:
        name: That of the other kernel, as are `priority` and `setting`.
    """

    def __init__(self, kernel: LinearKernel) -> None:
        """Stand in for `kernel`."""
        self.name = kernel.name
        self.priority = kernel.priority
        self.setting = kernel.setting
        self._kernel = kernel
        self._prepared: dict[object, Any] = {}

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """The kernel's own verdict."""
        return self._kernel.supports(problem, device)

    def resident_bytes(self, problem: LinearProblem) -> int:
        """The kernel's own number."""
        return self._kernel.resident_bytes(problem)

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        """The module that the kernel made for the same sizes, with tensors on the meta device."""
        key = (problem.weight_format.name, problem.n, problem.k, problem.activation, problem.shards, settings)
        if key not in self._prepared:
            prepared: Any = self._kernel.prepare(problem, weight, settings)
            self._prepared[key] = prepared.to("meta")
        module: PreparedLinear = copy.deepcopy(self._prepared[key])
        return module


def with_shared_preparation(registry: Registry) -> Registry:
    """The same registry with every kernel in a SharedPreparation."""
    providers = tuple(
        replace(item, linear_kernels=tuple(SharedPreparation(kernel) for kernel in item.linear_kernels))
        for item in registry.providers
    )
    return Registry(providers, registry.absences)
