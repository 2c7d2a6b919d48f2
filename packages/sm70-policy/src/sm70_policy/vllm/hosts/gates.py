"""Minimum capabilities of vLLM that stop a format before any kernel is asked, and how they are lifted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sm70_policy import registry
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.route import Policy, choose_installed
from sm70_policy.vllm.hosts.targets import read, read_function, unexpected
from sm70_policy.vllm.ledger import MARKER, Patch

if TYPE_CHECKING:
    from sm70_policy.capability import Device, Sm
    from sm70_policy.formats import WeightFormat

_LIFTED_MINIMUM = 70


@dataclass(frozen=True)
class Gate:
    """A minimum capability.

    Attributes:
        source: Which checkpoints it concerns, for the patch's name.
        weight_format: The format.
        module: Where the class is.
        owner: The class with `get_min_capability`.
        minimum: What that returns.
        stops: Cards below it for which the suite has kernels.
        selector: Patch without which an open gate would lead to kernels that cannot run.
        upstream: Where it is in vLLM's sources.
    """

    source: str
    weight_format: WeightFormat
    module: str
    owner: str
    minimum: int
    stops: frozenset[Sm]
    selector: str
    upstream: str

    @property
    def name(self) -> str:
        """The patch's name."""
        return f"{self.weight_format.name}-minimum-capability-{self.source}"


def gate_patch(gate: Gate) -> Patch:
    """The ledger's entry for a gate."""

    def check() -> None:
        minimum = read(gate.module, gate.owner).get_min_capability()
        if minimum != gate.minimum:
            raise unexpected(
                f"{gate.owner}.get_min_capability() == {minimum}",
                f"{gate.minimum}, which the patch was written for",
            )

    def perform() -> None:
        def get_min_capability(cls: type) -> int:
            return _LIFTED_MINIMUM

        setattr(get_min_capability, MARKER, gate.name)
        read(gate.module, gate.owner).get_min_capability = classmethod(get_min_capability)

    return Patch(
        name=gate.name,
        target=f"{gate.module}.{gate.owner}.get_min_capability",
        why=f"vLLM refuses {gate.weight_format.name.upper()} below compute capability {gate.minimum / 10} "
        "before any kernel is asked",
        upstream=gate.upstream,
        remove_when="vLLM asks its kernels instead of a constant, or the suite drops compute capability "
        f"{min(gate.stops)}",
        against=partial(_why_gate_stays, gate),
        read=partial(read_function, gate.module, gate.owner, "get_min_capability"),
        check=check,
        perform=perform,
        requires=(gate.selector,),
    )


def _why_gate_stays(gate: Gate, device: Device) -> str | None:
    """A gate is lifted only where it stands in the way, and only with a kernel behind it."""
    if device.sm not in gate.stops:
        return f"the gate does not stop {device}"
    return why_no_kernel(gate.weight_format, device)


def why_no_kernel(weight_format: WeightFormat, device: Device) -> str | None:
    """Why no installed kernel runs a format on a device; None when one does."""
    probe = LinearProblem("the probe", weight_format, n=128, k=128, activation=ActivationDtype.FLOAT16)
    # The default policy: a kernel that the user disabled must lead to the list of reasons at load, and a
    # closed gate would hide it.
    route = choose_installed(probe, device, registry.installed(), Policy())
    if route.kernel is not None:
        return None
    reasons = "; ".join(f"{item.kernel}: {item.verdict}" for item in route.verdicts)
    return f"no installed kernel of the suite runs {weight_format.name} there ({reasons})"
