"""Routes, memory and the document for programs, checked against small checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sm70_policy.capability import GIB, Device, Sm, find_card
from sm70_policy.registry import Registry
from sm70_policy.route import Policy
from sm70_policy.settings import Settings
from sm70_tools.errors import ArgumentError
from sm70_tools.explain.as_json import to_json
from sm70_tools.explain.checkpoint import load
from sm70_tools.explain.explanation import Status, explain
from sm70_tools.explain.memory import MemoryEstimate
from tools_checkpoints import (
    compressed_tensors,
    fake_registry,
    linear_tensors,
    llama_config,
    llama_tensors,
    modelopt,
    write_checkpoint,
)

if TYPE_CHECKING:
    from sm70_tools.explain.explanation import Explanation
    from tools_checkpoints import Tensors

GOLDEN = Path(__file__).parent / "golden"
V100 = find_card("v100").device
DOWN = "model.layers.0.mlp.down_proj"


def _explain(
    tmp_path: Path,
    device: Device = V100,
    *,
    registry: Registry | None = None,
    tensors: Tensors | None = None,
    config: dict[str, Any] | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> Explanation:
    folder = write_checkpoint(
        tmp_path / "tiny",
        config or llama_config(quantization_config=compressed_tensors()),
        tensors or llama_tensors(),
    )
    return explain(load(folder), device, registry or fake_registry(), policy or Policy(), **options)


def _statuses(explanation: Explanation) -> dict[str, Status]:
    return {route.layer.name: route.status for route in explanation.routes}


CASES: dict[str, dict[str, Any]] = {
    "compressed_tensors_tp1": {"form": "packed", "quantization": compressed_tensors(), "tp": 1},
    "modelopt_tied_tp4": {
        "form": "modelopt",
        "quantization": modelopt("lm_head"),
        "tp": 4,
        "config": {"tie_word_embeddings": True},
    },
    "dense_tp2": {"form": "dense", "quantization": None, "tp": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_golden_documents(tmp_path: Path, case: str) -> None:
    given = CASES[case]
    config = llama_config(**given.get("config", {}))
    if given["quantization"]:
        config["quantization_config"] = given["quantization"]
    explanation = _explain(tmp_path, config=config, tensors=llama_tensors(given["form"]), tp=given["tp"])
    expected = json.loads((GOLDEN / f"explain_{case}.json").read_text())
    assert json.loads(json.dumps(to_json(explanation))) == expected


def test_a_layer_that_a_kernel_takes(tmp_path: Path) -> None:
    route = next(route for route in _explain(tmp_path).routes if route.layer.name == DOWN)
    assert (route.status, route.kernel) == (Status.SUITE, "FastFakeKernel")
    assert route.nbytes == 256 * (256 + 32 + 4)  # what the kernel says that it keeps
    assert [item.kernel for item in route.verdicts] == ["FastFakeKernel", "sm70-moe"]


def test_a_bias_adds_to_what_the_kernel_keeps(tmp_path: Path) -> None:
    tensors = llama_tensors() | {f"{DOWN}.bias": ("BF16", (256,))}
    route = next(route for route in _explain(tmp_path, tensors=tensors).routes if route.layer.name == DOWN)
    assert route.nbytes == 256 * (256 + 32 + 4) + 256 * 2


def test_a_layer_that_is_too_narrow_after_splitting(tmp_path: Path) -> None:
    explanation = _explain(tmp_path, tp=4)
    statuses = _statuses(explanation)
    assert statuses[DOWN] is Status.SUITE
    assert statuses["model.layers.0.self_attn.o_proj"] is Status.NONE  # K = 256 / 4
    assert [route.layer.name for route in explanation.unserved] == [
        "model.layers.0.self_attn.o_proj",
        "model.layers.1.self_attn.o_proj",
    ]
    assert [(name, reason.code) for name, reason in explanation.unserved[0].rejections] == [
        ("FastFakeKernel", "k-not-multiple"),
        ("sm70-moe", "not-installed"),
    ]
    assert not explanation.good


@pytest.mark.parametrize(
    ("sm", "expected"),
    [
        (Sm(7, 0), Status.NONE),
        (Sm(7, 2), Status.NONE),
        (Sm(7, 5), Status.STOCK),
        (Sm(8, 0), Status.STOCK),
        (Sm(10, 0), Status.STOCK),
    ],
)
def test_without_a_kernel_stock_vllm_takes_nvfp4_from_turing_on(
    tmp_path: Path, sm: Sm, expected: Status
) -> None:
    explanation = _explain(tmp_path, Device.cuda(sm, "card", 16 * GIB), registry=Registry((), ()))
    assert {status for name, status in _statuses(explanation).items() if name != "lm_head"} == {expected}
    assert _statuses(explanation)["lm_head"] is Status.STOCK


def test_newer_cards_are_left_to_stock_vllm_unless_asked(tmp_path: Path) -> None:
    h200 = find_card("h200").device
    assert _statuses(_explain(tmp_path, h200))[DOWN] is Status.STOCK
    asked = Policy(Settings.from_mapping({"sm70_nvfp4": {"enabled": True}}))
    assert _statuses(_explain(tmp_path, h200, policy=asked))[DOWN] is Status.SUITE


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (Policy(disabled=frozenset({"FastFakeKernel"})), "disabled-by-name"),
        (Policy(Settings.from_mapping({"sm70_nvfp4": {"qpn2": False}})), "disabled-by-setting"),
    ],
)
def test_what_the_user_turned_off_is_told(tmp_path: Path, policy: Policy, code: str) -> None:
    explanation = _explain(tmp_path, policy=policy)
    assert explanation.unserved[0].rejections[0][1].code == code


@pytest.mark.parametrize(
    ("card", "expected"), [("v100", Status.NOT_SERVED), ("t4", Status.NOT_SERVED), ("a100", Status.STOCK)]
)
def test_other_formats_are_named(tmp_path: Path, card: str, expected: Status) -> None:
    tensors: Tensors = {
        f"{name.removesuffix('.weight')}.qweight": ("I32", (shape[1], shape[0] // 8))
        for name, (_, shape) in llama_tensors("dense").items()
        if name.endswith("_proj.weight")
    }
    config = llama_config(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128})
    explanation = _explain(tmp_path, find_card(card).device, config=config, tensors=tensors)
    route = next(route for route in explanation.routes if route.layer.name == DOWN)
    assert (route.status, route.kernel, route.nbytes) == (expected, None, 512 * 256 // 2)
    assert route.rejections[0][1].message == "not served by the suite: awq-int4-g128"


def test_experts_have_no_kernel_on_volta(tmp_path: Path) -> None:
    tensors = llama_tensors() | linear_tensors("model.layers.0.mlp.experts.0.up_proj", 64, 256, "packed")
    name = "model.layers.0.mlp.experts"
    volta = _explain(tmp_path, tensors=tensors)
    assert _statuses(volta)[name] is Status.NONE
    assert volta.unserved[0].rejections[0][1].code == "experts"
    assert _statuses(_explain(tmp_path, find_card("t4").device, tensors=tensors))[name] is Status.STOCK


@pytest.mark.parametrize(("tp", "expected"), [(1, Status.SUITE), (2, Status.NONE)])
def test_a_quantized_layer_whose_split_is_not_known(tmp_path: Path, tp: int, expected: Status) -> None:
    name = "model.layers.0.linear_attn.in_proj"
    tensors = llama_tensors() | linear_tensors(name, 64, 256, "packed")
    explanation = _explain(tmp_path, tensors=tensors, tp=tp)
    assert _statuses(explanation)[name] is expected


def test_memory_by_hand(tmp_path: Path) -> None:
    memory = _explain(tmp_path, tp=2, context=1000).memory
    qkv, o = 192 * (128 + 16 + 4), 256 * (64 + 8 + 4)
    gate_up, down = 512 * (128 + 16 + 4), 256 * (128 + 16 + 4)
    assert memory.linears == 2 * (qkv + o + gate_up + down) + 512 * 256 * 2
    assert memory.others == 5 * 256 * 2 + 512 * 256 * 2
    assert memory.card == 16 * GIB
    assert memory.usable == 15_461_882_265  # 0.9 of 17179869184
    assert memory.allowance == 1_610_612_736
    assert memory.left == 15_461_882_265 - 1_610_612_736 - memory.linears - memory.others
    assert (
        memory.kv_per_token == 2 * 2 * 1 * 32 * 2
    )  # keys and values, layers, heads of the rank, width, bytes
    assert memory.cache_tokens == memory.left // 256 // 16 * 16
    assert (memory.context, memory.largest_context, memory.fits) == (1000, 4096, True)


@pytest.mark.parametrize(
    ("left", "context", "limit", "tokens", "largest", "fits"),
    [
        (16_000, 100, 4096, 160, 160, True),
        (16_000, 160, 4096, 160, 160, True),
        (16_000, 161, 4096, 160, 160, False),
        (16_000, 50, 100, 160, 100, True),
        (1_599, None, None, 0, 0, False),
        (1_600, None, None, 16, 16, True),
        (0, 1, 4096, 0, 0, False),
        (-5, 1, 4096, 0, 0, False),
    ],
)
def test_contexts(
    left: int, context: int | None, limit: int | None, tokens: int, largest: int, fits: bool
) -> None:
    memory = MemoryEstimate(
        card=100_000,
        usable=90_000,
        linears=70_000 - left,
        others=10_000,
        allowance=10_000,
        kv_per_token=100,
        context=context,
        model_limit=limit,
    )
    assert memory.left == left
    assert (memory.cache_tokens, memory.largest_context, memory.fits) == (tokens, largest, fits)


def test_a_model_without_attention_has_no_cache() -> None:
    memory = MemoryEstimate(100, 90, 10, 10, 10, 0, None, None)
    assert (memory.cache_tokens, memory.largest_context) == (0, 0)


@pytest.mark.parametrize("context", [0, -1, 4097])
def test_a_context_that_the_model_cannot_have(tmp_path: Path, context: int) -> None:
    with pytest.raises(ArgumentError, match="1 to 4096 tokens, the model's own limit"):
        _explain(tmp_path, context=context)
