"""MXFP4 layers of compressed-tensors checkpoints in real vLLM: routes, gate, loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_adapter.hosts_under_test import HOST

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

Outcome = Callable[[int, str], dict[str, Any]]
FACADE = "Sm70MxFp4LinearKernel"
KERNEL = "ReferenceMxFp4LinearKernel"
LAYER = "model.layers.0.attn.qkv_proj"
GATE = "mxfp4-minimum-capability-compressed-tensors"
SELECTOR = "mxfp4-selector"
SEVEN = pytest.mark.parametrize("capability", [70, 75])
NEWER = pytest.mark.parametrize("capability", [80, 90])


@SEVEN
def test_stock_refuses_mxfp4_on_seven_x(outcome: Outcome, capability: int) -> None:
    found = outcome(capability, "stock")["mxfp4 routes"]
    assert "Min capability: 80" in found["default"] or "Failed to find a kernel" in found["default"]
    assert not found["default"].endswith("Kernel")


@SEVEN
@pytest.mark.parametrize("request_", ["default", "activations", "requested", "nvfp4 refused"])
def test_seven_x_gets_the_facade(outcome: Outcome, capability: int, request_: str) -> None:
    assert outcome(capability, "mxfp4")["routes"][request_] == FACADE


@SEVEN
@pytest.mark.parametrize(
    "request_", ["refused", "facade-disabled", *(["backend-marlin"] if HOST.mx_backend else [])]
)
def test_seven_x_never_falls_through_to_stock(outcome: Outcome, capability: int, request_: str) -> None:
    found = outcome(capability, "mxfp4")["routes"][request_]
    assert found.startswith("RouteError: a stock MXFP4 kernel on ")
    assert "compute capability 8.0" in found


@NEWER
def test_newer_cards_keep_their_routes(outcome: Outcome, capability: int) -> None:
    stock = outcome(capability, "stock")["mxfp4 routes"]
    with_suite = outcome(capability, "mxfp4")["routes"]
    for request_ in set(stock) - {"requested"}:
        assert with_suite[request_] == stock[request_], request_
    assert stock["default"] in HOST.marlin


@NEWER
def test_explicit_request_works_everywhere(outcome: Outcome, capability: int) -> None:
    assert outcome(capability, "mxfp4")["routes"]["requested"] == FACADE


@SEVEN
def test_gate_is_lifted_on_seven_x_with_a_kernel_behind_it(outcome: Outcome, capability: int) -> None:
    assert outcome(capability, "mxfp4")["ledger"][GATE] == ["applied", ""]


@SEVEN
def test_gate_stays_without_a_kernel_for_mxfp4(outcome: Outcome, capability: int) -> None:
    status, reason = outcome(capability, "suite")["ledger"][GATE]
    assert status == "not for this device"
    assert "no installed kernel of the suite runs mxfp4 there" in reason
    assert outcome(capability, "suite")["ledger"][SELECTOR][0] == "applied"


@NEWER
def test_gate_is_not_touched_elsewhere(outcome: Outcome, capability: int) -> None:
    status, reason = outcome(capability, "mxfp4")["ledger"][GATE]
    assert (status, "the gate does not stop" in reason) == ("not for this device", True)


@pytest.mark.parametrize("capability", [70, 75, 90])
def test_layers_are_served_exactly(outcome: Outcome, capability: int) -> None:
    found = outcome(capability, "mxfp4")["numerics"]
    # The output is rounded to float16 once: half a unit in the last place of 11 bits.
    assert found["relative error"] <= 2**-11
    assert found["bias"]
    assert found["compiled"]
    assert found["parameters"] == {"weight": [512, 0]}
    assert sum("MXFP4 activations" in line for line in found["log"]) == int(HOST.mx_says_activations)
    assert sum(f"sm70 route: {KERNEL}" in line for line in found["log"]) == 1


def test_reload_keeps_the_addresses(outcome: Outcome) -> None:
    assert outcome(70, "mxfp4")["reload"] == {"same address": True, "new content": True}


@SEVEN
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("bfloat16", "--dtype float16"),
        ("k", "K=192, multiples of 128"),
        ("setting", "sm70_mxfp4.qpn2 is false"),
    ],
)
def test_seven_x_lists_every_reason(outcome: Outcome, capability: int, case: str, words: str) -> None:
    error = outcome(capability, "mxfp4")["unserved"][case]
    assert error.startswith(f"RouteError: No mxfp4 kernel of the suite can serve {LAYER}")
    assert words in error


@NEWER
@pytest.mark.parametrize("case", ["k", "setting"])
def test_newer_cards_delegate_to_stock(outcome: Outcome, capability: int, case: str) -> None:
    assert outcome(capability, "mxfp4")["unserved"][case] in HOST.marlin


@pytest.mark.parametrize("capability", [70, 90])
def test_a_nan_scale_names_the_layer(outcome: Outcome, capability: int) -> None:
    error = outcome(capability, "mxfp4")["unserved"]["nan"]
    assert error.startswith(f"WeightError: {LAYER}: 1 NaN block scales of ")


@pytest.mark.skipif(not HOST.mx_says_activations, reason="this vLLM has no option for activations")
@pytest.mark.parametrize("capability", [70, 90])
def test_activations_that_the_suite_does_not_compute_are_left_to_stock(
    outcome: Outcome, capability: int
) -> None:
    found = outcome(capability, "mxfp4")["other activations"]
    assert FACADE not in found
    assert found.startswith("ValueError: Failed to find a kernel")


@pytest.mark.parametrize("capability", [70, 90])
def test_qpn4_follows_the_setting_and_the_engines_use(outcome: Outcome, capability: int) -> None:
    qpn4, other = "Qpn4NvFp4LinearKernel", "ReferenceNvFp4LinearKernel"
    assert outcome(capability, "mxfp4")["qpn4"] == {
        "False 1": other,
        "False 2": other,
        "True 1": qpn4,
        "True 2": other,
        "speculation": "1 concurrent requests, with speculation",
    }
