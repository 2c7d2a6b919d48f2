"""The layers of one rank: fusing, splitting, repeating heads, and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sm70_tools.errors import ArgumentError, CheckpointError
from sm70_tools.explain.inventory import read_inventory
from sm70_tools.explain.layers import LocalLayer, Split, local_layers, other_bytes
from sm70_tools.explain.model_config import parse_shape
from sm70_tools.explain.quantization import parse_scheme
from sm70_tools.explain.safetensors import TensorInfo
from sm70_tools.explain.synthesis import FAMILIES, derive_inventory
from tools_checkpoints import (
    Tensors,
    compressed_tensors,
    linear_tensors,
    llama_config,
    llama_tensors,
    modelopt,
)

if TYPE_CHECKING:
    from sm70_tools.explain.inventory import Inventory

LAYER = "model.layers.0"
_BYTES = {"U8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}


def _inventory(tensors: Tensors, quantization: dict[str, Any] | None) -> Inventory:
    infos = {}
    for name, (dtype, shape) in tensors.items():
        nbytes = _BYTES[dtype]
        for size in shape:
            nbytes *= size
        infos[name] = TensorInfo(dtype, shape, nbytes, "model.safetensors")
    return read_inventory(infos, parse_scheme(quantization))


def _layers(
    tp: int = 1,
    *,
    tensors: Tensors | None = None,
    quantization: dict[str, Any] | None = None,
    **config: Any,
) -> dict[str, LocalLayer]:
    inventory = _inventory(
        llama_tensors() if tensors is None else tensors, quantization or compressed_tensors()
    )
    layers = local_layers(inventory, parse_shape(llama_config(**config)), tp)
    assert len({layer.name for layer in layers}) == len(layers)
    return {layer.name: layer for layer in layers}


@pytest.mark.parametrize(
    ("tp", "qkv", "o", "gate_up", "down", "lm_head"),
    [
        (1, (384, 256, (256, 64, 64)), (256, 256), (1024, 256, (512, 512)), (256, 512), (1024, 256)),
        (2, (192, 256, (128, 32, 32)), (256, 128), (512, 256, (256, 256)), (256, 256), (512, 256)),
        # Two key-value heads over four ranks: each rank repeats one.
        (4, (128, 256, (64, 32, 32)), (256, 64), (256, 256, (128, 128)), (256, 128), (256, 256)),
        (8, (96, 256, (32, 32, 32)), (256, 32), (128, 256, (64, 64)), (256, 64), (128, 256)),
    ],
)
def test_sizes_of_one_rank(
    tp: int,
    qkv: tuple[int, int, tuple[int, ...]],
    o: tuple[int, int],
    gate_up: tuple[int, int, tuple[int, ...]],
    down: tuple[int, int],
    lm_head: tuple[int, int],
) -> None:
    layers = _layers(tp)
    assert len(layers) == 9
    for index in range(2):
        prefix = f"model.layers.{index}"
        fused = layers[f"{prefix}.self_attn.qkv_proj"]
        assert (fused.n, fused.k, fused.shards) == qkv
        fused = layers[f"{prefix}.mlp.gate_up_proj"]
        assert (fused.n, fused.k, fused.shards) == gate_up
        row = layers[f"{prefix}.self_attn.o_proj"]
        assert (row.n, row.k, row.shards, row.split) == (*o, (), Split.ROW)
        row = layers[f"{prefix}.mlp.down_proj"]
        assert (row.n, row.k, row.split) == (*down, Split.ROW)
    output = layers["lm_head"]
    assert (output.n, output.k, output.format, output.split) == (*lm_head, None, Split.VOCABULARY)
    assert {layer.format for name, layer in layers.items() if name != "lm_head"} == {"nvfp4"}


def test_bytes_of_one_rank() -> None:
    layers = _layers(2)
    assert layers[f"{LAYER}.self_attn.qkv_proj"].nbytes == 192 * (128 + 16)
    assert layers[f"{LAYER}.mlp.down_proj"].nbytes == 256 * (128 + 16)
    assert layers["lm_head"].nbytes == 512 * 256 * 2


@pytest.mark.parametrize(("tp", "embedding_rows"), [(1, 1024), (2, 512), (4, 256)])
def test_other_tensors_count_in_fp16_and_the_embedding_is_split(tp: int, embedding_rows: int) -> None:
    norms = 5 * 256 * 2
    inventory = _inventory(llama_tensors(), compressed_tensors())
    assert other_bytes(inventory, tp) == norms + embedding_rows * 256 * 2


def test_float32_parameters_become_fp16_and_integers_stay() -> None:
    tensors: Tensors = {"model.norm.weight": ("F32", (256,)), "model.ids": ("I64", (10,))}
    assert other_bytes(_inventory(tensors, None), 1) == 256 * 2 + 80


@pytest.mark.parametrize(
    ("tied", "stored", "listed"),
    [
        (True, False, False),
        (True, True, False),
        (False, True, True),
        (None, True, True),
        (None, False, False),
    ],
)
def test_a_tied_output_layer_is_counted_once(tied: bool | None, stored: bool, listed: bool) -> None:
    layers = _layers(tensors=llama_tensors(lm_head=stored), tie_word_embeddings=tied)
    assert ("lm_head" in layers) is listed


def test_biases_are_counted_for_the_rows_of_the_rank() -> None:
    tensors = llama_tensors()
    for name, size in (("q_proj", 256), ("k_proj", 64), ("v_proj", 64), ("o_proj", 256)):
        tensors[f"{LAYER}.self_attn.{name}.bias"] = ("BF16", (size,))
    layers = _layers(2, tensors=tensors)
    assert layers[f"{LAYER}.self_attn.qkv_proj"].bias_bytes == 192 * 2
    assert layers[f"{LAYER}.self_attn.o_proj"].bias_bytes == 256 * 2
    assert layers[f"{LAYER}.mlp.down_proj"].bias_bytes == 0


def test_modelopt_tensors_give_the_same_layers() -> None:
    theirs = _layers(2, tensors=llama_tensors("modelopt"), quantization=modelopt("lm_head"))
    assert theirs == _layers(2)


def test_modelopt_leaves_excluded_modules_in_fp16() -> None:
    tensors = llama_tensors("modelopt")
    for leaf, n in (("q_proj", 256), ("k_proj", 64), ("v_proj", 64)):
        name = f"model.layers.1.self_attn.{leaf}"
        for part in ("weight", "weight_scale", "weight_scale_2"):
            del tensors[f"{name}.{part}"]
        tensors |= linear_tensors(name, n, 256, "dense")
    layers = _layers(tensors=tensors, quantization=modelopt("lm_head", "model.layers.1.self_attn.[qkv]_proj"))
    assert layers["model.layers.0.self_attn.qkv_proj"].format == "nvfp4"
    assert layers["model.layers.1.self_attn.qkv_proj"].format is None
    assert layers["model.layers.1.self_attn.qkv_proj"].nbytes == 384 * 256 * 2


@pytest.mark.parametrize(
    ("tp", "heads", "kv", "good"), [(3, 8, 2, "1, 2, 4, 8"), (2, 9, 3, "1, 3, 9"), (3, 6, 2, "1, 2, 6")]
)
def test_ranks_that_do_not_divide_the_heads(tp: int, heads: int, kv: int, good: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        _layers(tp, num_attention_heads=heads, num_key_value_heads=kv)
    assert str(caught.value) == (
        f"--tp {tp} for {heads} heads and {kv} key-value heads. Allowed: --tp {good}. Pass one of these."
    )


@pytest.mark.parametrize("tp", [0, -1])
def test_ranks_below_one(tp: int) -> None:
    with pytest.raises(ArgumentError, match=f"--tp {tp}. Allowed: 1 and above"):
        _layers(tp)


@pytest.mark.parametrize(
    ("leaf", "n", "k", "what"),
    [("down_proj", 256, 500, "K 500"), ("up_proj", 500, 256, "N 500"), ("gate_proj", 500, 256, "N 500")],
)
def test_ranks_that_do_not_divide_a_layer(leaf: str, n: int, k: int, what: str) -> None:
    tensors = llama_tensors("dense") | linear_tensors(f"{LAYER}.mlp.{leaf}", n, k, "dense")
    with pytest.raises(ArgumentError) as caught:
        _layers(8, tensors=tensors, quantization={"quant_method": "compressed-tensors", "config_groups": {}})
    assert f"--tp 8 for {LAYER}.mlp.{leaf} with {what}" in str(caught.value)


@pytest.mark.parametrize("leaf", ["q_proj", "k_proj", "v_proj"])
def test_a_part_of_a_fused_layer_is_missing(leaf: str) -> None:
    tensors = {name: info for name, info in llama_tensors().items() if f"0.self_attn.{leaf}." not in name}
    with pytest.raises(CheckpointError, match=f"{LAYER}.self_attn: no weight of {leaf}"):
        _layers(tensors=tensors)


def test_a_gate_without_its_other_half() -> None:
    tensors = {name: info for name, info in llama_tensors().items() if "0.mlp.up_proj." not in name}
    with pytest.raises(CheckpointError, match=f"{LAYER}.mlp: no weight of up_proj"):
        _layers(tensors=tensors)


def test_a_feed_forward_without_gate() -> None:
    tensors = {name: info for name, info in llama_tensors().items() if "gate_proj" not in name}
    layer = _layers(2, tensors=tensors)[f"{LAYER}.mlp.up_proj"]
    assert (layer.n, layer.k, layer.shards, layer.split) == (256, 256, (), Split.COLUMN)


def test_parts_of_one_layer_with_different_formats() -> None:
    tensors = {name: info for name, info in llama_tensors().items() if "0.self_attn.k_proj." not in name}
    tensors |= linear_tensors(f"{LAYER}.self_attn.k_proj", 64, 256, "dense")
    config = compressed_tensors() | {"ignore": ["lm_head", f"{LAYER}.self_attn.k_proj"]}
    with pytest.raises(CheckpointError) as caught:
        _layers(tensors=tensors, quantization=config)
    assert str(caught.value).startswith(
        f"{LAYER}.self_attn: q_proj nvfp4 K=256, k_proj float16 K=256, v_proj nvfp4 K=256. Allowed: one "
        "format"
    )


@pytest.mark.parametrize(
    ("leaf", "n", "expected"), [("k_proj", 96, "2 key-value heads of 32"), ("q_proj", 250, "8 heads of 32")]
)
def test_files_that_contradict_the_head_count(leaf: str, n: int, expected: str) -> None:
    tensors = llama_tensors() | linear_tensors(f"{LAYER}.self_attn.{leaf}", n, 256, "packed")
    with pytest.raises(CheckpointError) as caught:
        _layers(tensors=tensors)
    assert f"{LAYER}.self_attn.{leaf} with N={n}. Allowed: what config.json says: {expected}." in str(
        caught.value
    )


def test_queries_with_a_gate_are_twice_as_wide() -> None:
    tensors = llama_tensors() | linear_tensors(f"{LAYER}.self_attn.q_proj", 512, 256, "packed")
    assert _layers(2, tensors=tensors)[f"{LAYER}.self_attn.qkv_proj"].shards == (256, 32, 32)


def test_dense_files_with_a_quantized_configuration() -> None:
    with pytest.raises(CheckpointError) as caught:
        _layers(tensors=llama_tensors("dense"))
    assert str(caught.value).startswith(
        f"{LAYER}.self_attn.q_proj: nvfp4 in the configuration, BF16 in model.safetensors. Allowed: files "
        "that agree"
    )


def test_quantized_files_without_a_quantized_configuration() -> None:
    with pytest.raises(
        CheckpointError, match=r"U8 in model\.safetensors, but not quantized in the configuration"
    ):
        _inventory(llama_tensors(), None)


@pytest.mark.parametrize("scales", [None, (256, 8), (256,)])
def test_block_scales_of_another_shape(scales: tuple[int, ...] | None) -> None:
    tensors = llama_tensors()
    name = f"{LAYER}.self_attn.q_proj.weight_scale"
    del tensors[name]
    if scales is not None:
        tensors[name] = ("F8_E4M3", scales)
    with pytest.raises(CheckpointError, match=r"for N=256 and K=256, where nvfp4 has \[256, 16\]"):
        _layers(tensors=tensors)


@pytest.mark.parametrize(
    ("quantization", "weight", "expected"),
    [
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            ("qweight", "I32", (256, 64)),
            "awq-int4-g128",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            ("qweight", "I32", (32, 512)),
            "gptq-int4-g128",
        ),
        (
            compressed_tensors(type="int", strategy="group", group_size=128),
            ("weight_packed", "I32", (512, 32)),
            "int4-group-g128",
        ),
        ({"quant_method": "fp8"}, ("weight", "F8_E4M3", (512, 256)), "fp8"),
    ],
)
def test_sizes_of_other_formats(
    quantization: dict[str, Any], weight: tuple[str, str, tuple[int, ...]], expected: str
) -> None:
    part, dtype, shape = weight
    inventory = _inventory({f"{LAYER}.mlp.up_proj.{part}": (dtype, shape)}, quantization)
    module = inventory.find(f"{LAYER}.mlp.up_proj")
    assert module is not None
    assert (module.n, module.k, module.format) == (512, 256, expected)
    assert module.nbytes == shape[0] * shape[1] * _BYTES[dtype]


@pytest.mark.parametrize("groups", [8, 16])
def test_scales_of_mxfp4_are_counted(groups: int) -> None:
    name = f"{LAYER}.mlp.up_proj"
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        f"{name}.weight_packed": ("U8", (512, 128)),
        f"{name}.weight_scale": ("U8", (512, groups)),
    }
    quantization = compressed_tensors(strategy="group", group_size=32)
    if groups == 16:
        with pytest.raises(CheckpointError, match=r"where mxfp4 has \[512, 8\]"):
            _inventory(tensors, quantization)
        return
    module = _inventory(tensors, quantization).find(name)
    assert module is not None
    assert (module.n, module.k, module.format) == (512, 256, "mxfp4")
    assert module.nbytes == 512 * (128 + 8)


def test_a_layout_that_is_not_known() -> None:
    with pytest.raises(CheckpointError) as caught:
        _inventory({f"{LAYER}.mlp.up_proj.weight": ("U8", (65536, 1))}, {"quant_method": "bitsandbytes"})
    assert str(caught.value).startswith(
        f"{LAYER}.mlp.up_proj, not served by the suite: bitsandbytes as U8 [65536, 1]. Allowed: nvfp4, "
        "mxfp4; also read"
    )


def test_banks_of_experts_are_one_layer_each() -> None:
    tensors = llama_tensors()
    for expert in range(4):
        for leaf, n, k in (("gate_proj", 64, 256), ("up_proj", 64, 256), ("down_proj", 256, 64)):
            tensors |= linear_tensors(f"{LAYER}.mlp.experts.{expert}.{leaf}", n, k, "packed")
    tensors[f"{LAYER}.mlp.gate.weight"] = ("BF16", (4, 256))
    layers = _layers(2, tensors=tensors)
    bank = layers[f"{LAYER}.mlp.experts"]
    assert (bank.split, bank.format) == (Split.EXPERTS, "nvfp4")
    assert bank.nbytes == 4 * 3 * (64 * (128 + 16) + 4) // 2
    router = layers[f"{LAYER}.mlp.gate"]
    assert (router.split, router.n, router.k, router.format) == (Split.WHOLE, 4, 256, None)


def test_a_bank_in_floating_point_counts_in_fp16() -> None:
    tensors = llama_tensors() | linear_tensors(f"{LAYER}.mlp.experts.0.up_proj", 64, 256, "dense")
    bank = _layers(2, tensors=tensors)[f"{LAYER}.mlp.experts"]
    assert (bank.format, bank.nbytes) == (None, 64 * 256 * 2 // 2)


def test_a_vision_tower_is_not_mistaken_for_the_decoder() -> None:
    tensors = llama_tensors() | linear_tensors("vision_tower.layers.0.self_attn.q_proj", 48, 48, "dense")
    layer = _layers(4, tensors=tensors)["vision_tower.layers.0.self_attn.q_proj"]
    assert (layer.split, layer.n, layer.nbytes) == (Split.WHOLE, 48, 48 * 48 * 2)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_configuration_alone_gives_the_layers_of_the_files(tp: int) -> None:
    shape = parse_shape(llama_config())
    derived = derive_inventory(shape, parse_scheme(compressed_tensors()))
    read = _inventory(llama_tensors(), compressed_tensors())
    assert set(local_layers(derived, shape, tp)) == set(local_layers(read, shape, tp))
    assert other_bytes(derived, tp) == other_bytes(read, tp)


@pytest.mark.parametrize(
    ("family", "config", "qkv_bias", "o_bias", "mlp_bias", "norms"),
    [
        ("llama", {}, 0, 0, 0, 5 * 256),
        ("llama", {"attention_bias": True, "mlp_bias": True}, 768, 512, 2048, 5 * 256),
        ("mistral", {}, 0, 0, 0, 5 * 256),
        ("qwen2", {}, 768, 0, 0, 5 * 256),
        ("qwen3", {}, 0, 0, 0, 5 * 256 + 4 * 32),
        ("smollm", {"tie_word_embeddings": True}, 0, 0, 0, 5 * 256),
    ],
)
def test_families(
    family: str, config: dict[str, Any], qkv_bias: int, o_bias: int, mlp_bias: int, norms: int
) -> None:
    shape = parse_shape(llama_config(model_type=family, **config))
    inventory = derive_inventory(shape, parse_scheme(None))
    layers = {layer.name: layer for layer in local_layers(inventory, shape, 1)}
    assert layers[f"{LAYER}.self_attn.qkv_proj"].bias_bytes == qkv_bias
    assert layers[f"{LAYER}.self_attn.o_proj"].bias_bytes == o_bias
    assert layers[f"{LAYER}.mlp.gate_up_proj"].bias_bytes == mlp_bias
    assert ("lm_head" in layers) is not config.get("tie_word_embeddings", False)
    assert other_bytes(inventory, 1) == (norms + 1024 * 256) * 2


@pytest.mark.parametrize("family", ["gemma3", "deepseek_v3", ""])
def test_another_family_needs_its_files(family: str) -> None:
    shape = parse_shape(llama_config(model_type=family))
    with pytest.raises(CheckpointError) as caught:
        derive_inventory(shape, parse_scheme(None))
    assert str(caught.value) == (
        f"the layers of a {family or 'nameless'} model from its config.json alone. "
        f"Allowed: the families {', '.join(sorted(FAMILIES))}. "
        "Pass the checkpoint's folder: the layers are then read from its tensors."
    )
