import numpy as np
import pytest

from sm70_demo.checkpoint import hf_name, llama_config, undo_rope_order


@pytest.mark.parametrize(
    ("gguf", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.29.attn_output.weight", "model.layers.29.self_attn.o_proj.weight"),
        ("blk.7.ffn_norm.weight", "model.layers.7.post_attention_layernorm.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
    ],
)
def test_names(gguf: str, expected: str) -> None:
    assert hf_name(gguf) == expected


@pytest.mark.parametrize("name", ["blk.x.attn_q.weight", "blk.0.ffn_gate_inp.weight", "rope_freqs.weight"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown GGUF tensor"):
        hf_name(name)


def test_rope_pairs_become_halves() -> None:
    # Two heads of size 4. GGUF row 2i of a head is its first half's row i, row 2i + 1 its second half's.
    interleaved = np.array([[0], [2], [1], [3], [4], [6], [5], [7]], dtype=np.float32)
    assert undo_rope_order(interleaved, heads=2)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_rows_that_do_not_split_are_refused() -> None:
    with pytest.raises(ValueError, match="10 rows do not split into 3 heads"):
        undo_rope_order(np.zeros((10, 4), dtype=np.float32), heads=3)


def test_config_carries_the_metadata() -> None:
    fields = {
        "llama.embedding_length": 576, "llama.feed_forward_length": 1536, "llama.block_count": 30,
        "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3, "llama.rope.dimension_count": 64,
        "llama.context_length": 8192, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0, "llama.vocab_size": 49152, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": 3,
    }  # fmt: skip
    config = llama_config(fields, tied=True)
    assert config["rope_parameters"]["rope_theta"] == 100000.0
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64)
    assert (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]) == (
        576,
        1536,
        30,
    )
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 3)
