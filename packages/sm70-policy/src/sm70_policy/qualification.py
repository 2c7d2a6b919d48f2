"""Limits of whole models on kernels that could run: what is admitted, why no more, what would admit more.

A kernel's own limits (sizes, dtypes, cards) are in its `supports`. The rows here are about quality and speed
of a model as it is served, and a row is lifted by the evidence it names, not by a change of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_policy.verdict import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Workload:
    """How an engine will be used, as far as its configuration says.

    Attributes:
        requests: Most requests that run at the same time; None where nobody said.
        speculative: Whether tokens are drafted and verified; None where nobody said.
    """

    requests: int | None = None
    speculative: bool | None = None

    def __str__(self) -> str:
        requests = "an unknown number of" if self.requests is None else str(self.requests)
        drafts = {None: "speculation unknown", True: "with speculation", False: "without speculation"}
        return f"{requests} concurrent requests, {drafts[self.speculative]}"


@dataclass(frozen=True)
class Limit:
    """One row of the table.

    Attributes:
        kernel: Class name.
        admits: Whether a workload is within the limit. One that is unknown is not.
        allowed: The limit in words.
        reason: Why it is there.
        evidence: The least that would lift it.
        fix: What a user can do.
    """

    kernel: str
    admits: Callable[[Workload], bool]
    allowed: str
    reason: str
    evidence: str
    fix: str


LIMITS: tuple[Limit, ...] = (
    Limit(
        kernel="Qpn4NvFp4LinearKernel",
        admits=lambda workload: workload.requests == 1 and workload.speculative is False,
        allowed="one request at a time, without speculation",
        reason="its variants were compiled for this workload, and other Volta builds have it for no other",
        evidence="an oracle at the new row counts, memory admission, graph replay, and the quality of a "
        "model with speculative state",
        fix="start vLLM with --max-num-seqs 1 and without a draft model, or leave it to the next kernel",
    ),
)


def unqualified(kernel: str, workload: Workload) -> Rejection | None:
    """Why a kernel is not for a workload; None when no limit stands against it."""
    for limit in LIMITS:
        if limit.kernel == kernel and not limit.admits(workload):
            return Rejection(
                "not-qualified",
                f"admitted for {limit.allowed}; this engine has {workload}",
                f"{limit.fix}; to be lifted by {limit.evidence}",
            )
    return None
