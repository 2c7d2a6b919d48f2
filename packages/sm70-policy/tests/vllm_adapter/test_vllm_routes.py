"""Which kernel each kind of NVFP4 checkpoint gets from real vLLM, with and without the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_adapter.hosts_under_test import HOST, NVFP4_CHECKPOINTS

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

Outcome = Callable[[int, str], dict[str, Any]]
FACADE = "Sm70NvFp4LinearKernel"
SELECTOR = "nvfp4-selector"


def all_are(kernel: str, capability: int) -> dict[str, str]:
    return {name: kernel for name in NVFP4_CHECKPOINTS if HOST.knows(name, capability)}


def known(routes: dict[str, str], capability: int) -> dict[str, str]:
    """Without the checkpoints that vLLM itself refuses by name."""
    return {name: kernel for name, kernel in routes.items() if HOST.knows(name, capability)}


def statuses(found: dict[str, Any], names: frozenset[str]) -> set[str]:
    return {found["ledger"][name][0] for name in names}


@pytest.mark.parametrize("capability", [70, 75])
@pytest.mark.parametrize("request_", ["default", "requested", "foreign"])
def test_seven_x_gets_the_facade(outcome: Outcome, capability: int, request_: str) -> None:
    assert outcome(capability, "suite")["routes"][request_] == all_are(FACADE, capability)


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_eight_and_up_keep_their_routes(outcome: Outcome, capability: int) -> None:
    stock = outcome(capability, "stock")["routes"]
    with_suite = outcome(capability, "suite")["routes"]
    for request_ in set(stock) - {"requested", "misspelled"}:
        assert with_suite[request_] == stock[request_], request_
    assert FACADE not in stock["default"].values()


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_explicit_request_works_everywhere(outcome: Outcome, capability: int) -> None:
    found = known(outcome(capability, "suite")["routes"]["requested"], capability)
    assert found == all_are(FACADE, capability)


@pytest.mark.parametrize("request_", ["refused", "backend-marlin", "facade-disabled"])
def test_turing_falls_back_to_stock(outcome: Outcome, request_: str) -> None:
    found = outcome(75, "suite")["routes"][request_]
    stock = outcome(75, "stock")["routes"][request_]
    # Where stock vLLM refuses a format by name that the suite has added, there is nothing to be equal to.
    assert known(found, 80) == known(stock, 80)
    assert FACADE not in found.values()
    assert set(found.values()) <= HOST.marlin


@pytest.mark.parametrize("request_", ["refused", "backend-marlin", "facade-disabled"])
def test_volta_never_falls_through_to_stock(outcome: Outcome, request_: str) -> None:
    for found in outcome(70, "suite")["routes"][request_].values():
        assert found.startswith("RouteError: ")
        assert "compute capability 7.5" in found


@pytest.mark.parametrize("request_", ["batch-invariant", "backend-emulation"])
def test_emulation_stays_available_on_volta_where_it_is_right(outcome: Outcome, request_: str) -> None:
    found = outcome(70, "suite")["routes"][request_]
    assert FACADE not in found.values()
    if HOST.emulates:
        assert found["modelopt/w4a4"] == "EmulationNvFp4LinearKernel"
    else:
        assert all(kernel.startswith("RouteError: ") for kernel in found.values())


@pytest.mark.parametrize("capability", [70, 75, 80, 90, 100])
def test_misspelled_setting_names_the_near_match(outcome: Outcome, capability: int) -> None:
    for found in known(outcome(capability, "suite")["routes"]["misspelled"], capability).values():
        assert found.startswith("SettingsError: ")
        assert "'sm70_nvfp4.enabled'" in found


def test_gate_is_lifted_with_a_kernel_behind_it(outcome: Outcome) -> None:
    assert "Minimum capability: 75" in outcome(70, "stock")["gate"]
    assert outcome(70, "suite")["gate"] == "VllmConfig"
    assert statuses(outcome(70, "suite"), HOST.gates) == {"applied"}


def test_gate_stays_without_a_kernel(outcome: Outcome) -> None:
    found = outcome(70, "bare")
    assert "Minimum capability: 75" in found["gate"]
    assert "Min capability: 75" in found["routes"]["default"]["compressed-tensors/w4a16"]
    assert statuses(found, HOST.gates) == {"not for this device"}
    assert all("sm70-moe is not installed" in found["ledger"][name][1] for name in HOST.gates)


@pytest.mark.parametrize("capability", [75, 80, 90, 100])
def test_gates_are_not_touched_elsewhere(outcome: Outcome, capability: int) -> None:
    found = outcome(capability, "suite")
    assert statuses(found, HOST.gates) == {"not for this device"}
    assert statuses(found, HOST.shards | {SELECTOR}) == {"applied"}


@pytest.mark.parametrize("capability", [70, 75, 80, 90, 100])
def test_second_register_changes_nothing(outcome: Outcome, capability: int) -> None:
    assert outcome(capability, "suite")["second-register-changes-nothing"]


def test_changed_gate_is_refused_alone(outcome: Outcome) -> None:
    found = outcome(70, "drifted-gate")
    status, reason = found["ledger"]["nvfp4-minimum-capability-modelopt"]
    assert status == "refused"
    assert "80" in reason
    assert "75" in reason
    assert found["ledger"]["nvfp4-minimum-capability-compressed-tensors"][0] == "applied"
    assert found["ledger"][SELECTOR][0] == "applied"
    assert "Minimum capability: 80" in found["gate"]


def test_changed_selector_takes_its_dependents_along(outcome: Outcome) -> None:
    found = outcome(70, "drifted-selector")
    assert statuses(found, HOST.behind_selector | {SELECTOR}) == {"refused"}
    assert "shape" in found["ledger"][SELECTOR][1]
    assert all(SELECTOR in found["ledger"][name][1] for name in HOST.behind_selector)
    assert "Minimum capability: 75" in found["gate"]


@pytest.mark.parametrize(
    ("capability", "expected"), [(70, HOST.lifted_on_7_0), (75, HOST.lifted_on_7_5)], ids=["70", "75"]
)
def test_no_other_gate_is_lifted(outcome: Outcome, capability: int, expected: frozenset[str]) -> None:
    stock = outcome(capability, "stock")["minimums"]
    # NVFP4 and MXFP4 kernels are installed.
    found = outcome(capability, "mxfp4")["minimums"]
    assert {"awq", "fp8", "modelopt", "CompressedTensorsW8A16Fp8", "CompressedTensorsWNA16"} <= set(stock)
    lifted = {name for name, minimum in found.items() if minimum != stock[name]}
    assert lifted == expected
    assert {found[name] for name in lifted} == {70}


@pytest.mark.parametrize(("first", "own"), [(80, 70), (90, 70)])
def test_a_worker_chooses_for_its_own_card(outcome: Outcome, first: int, own: int) -> None:
    assert outcome(first, "suite")["on another card"][str(own)] == FACADE


def test_a_worker_leaves_its_own_newer_card_to_stock(outcome: Outcome) -> None:
    assert outcome(75, "suite")["on another card"]["80"] in HOST.marlin
