"""Choosing a kernel: order, verdicts that are all kept, and what the user decided."""

import random

import pytest

from policy_fakes import REFUSAL, FakeKernel, make_problem, make_provider
from sm70_policy.capability import Device, Sm, find_card
from sm70_policy.errors import RouteError
from sm70_policy.registry import Absence, Registry
from sm70_policy.route import KernelVerdict, Policy, Route, choose, choose_installed
from sm70_policy.settings import Settings
from sm70_policy.verdict import SUPPORTED, Rejection

V100 = find_card("v100").device
PROBLEM = make_problem()


def _policy(disabled: tuple[str, ...] = (), **nvfp4: bool | None) -> Policy:
    return Policy(Settings.from_mapping({"sm70_nvfp4": nvfp4}), frozenset(disabled))


def _codes(route: Route) -> list[tuple[str, str]]:
    return [
        (item.kernel, item.verdict.code if isinstance(item.verdict, Rejection) else "supported")
        for item in route.verdicts
    ]


def test_the_first_that_supports_wins_and_the_later_ones_are_still_asked() -> None:
    kernels = [FakeKernel("A", answer=REFUSAL), FakeKernel("B"), FakeKernel("C")]
    route = choose(PROBLEM, V100, kernels, policy=Policy())
    assert route.kernel is kernels[1]
    assert route.require() is kernels[1]
    assert _codes(route) == [("A", "k-not-multiple"), ("B", "supported"), ("C", "supported")]
    assert [item.kernel for item in route.passed_over] == ["A", "C"]
    assert [kernel.asked for kernel in kernels] == [[(PROBLEM, V100)]] * 3


def test_choose_installed_asks_by_priority_and_records_absences() -> None:
    absence = Absence("sm70-moe", Rejection("not-installed", "sm70-moe is not installed", "install it"))
    registry = Registry((make_provider("a", FakeKernel("Low", 50), FakeKernel("High", 250)),), (absence,))
    route = choose_installed(PROBLEM, V100, registry, Policy())
    assert route.require().name == "High"
    assert [item.kernel for item in route.verdicts] == ["High", "Low", "sm70-moe"]
    assert route.verdicts[-1] == KernelVerdict("sm70-moe", absence.rejection)


def test_a_kernel_disabled_by_name_is_not_asked_and_the_next_one_takes_over() -> None:
    first, second = FakeKernel("A"), FakeKernel("B")
    route = choose(PROBLEM, V100, [first, second], policy=_policy(("A",)))
    assert route.kernel is second
    assert first.asked == []
    assert str(route.verdicts[0].verdict) == (
        "A is listed in VLLM_DISABLED_KERNELS (remove it from that list)"
    )


def test_the_whole_format_can_be_disabled() -> None:
    kernel = FakeKernel("A")
    route = choose(PROBLEM, V100, [kernel], policy=_policy(enabled=False))
    assert route.kernel is None
    assert kernel.asked == []
    assert str(route.verdicts[0].verdict) == (
        "sm70_nvfp4.enabled is false (set sm70_nvfp4.enabled to true or null)"
    )


def test_a_switch_of_one_kernel_turns_only_that_one_off() -> None:
    kernels = [FakeKernel("A", setting="sm70_nvfp4.qpn2"), FakeKernel("B")]
    route = choose(PROBLEM, V100, kernels, policy=_policy(qpn2=False))
    assert route.require().name == "B"
    assert _codes(route) == [("A", "disabled-by-setting"), ("B", "supported")]
    assert choose(PROBLEM, V100, kernels, policy=_policy(qpn2=True)).require().name == "A"


@pytest.mark.parametrize(
    ("device", "enabled", "expected"),
    [
        (Device.cuda(Sm(7, 0)), None, "supported"),
        (Device.cuda(Sm(7, 2)), None, "supported"),
        (Device.cuda(Sm(7, 5)), None, "supported"),
        (Device.cpu(), None, "supported"),
        (Device.cuda(Sm(8, 0)), None, "not-requested"),
        (Device.cuda(Sm(10, 0)), None, "not-requested"),
        (Device.cuda(Sm(8, 0)), True, "supported"),
        (Device.cuda(Sm(10, 0)), True, "supported"),
        (Device.cpu(), False, "disabled-by-setting"),
        (Device.cuda(Sm(9, 0)), False, "disabled-by-setting"),
    ],
)
def test_who_is_asked_on_which_device(device: Device, enabled: bool | None, expected: str) -> None:
    kernel = FakeKernel("A")
    route = choose(PROBLEM, device, [kernel], policy=_policy(enabled=enabled))
    assert _codes(route) == [("A", expected)]
    assert bool(kernel.asked) is (expected == "supported")


def test_not_requested_names_the_switch() -> None:
    route = choose(PROBLEM, Device.cuda(Sm(9, 0)), [FakeKernel("A")], policy=Policy())
    assert str(route.verdicts[0].verdict) == (
        "on compute capability 9.0 stock vLLM keeps its own kernel "
        "(set sm70_nvfp4.enabled to true to ask for the suite's kernels)"
    )


def test_require_lists_every_reason() -> None:
    absence = Absence("sm70-moe", Rejection("not-installed", "sm70-moe is not installed", "install it"))
    kernels = [FakeKernel("A", answer=REFUSAL), FakeKernel("B")]
    route = choose(PROBLEM, V100, kernels, policy=_policy(("B",)), absences=[absence])
    with pytest.raises(RouteError) as caught:
        route.require()
    assert str(caught.value) == (
        "No nvfp4 kernel of the suite can serve model.layers.0.mlp.down_proj (N=64, K=576, float16) on "
        "Tesla V100-SXM2-16GB (compute capability 7.0):\n"
        "  A: K=576 is not a multiple of 128 (use another kernel)\n"
        "  B: B is listed in VLLM_DISABLED_KERNELS (remove it from that list)\n"
        "  sm70-moe: sm70-moe is not installed (install it)"
    )
    assert route.passed_over == route.verdicts


def test_without_any_kernel_there_is_no_route() -> None:
    route = choose(PROBLEM, V100, [], policy=Policy())
    assert route.kernel is None
    assert route.verdicts == ()


def test_any_mix_of_answers_keeps_one_verdict_for_each_kernel() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(100):
        kernels = [
            FakeKernel(f"K{index}", answer=REFUSAL if rng.random() < 0.5 else SUPPORTED)
            for index in range(rng.randrange(8))
        ]
        disabled = tuple(kernel.name for kernel in kernels if rng.random() < 0.3)
        route = choose(PROBLEM, V100, kernels, policy=_policy(disabled))
        able = [kernel for kernel in kernels if kernel.answer is SUPPORTED and kernel.name not in disabled]
        assert route.kernel is (able[0] if able else None), f"seed {seed}"
        assert [item.kernel for item in route.verdicts] == [kernel.name for kernel in kernels], f"seed {seed}"
