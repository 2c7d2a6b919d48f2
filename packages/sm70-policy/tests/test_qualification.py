"""Limits of whole models: the table, and what `choose` makes of it."""

import pytest

from policy_fakes import FakeKernel, make_problem
from sm70_policy.capability import find_card
from sm70_policy.qualification import LIMITS, Workload, unqualified
from sm70_policy.route import Policy, choose
from sm70_policy.settings import Settings
from sm70_policy.verdict import Rejection

QPN4 = "Qpn4NvFp4LinearKernel"
V100 = find_card("v100").device
ONE = Workload(requests=1, speculative=False)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(), "an unknown number of concurrent requests, speculation unknown"),
        (Workload(2, speculative=False), "2 concurrent requests, without speculation"),
        (Workload(1, speculative=True), "1 concurrent requests, with speculation"),
        (Workload(1), "1 concurrent requests, speculation unknown"),
        (Workload(None, speculative=False), "an unknown number of concurrent requests, without speculation"),
    ],
)
def test_qpn4_is_for_one_request_without_speculation(workload: Workload, words: str) -> None:
    verdict = unqualified(QPN4, workload)
    assert isinstance(verdict, Rejection)
    assert verdict.code == "not-qualified"
    assert verdict.message == (
        f"admitted for one request at a time, without speculation; this engine has {words}"
    )
    assert "--max-num-seqs 1" in verdict.fix
    assert "quality of a model" in verdict.fix
    assert unqualified(QPN4, ONE) is None


def test_kernels_without_a_row_have_no_limit() -> None:
    assert unqualified("Qpn2NvFp4LinearKernel", Workload()) is None


def test_a_row_says_why_and_what_would_lift_it() -> None:
    assert all(limit.reason and limit.evidence and limit.fix and limit.allowed for limit in LIMITS)


def test_an_unqualified_kernel_is_not_asked_and_the_next_one_takes_over() -> None:
    first, second = FakeKernel(QPN4, 220), FakeKernel("B")
    route = choose(make_problem(), V100, [first, second], policy=Policy())
    assert (route.kernel, first.asked) == (second, [])
    assert choose(make_problem(), V100, [first, second], policy=Policy(workload=ONE)).kernel is first


def test_what_the_user_switched_off_is_said_before_the_limit() -> None:
    kernel = FakeKernel(QPN4, setting="sm70_nvfp4.qpn4")
    (item,) = choose(make_problem(), V100, [kernel], policy=Policy()).verdicts
    assert isinstance(item.verdict, Rejection)
    assert item.verdict.code == "disabled-by-setting"
    on = Settings.from_mapping({"sm70_nvfp4": {"qpn4": True}})
    assert choose(make_problem(), V100, [kernel], policy=Policy(on, workload=ONE)).kernel is kernel
