"""The tables and sentences of an explanation."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

from rich.console import Console

from sm70_policy.capability import GIB, Device, Sm, find_card
from sm70_policy.route import Policy
from sm70_tools.explain.as_text import group_routes, render
from sm70_tools.explain.checkpoint import load
from sm70_tools.explain.explanation import Explanation, explain
from tools_checkpoints import compressed_tensors, fake_registry, llama_config, llama_tensors, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from sm70_policy.registry import Registry


def _explain(tmp_path: Path, device: Device, *, tp: int = 1, registry: Registry | None = None) -> Explanation:
    config = llama_config(quantization_config=compressed_tensors())
    folder = write_checkpoint(tmp_path / "tiny", config, llama_tensors())
    return explain(load(folder), device, registry or fake_registry(), Policy(), tp=tp)


def _text(explanation: Explanation, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    render(explanation, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _flat(explanation: Explanation) -> str:
    return " ".join(_text(explanation, 1000).split())


SNAPSHOT = """\
tiny: llama, quantization compressed-tensors, on Tesla V100-SXM2-16GB (compute capability 7.0), tensor
parallel 4
Linear layers of one rank
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━┓
┃ Layer                             ┃ Count ┃     N x K ┃ Format  ┃ Runs on        ┃ MiB ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━┩
│ model.layers.*.self_attn.qkv_proj │    x2 │ 128 x 256 │ nvfp4   │ FastFakeKernel │ 0.0 │
│ model.layers.*.self_attn.o_proj   │    x2 │  256 x 64 │ nvfp4   │ NOTHING on 7.0 │ 0.0 │
│ model.layers.*.mlp.gate_up_proj   │    x2 │ 256 x 256 │ nvfp4   │ FastFakeKernel │ 0.1 │
│ model.layers.*.mlp.down_proj      │    x2 │ 256 x 128 │ nvfp4   │ FastFakeKernel │ 0.0 │
│ lm_head                           │    x1 │ 256 x 256 │ float16 │ stock vLLM     │ 0.1 │
└───────────────────────────────────┴───────┴───────────┴─────────┴────────────────┴─────┘
No kernel for model.layers.*.self_attn.o_proj:
  FastFakeKernel: K=64 is not a multiple of 128 (nothing: the layer is too narrow)
  sm70-moe is not installed (pip install sm70-moe)
Passed over:
  model.layers.*.self_attn.qkv_proj: sm70-moe is not installed (pip install sm70-moe)
Memory of one rank
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┓
┃ Part                                                   ┃   GiB ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━┩
│ usable: 90 % of the card's 16 GiB                      │ 14.40 │
│ linear layers                                          │  0.00 │
│ embeddings, norms, other tensors                       │  0.00 │
│ allowance for activations, CUDA graphs, NCCL (assumed) │  1.50 │
│ left for keys and values                               │ 12.90 │
└────────────────────────────────────────────────────────┴───────┘
Keys and values: 256 bytes per token, room for 54104816 tokens (blocks of 16); largest context 4096 tokens.
CANNOT BE SERVED by the suite: 2 layers have no kernel: model.layers.*.self_attn.o_proj.
Fits: a context of 4096 tokens."""


def test_the_whole_text(tmp_path: Path) -> None:
    assert _text(_explain(tmp_path, find_card("v100").device, tp=4)) == SNAPSHOT


def test_alike_layers_are_one_row(tmp_path: Path) -> None:
    explanation = _explain(tmp_path, find_card("v100").device)
    groups = group_routes(explanation.routes)
    assert [(group.name, len(group.routes)) for group in groups] == [
        ("model.layers.*.self_attn.qkv_proj", 2),
        ("model.layers.*.self_attn.o_proj", 2),
        ("model.layers.*.mlp.gate_up_proj", 2),
        ("model.layers.*.mlp.down_proj", 2),
        ("lm_head", 1),
    ]


def test_layers_that_differ_keep_their_own_row_and_name(tmp_path: Path) -> None:
    routes = list(_explain(tmp_path, find_card("v100").device).routes)
    wider = dataclasses.replace(routes[0], nbytes=routes[0].nbytes + 1)
    names = [group.name for group in group_routes([wider, *routes[1:]])]
    assert names[0] == "model.layers.0.self_attn.qkv_proj"
    assert "model.layers.1.self_attn.qkv_proj" in names


def test_nothing_to_complain_about(tmp_path: Path) -> None:
    text = _flat(_explain(tmp_path, find_card("v100").device))
    assert "CANNOT" not in text
    assert text.endswith("Fits: a context of 4096 tokens.")


def test_stock_vllm_is_named_where_it_takes_over(tmp_path: Path) -> None:
    text = _flat(_explain(tmp_path, find_card("h200").device))
    assert "which take NVFP4 from compute capability 7.5 on and MXFP4 from compute capability 8.0 on." in text
    assert "FastFakeKernel: on compute capability 9.0 stock vLLM keeps its own kernel" in text
    assert "CANNOT" not in text


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    text = _flat(_explain(tmp_path, Device.cuda(Sm(7, 0), "small card", GIB)))
    assert "DOES NOT FIT: weights and allowance exceed what is usable by 0.60 GiB." in text


def test_a_context_that_does_not_fit(tmp_path: Path) -> None:
    explanation = _explain(tmp_path, find_card("v100").device)
    tight = dataclasses.replace(
        explanation.memory, usable=explanation.memory.usable - explanation.memory.left
    )
    tight = dataclasses.replace(tight, usable=tight.usable + 100 * tight.kv_per_token)
    text = _flat(dataclasses.replace(explanation, memory=tight))
    assert "DOES NOT FIT: a context of 4096 tokens. Start vLLM with --max-model-len 96 or less" in text


def test_markup_in_names_is_printed_as_it_is(tmp_path: Path) -> None:
    explanation = dataclasses.replace(_explain(tmp_path, find_card("v100").device), model="[red]model[/red]")
    assert _text(explanation).startswith("[red]model[/red]: llama")
