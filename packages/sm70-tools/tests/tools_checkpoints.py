"""Writes small checkpoints, and brings kernels whose answers are known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_policy.__about__ import CONTRACT_VERSION
from sm70_policy.provider import Provider
from sm70_policy.registry import Absence, Registry
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from sm70_policy.capability import Device
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings

Tensors = dict[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by name."""

_BYTES = {"U8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}


@dataclass
class MultipleOf128:
    """Takes layers whose K is a multiple of 128; keeps codes, scales and one float per row."""

    name: str = "FastFakeKernel"
    priority: int = 250
    setting: str | None = "sm70_nvfp4.qpn2"

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        if problem.k % 128:
            return Rejection(
                "k-not-multiple",
                f"K={problem.k} is not a multiple of 128",
                "nothing: the layer is too narrow",
            )
        return SUPPORTED

    def resident_bytes(self, problem: LinearProblem) -> int:
        return problem.n * (problem.k // 2 + problem.k // 16 + 4)

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        raise NotImplementedError


def fake_registry() -> Registry:
    """One kernel, and one absent package."""
    provider = Provider("cuda", "sm70-kernels-cuda", "9.9", CONTRACT_VERSION, (MultipleOf128(),))
    absence = Absence(
        "sm70-moe", Rejection("not-installed", "sm70-moe is not installed", "pip install sm70-moe")
    )
    return Registry((provider,), (absence,))


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    """The header of a file with these tensors, and the size of its data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    return header, offset


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Write a valid file; its data is a hole of zeros."""
    header, size = header_of(tensors)
    raw = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(raw).to_bytes(8, "little") + raw)
        stream.truncate(8 + len(raw) + size)


def llama_config(**changes: Any) -> dict[str, Any]:
    """A Llama of two layers: 8 heads and 2 key-value heads of 32, hidden 256, intermediate 512."""
    return {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        **changes,
    }


def compressed_tensors(**weights: Any) -> dict[str, Any]:
    """A compressed-tensors configuration: NVFP4 for every linear layer but the output layer."""
    content = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, **weights}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": content}},
        "ignore": ["lm_head"],
    }


def modelopt(*ignore: str, algorithm: str = "NVFP4") -> dict[str, Any]:
    """A ModelOpt configuration."""
    return {"quant_method": "modelopt", "quant_algo": algorithm, "group_size": 16, "ignore": list(ignore)}


def linear_tensors(name: str, n: int, k: int, form: str) -> Tensors:
    """A linear module's tensors: `dense`, `packed` (compressed-tensors NVFP4) or `modelopt` (NVFP4)."""
    if form == "dense":
        return {f"{name}.weight": ("BF16", (n, k))}
    weight = "weight_packed" if form == "packed" else "weight"
    factor = "weight_global_scale" if form == "packed" else "weight_scale_2"
    return {
        f"{name}.{weight}": ("U8", (n, k // 2)),
        f"{name}.weight_scale": ("F8_E4M3", (n, k // 16)),
        f"{name}.{factor}": ("F32", (1,)),
    }


def llama_tensors(form: str = "packed", *, layers: int = 2, lm_head: bool = True) -> Tensors:
    """The tensors of `llama_config()`."""
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (1000, 256))}
    for index in range(layers):
        prefix = f"model.layers.{index}"
        for name, n, k in [
            ("self_attn.q_proj", 256, 256),
            ("self_attn.k_proj", 64, 256),
            ("self_attn.v_proj", 64, 256),
            ("self_attn.o_proj", 256, 256),
            ("mlp.gate_proj", 512, 256),
            ("mlp.up_proj", 512, 256),
            ("mlp.down_proj", 256, 512),
        ]:
            tensors |= linear_tensors(f"{prefix}.{name}", n, k, form)
        tensors[f"{prefix}.input_layernorm.weight"] = ("BF16", (256,))
        tensors[f"{prefix}.post_attention_layernorm.weight"] = ("BF16", (256,))
    tensors["model.norm.weight"] = ("BF16", (256,))
    if lm_head:
        tensors["lm_head.weight"] = ("BF16", (1000, 256))
    return tensors


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    """Write a checkpoint of one file into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_sharded(folder: Path, config: dict[str, Any], shards: dict[str, Tensors]) -> Path:
    """Write a checkpoint of several files with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for file, tensors in shards.items():
        write_safetensors(folder / file, tensors)
    index = {"weight_map": {name: file for file, tensors in shards.items() for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
