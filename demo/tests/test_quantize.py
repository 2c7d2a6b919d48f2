import pytest

from sm70_demo.quantize import fused_names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layers.0.self_attn.k_proj", ["q_proj", "k_proj", "v_proj"]),
        ("layers.0.self_attn.up_proj", ["gate_proj", "up_proj"]),
        ("layers.0.self_attn.o_proj", ["o_proj"]),
    ],
)
def test_parts_of_one_vllm_layer_share_a_global_scale(name: str, expected: list[str]) -> None:
    assert fused_names(name) == [f"layers.0.self_attn.{leaf}" for leaf in expected]
