"""Choosing a kernel for a problem: a pure function that keeps every verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sm70_policy.capability import DeviceKind
from sm70_policy.errors import RouteError
from sm70_policy.qualification import Workload, unqualified
from sm70_policy.settings import Settings
from sm70_policy.verdict import Rejection, Supported, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sm70_policy.capability import Device
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import LinearKernel
    from sm70_policy.registry import Absence, Registry


@dataclass(frozen=True)
class KernelVerdict:
    """One kernel, or one package that brings none, and what it answered."""

    kernel: str
    verdict: Verdict

    @property
    def supported(self) -> bool:
        """Whether the kernel could serve the problem."""
        return isinstance(self.verdict, Supported)


@dataclass(frozen=True)
class Route:
    """The outcome of a choice.

    Attributes:
        problem: What was asked.
        device: For which device.
        kernel: The chosen kernel; None when no kernel supports the problem.
        verdicts: The answer of every kernel in the order asked, then the packages that are missing.
    """

    problem: LinearProblem
    device: Device
    kernel: LinearKernel | None
    verdicts: tuple[KernelVerdict, ...]

    @property
    def passed_over(self) -> tuple[KernelVerdict, ...]:
        """All verdicts but the chosen kernel's."""
        chosen = None if self.kernel is None else self.kernel.name
        return tuple(item for item in self.verdicts if item.kernel != chosen)

    def require(self) -> LinearKernel:
        """Return the chosen kernel.

        Raises:
            RouteError: No kernel supports the problem; the message lists every reason.
        """
        if self.kernel is not None:
            return self.kernel
        problem = self.problem
        reasons = "\n".join(f"  {item.kernel}: {item.verdict}" for item in self.verdicts)
        raise RouteError(
            f"No {problem.weight_format.name} kernel of the suite can serve {problem.layer} "
            f"(N={problem.n}, K={problem.k}, {problem.activation}) on {self.device}:\n{reasons}"
        )


@dataclass(frozen=True)
class Policy:
    """What the user decided: settings, kernels disabled by class name, and how the engine will be used."""

    settings: Settings = field(default_factory=Settings)
    disabled: frozenset[str] = frozenset()
    workload: Workload = field(default_factory=Workload)


def choose(
    problem: LinearProblem,
    device: Device,
    kernels: Iterable[LinearKernel],
    *,
    policy: Policy,
    absences: Iterable[Absence] = (),
) -> Route:
    """Ask every kernel in the given order and take the first that supports the problem.

    Args:
        problem: The layer.
        device: Where it will run.
        kernels: Candidates, best first.
        policy: Settings and disabled kernels.
        absences: Packages without kernels, recorded among the verdicts.
    """
    chosen: LinearKernel | None = None
    verdicts: list[KernelVerdict] = []
    for kernel in kernels:
        verdict = _withheld(kernel, problem, device, policy) or kernel.supports(problem, device)
        verdicts.append(KernelVerdict(kernel.name, verdict))
        if chosen is None and isinstance(verdict, Supported):
            chosen = kernel
    verdicts.extend(KernelVerdict(absence.distribution, absence.rejection) for absence in absences)
    return Route(problem, device, chosen, tuple(verdicts))


def choose_installed(problem: LinearProblem, device: Device, registry: Registry, policy: Policy) -> Route:
    """`choose` over everything that `registry` found."""
    return choose(problem, device, registry.linear_kernels(), policy=policy, absences=registry.absences)


def _withheld(
    kernel: LinearKernel, problem: LinearProblem, device: Device, policy: Policy
) -> Rejection | None:
    """Why the user, or the promise to leave stock vLLM alone, keeps a kernel from being asked."""
    if kernel.name in policy.disabled:
        return Rejection(
            "disabled-by-name",
            f"{kernel.name} is listed in VLLM_DISABLED_KERNELS",
            "remove it from that list",
        )
    section = f"sm70_{problem.weight_format.name}"
    enabled = policy.settings.lookup(f"{section}.enabled")
    if enabled is False:
        return Rejection(
            "disabled-by-setting", f"{section}.enabled is false", f"set {section}.enabled to true or null"
        )
    if enabled is None and device.kind is DeviceKind.CUDA and not device.is_sm7x:
        return Rejection(
            "not-requested",
            f"on compute capability {device.sm} stock vLLM keeps its own kernel",
            f"set {section}.enabled to true to ask for the suite's kernels",
        )
    if kernel.setting is not None and policy.settings.lookup(kernel.setting) is False:
        return Rejection("disabled-by-setting", f"{kernel.setting} is false", f"set {kernel.setting} to true")
    return unqualified(kernel.name, policy.workload)
