"""What configurations say: sizes, and which modules are quantized how."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sm70_tools.errors import CheckpointError
from sm70_tools.explain.model_config import parse_shape
from sm70_tools.explain.quantization import Scheme, parse_scheme
from tools_checkpoints import compressed_tensors, llama_config, modelopt

Q = "model.layers.3.self_attn.q_proj"
DOWN = "model.layers.3.mlp.down_proj"


def _format(config: dict[str, Any] | None, module: str = Q) -> str | None:
    group = parse_scheme(config).group_of(module)
    return None if group is None else group.format


def test_sizes_of_a_llama() -> None:
    shape = parse_shape(llama_config())
    assert (shape.layers, shape.attention_layers, shape.hidden) == (2, 2, 256)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (8, 2, 32)
    assert (shape.tied, shape.max_context, shape.model_type) == (False, 4096, "llama")


def test_sizes_that_may_be_left_out() -> None:
    config = llama_config()
    for key in ("num_key_value_heads", "head_dim", "max_position_embeddings", "tie_word_embeddings"):
        del config[key]
    shape = parse_shape(config)
    assert (shape.kv_heads, shape.head_dim, shape.max_context, shape.tied) == (8, 32, None, None)


def test_the_text_model_of_a_larger_one() -> None:
    outer = {"model_type": "some_vl", "tie_word_embeddings": True, "text_config": llama_config()}
    shape = parse_shape(outer)
    assert (shape.model_type, shape.layers, shape.tied) == ("some_vl", 2, True)


def test_only_attention_keeps_a_cache() -> None:
    kinds = ["linear_attention", "full_attention", "sliding_attention", "linear_attention"]
    shape = parse_shape(llama_config(num_hidden_layers=4, layer_types=kinds))
    assert (shape.layers, shape.attention_layers) == (4, 2)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, 0, -1, "8", 2.5, True])
def test_a_needed_size_must_be_a_positive_whole_number(key: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=key):
        parse_shape(llama_config(**{key: value}))


def test_latent_attention_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"latent attention \(kv_lora_rank 512\)"):
        parse_shape(llama_config(kv_lora_rank=512))


def test_without_quantization_nothing_is_quantized() -> None:
    assert parse_scheme(None) == Scheme("none")
    assert _format(None) is None


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, "nvfp4"),
        ({"group_size": 32, "strategy": "group"}, "mxfp4"),
        ({"num_bits": 8, "strategy": "channel", "group_size": None}, "fp8-channel"),
        ({"type": "int", "strategy": "group", "group_size": 128}, "int4-group-g128"),
        ({"group_size": 8}, "fp4-tensor_group-g8"),
    ],
)
def test_formats_of_compressed_tensors(weights: dict[str, Any], expected: str) -> None:
    assert _format(compressed_tensors(**weights)) == expected


@pytest.mark.parametrize(
    ("ignore", "module", "quantized"),
    [
        ([], Q, True),
        ([Q], Q, False),
        (["q_proj"], Q, True),
        (["model.layers.3"], Q, True),
        (["re:.*q_proj"], Q, False),
        (["re:.*q_proj"], DOWN, True),
        (["re:model\\.layers\\.3\\."], DOWN, False),
        (["re:layers"], DOWN, True),
        (["lm_head"], "lm_head", False),
    ],
)
def test_ignore_of_compressed_tensors(ignore: list[str], module: str, quantized: bool) -> None:
    assert (_format(compressed_tensors() | {"ignore": ignore}, module) == "nvfp4") is quantized


def test_groups_are_told_apart_by_their_targets() -> None:
    config = compressed_tensors()
    config["config_groups"] = {
        "group_0": {
            "targets": ["re:.*q_proj"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
        },
        "group_1": {"targets": [DOWN], "weights": config["config_groups"]["group_0"]["weights"]},
        "group_2": {"targets": ["Linear"], "weights": None},
    }
    assert [_format(config, name) for name in (Q, DOWN, "x.up_proj")] == ["fp8-tensor", "nvfp4", None]


@pytest.mark.parametrize(
    ("exclude", "module", "quantized"),
    [
        ((), Q, True),
        (("lm_head",), Q, True),
        (("*self_attn*",), Q, False),
        (("*self_attn*",), DOWN, True),
        (("model.layers.3*",), DOWN, False),
        (("model.layers.3.*",), DOWN, False),
        (("model.layers.4.*",), DOWN, True),
        (("model.layers.?.mlp.*",), DOWN, False),
        (("mlp.down_proj",), DOWN, False),
    ],
)
def test_exclude_patterns_of_modelopt(exclude: tuple[str, ...], module: str, quantized: bool) -> None:
    flat = modelopt(*exclude)
    nested = {
        "quant_method": "modelopt",
        "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": list(exclude)},
    }
    for config in (flat, nested):
        assert (_format(config, module) == "nvfp4") is quantized


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (modelopt(), "nvfp4"),
        (modelopt(algorithm="W4A16_NVFP4"), "nvfp4"),
        (modelopt() | {"group_size": 32}, "nvfp4-g32"),
        (modelopt(algorithm="FP8"), "fp8-tensor"),
        (modelopt(algorithm="NVFP4_AWQ"), "nvfp4_awq"),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq-int4-g64"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-int8-g128"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({}, "unnamed"),
    ],
)
def test_formats_of_others(config: dict[str, Any], expected: str) -> None:
    assert _format(config) == expected


def test_modelopt_with_a_format_for_each_layer() -> None:
    layers = {Q: {"quant_algo": "FP8"}, DOWN: {"quant_algo": "NVFP4", "group_size": 16}}
    config = modelopt(algorithm="MIXED_PRECISION") | {"quantized_layers": layers}
    assert [_format(config, name) for name in (Q, DOWN, "lm_head")] == ["fp8-tensor", "nvfp4", None]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"config_groups": None}, "config_groups = None. Allowed: an object of groups."),
        ({"config_groups": {"a": 1}}, "config_groups = {'a': 1}. Allowed: an object of groups."),
        ({"ignore": "lm_head"}, "ignore = 'lm_head'. Allowed: a list of strings."),
        ({"ignore": [1]}, "ignore = [1]. Allowed: a list of strings."),
    ],
)
def test_a_malformed_quantization(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_scheme(compressed_tensors() | change)
    assert expected in str(caught.value)


def test_an_expression_that_is_none() -> None:
    scheme = dataclasses.replace(parse_scheme(compressed_tensors()), ignore=("re:(",))
    with pytest.raises(CheckpointError, match="a regular expression"):
        scheme.group_of(Q)
