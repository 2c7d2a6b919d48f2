"""What of vLLM 0.19 the adapter steers clear of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_adapter.hosts_under_test import HOST

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(HOST.emulates, reason="this vLLM emulates NVFP4 correctly"),
]

Outcome = Callable[[int, str], dict[str, Any]]


@pytest.mark.parametrize("capability", [75, 80])
def test_its_emulation_is_wrong(outcome: Outcome, capability: int) -> None:
    # On 7.0 the suite refuses it, although it would run. A fixed one would be exact but for FP16's rounding.
    assert outcome(capability, "stock")["emulation"] > 0.05


def test_the_refusal_of_its_emulation_says_why(outcome: Outcome) -> None:
    for found in outcome(70, "suite")["routes"]["backend-emulation"].values():
        assert "VLLM_USE_NVFP4_CT_EMULATIONS is set, whose results are wrong in this release" in found


@pytest.mark.parametrize("capability", [70, 75])
def test_weight_only_modelopt_checkpoints_are_known_where_the_suite_serves_them(
    outcome: Outcome, capability: int
) -> None:
    name = "modelopt/w4a16"
    assert "currently only supports" in outcome(capability, "stock")["routes"]["default"][name]
    assert outcome(capability, "suite")["routes"]["default"][name] == "Sm70NvFp4LinearKernel"


def test_they_stay_unknown_where_stock_would_serve_them(outcome: Outcome) -> None:
    status, reason = outcome(80, "suite")["ledger"]["modelopt-w4a16-nvfp4"]
    assert status == "not for this device"
    assert "may read the missing scale" in reason


def test_the_two_ways_of_compressed_tensors_are_entries_of_their_own(outcome: Outcome) -> None:
    found = outcome(70, "drifted-selector")["ledger"]
    assert found["nvfp4-selector"][0] == "refused"
    assert found["nvfp4-w4a16-selector"][0] == "applied"
    assert found["nvfp4-minimum-capability-compressed-tensors-w4a16"][0] == "applied"
