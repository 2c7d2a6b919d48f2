"""Loading weights into real vLLM layers through the suite, and what happens when that cannot work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from vllm_adapter.hosts_under_test import HOST, NVFP4_CHECKPOINTS

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

Outcome = Callable[[int, str], dict[str, Any]]
CARDS = pytest.mark.parametrize("capability", [70, 75, 90])
CHECKPOINTS = pytest.mark.parametrize("checkpoint", NVFP4_CHECKPOINTS)
CARDS_AND_CHECKPOINTS = pytest.mark.parametrize(
    ("capability", "checkpoint"),
    [
        (capability, name)
        for capability in (70, 75, 90)
        for name in NVFP4_CHECKPOINTS
        if HOST.knows(name, capability)
    ],
)
KERNEL = "ReferenceNvFp4LinearKernel"
LAYER = "model.layers.0.attn.qkv_proj"


@CARDS_AND_CHECKPOINTS
def test_shards_with_their_own_scales_are_exact(outcome: Outcome, capability: int, checkpoint: str) -> None:
    found = outcome(capability, "suite")["loading"][checkpoint]
    # The output is rounded to float16 once: half a unit in the last place of 11 bits.
    assert found["relative error"] <= 2**-11
    assert found["bias"]


@CARDS_AND_CHECKPOINTS
def test_call_traces_without_a_break(outcome: Outcome, capability: int, checkpoint: str) -> None:
    assert outcome(capability, "suite")["loading"][checkpoint]["compiled"]


@CARDS_AND_CHECKPOINTS
def test_checkpoint_tensors_are_released(outcome: Outcome, capability: int, checkpoint: str) -> None:
    found = outcome(capability, "suite")["loading"][checkpoint]
    assert found["parameters"] == {"weight": [512, 0]}
    assert found["children"] == ["sm70_linear"]


@CHECKPOINTS
def test_dropped_activation_quantization_is_said_once(outcome: Outcome, checkpoint: str) -> None:
    lines = outcome(70, "suite")["loading"][checkpoint]["log"]
    said = [line for line in lines if "W4A4" in line]
    assert len(said) == (1 if checkpoint in HOST.says_w4a4 else 0)
    assert sum("sm70 route: " + KERNEL in line for line in lines) == 1


def test_merged_and_row_parallel_layers(outcome: Outcome) -> None:
    found = outcome(70, "suite")["loading"]["other layers"]
    assert found == {"gate_up": [1024, 256], "down": [256, 512]}


def test_reload_keeps_the_addresses(outcome: Outcome) -> None:
    assert outcome(70, "suite")["loading"]["reload"] == {"same address": True, "new content": True}


BAD = {
    "scale dtype": "dtype torch.float32",
    "scale shape": "[512, 15]",
    "nan scale": "1 NaN",
    "negative scale": "1 negative",
    "codes dtype": "torch.int8",
    "codes shape": "[511, 128]",
    "zero global scale": "global scale 0.0",
    "negative global scale": "global scale -1.0",
    "infinite global scale": "global scale inf",
    "two global scales": "2 global scales",
    "missing scale": "without weight_scale",
    "k of another layer": "[512, 192]",
}


@CARDS
@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_layer_and_changes_nothing(outcome: Outcome, capability: int, case: str) -> None:
    found = outcome(capability, "suite")["loading"]["bad inputs"][case]
    assert found["error"].startswith(f"WeightError: {LAYER}: ")
    assert BAD[case] in found["error"]
    assert found["untouched"]


def test_failing_kernel_names_itself_and_the_layer(outcome: Outcome) -> None:
    found = outcome(70, "suite")["loading"]["broken kernel"]
    assert found["error"].startswith(f"RouteError: {LAYER}: {KERNEL} failed")
    assert "MemoryError: no memory" in found["error"]
    assert found["untouched"]


UNSERVED = {
    "bfloat16": "bfloat16 activations",
    "k": "K=192",
    "setting": "sm70_nvfp4.qpn2 is false",
    "class": "VLLM_DISABLED_KERNELS",
}


@pytest.mark.parametrize("case", UNSERVED)
def test_volta_lists_every_reason(outcome: Outcome, case: str) -> None:
    error = outcome(70, "suite")["loading"]["unserved"][case]
    assert error.startswith("RouteError: No nvfp4 kernel of the suite can serve " + LAYER)
    assert UNSERVED[case] in error
    assert "sm70-moe is not installed" in error
    assert ("--dtype float16" in error) == (case == "bfloat16")


@pytest.mark.parametrize("capability", [75, 90])
@pytest.mark.parametrize("case", UNSERVED)
def test_other_cards_delegate_to_stock(outcome: Outcome, capability: int, case: str) -> None:
    assert outcome(capability, "suite")["loading"]["unserved"][case] in HOST.marlin


def test_turing_without_kernels_delegates_to_stock(outcome: Outcome) -> None:
    assert set(outcome(75, "bare")["loading"]["unserved"].values()) <= HOST.marlin


def test_two_engines_keep_to_themselves(outcome: Outcome) -> None:
    found = outcome(75, "suite")["loading"]["two engines"]
    assert [found["yes 1"], found["yes 2"]] == ["Sm70NvFp4LinearKernel"] * 2
    assert found["no 1"] == found["no 2"]
    assert found["no 1"] in HOST.marlin


def test_routes_files_belong_to_their_engines(outcome: Outcome) -> None:
    found = outcome(70, "suite")["loading"]["reports"]
    first, second, _ = (json.loads(text)["layers"] for text in found["texts"])
    assert (len(first), len(second)) == (2, 1)
    assert second[0] == {
        "prefix": LAYER,
        "format": "nvfp4",
        "n": 512,
        "k": 256,
        "kernel": KERNEL,
        "served_by": KERNEL,
        "verdicts": [
            {"kernel": KERNEL, "supported": True, "code": None, "message": None},
            {
                "kernel": "sm70-moe",
                "supported": False,
                "code": "not-installed",
                "message": "sm70-moe is not installed (pip install sm70-moe)",
            },
        ],
    }
    assert not found["early"], "the file is written when the last layer is loaded"
    assert not found["leftovers"]
    assert found["copies share"]


def test_compiled_graphs_of_other_kernels_are_not_reused(outcome: Outcome) -> None:
    found = outcome(70, "suite")["loading"]["hashes"]
    assert found["first"] == found["again"]
    assert len({found["empty"], found["first"], found["newer"], found["variable"]}) == 4
    assert found["user's mapping"] == {"sm70_nvfp4": {"enabled": True}}


@pytest.mark.parametrize(
    ("capability", "served_by"), [(70, frozenset({None})), (75, HOST.marlin)], ids=["70", "75"]
)
def test_routes_file_holds_what_the_suite_could_not_serve(
    outcome: Outcome, capability: int, served_by: frozenset[str | None]
) -> None:
    (row,) = json.loads(outcome(capability, "suite")["loading"]["reports"]["texts"][2])["layers"]
    assert row["kernel"] is None
    assert row["served_by"] in served_by
    assert [verdict["code"] for verdict in row["verdicts"]] == ["activation-dtype", "not-installed"]


def test_unwritable_routes_file_is_a_warning(outcome: Outcome) -> None:
    lines = outcome(70, "suite")["loading"]["reports"]["unwritable"]
    warnings = [line for line in lines if "WARNING" in line]
    assert len(warnings) == 1
    assert "routes_file" in warnings[0]
    assert "missing/routes.json" in warnings[0]


def test_resolved_policy_is_stated_and_claims_no_more(outcome: Outcome) -> None:
    lines = outcome(70, "suite")["loading"]["reports"]["unwritable"]
    stated = [line for line in lines if "runtime_guarded" in line]
    assert len(stated) == 1
    assert "not a claim that a kernel has run" in stated[0]
    assert "enabled=True" in stated[0]
