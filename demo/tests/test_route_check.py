from pathlib import Path
from typing import Any

import pytest

from sm70_demo.route_check import LinearSize, expected_linears, parse_routes, route_problems
from sm70_demo.tensor_file import TensorEntry

KERNEL = "CpuReferenceNvFp4LinearKernel"
DOWN = "model.layers.0.mlp.down_proj"


def entry(*shape: int) -> TensorEntry:
    return TensorEntry(Path("model.safetensors"), "U8", shape, 0, 0)


def layer(**changes: Any) -> dict[str, Any]:
    verdicts = [
        {"kernel": "Qpn2NvFp4LinearKernel", "supported": False, "code": "capability", "message": "needs 7.0"},
        {"kernel": KERNEL, "supported": True, "code": "ok", "message": ""},
    ]
    base = {"prefix": DOWN, "format": "nvfp4", "n": 576, "k": 1536, "kernel": KERNEL, "served_by": KERNEL}
    return {**base, "verdicts": verdicts, **changes}


def problems_of(*layers: dict[str, Any]) -> list[str]:
    return route_problems({DOWN: LinearSize(576, 1536)}, parse_routes({"layers": list(layers)}))


def test_fused_parts_count_as_one_layer() -> None:
    attention, mlp = "model.layers.3.self_attn", "model.layers.3.mlp"
    tensors = {
        f"{attention}.q_proj.weight_packed": entry(576, 288),
        f"{attention}.k_proj.weight_packed": entry(192, 288),
        f"{attention}.v_proj.weight_packed": entry(192, 288),
        f"{attention}.q_proj.weight_scale": entry(576, 36),
        f"{attention}.o_proj.weight_packed": entry(576, 288),
        f"{mlp}.gate_proj.weight_packed": entry(1536, 288),
        f"{mlp}.up_proj.weight_packed": entry(1536, 288),
        f"{mlp}.down_proj.weight_packed": entry(576, 768),
        "model.norm.weight": entry(576),
    }
    assert expected_linears(tensors) == {
        f"{attention}.qkv_proj": LinearSize(960, 576),
        f"{attention}.o_proj": LinearSize(576, 576),
        f"{mlp}.gate_up_proj": LinearSize(3072, 576),
        f"{mlp}.down_proj": LinearSize(576, 1536),
    }


def test_fused_parts_of_unequal_k_are_refused() -> None:
    tensors = {"a.q_proj.weight_packed": entry(64, 32), "a.k_proj.weight_packed": entry(64, 16)}
    with pytest.raises(ValueError, match=r"a\.qkv_proj: its parts have K 64 and 32"):
        expected_linears(tensors)


def test_layer_served_by_its_kernel_is_fine() -> None:
    assert problems_of(layer()) == []


def test_layer_that_nobody_accepts_may_be_served_by_others() -> None:
    refused = [{"kernel": KERNEL, "supported": False, "code": "shape", "message": "K % 16"}]
    assert problems_of(layer(kernel=None, served_by="MarlinNvFp4LinearKernel", verdicts=refused)) == []


def test_missing_layer_is_named() -> None:
    other = layer(prefix="model.layers.1.mlp.down_proj")
    assert problems_of(other) == [f"{DOWN}: not in the route report"]


def test_wrong_server_is_named() -> None:
    (problem,) = problems_of(layer(served_by="EmulationNvFp4LinearKernel"))
    assert problem == f"{DOWN}: {KERNEL} was chosen, but EmulationNvFp4LinearKernel serves it"


def test_accepted_layer_without_kernel_is_named() -> None:
    (problem,) = problems_of(layer(kernel=None, served_by="EmulationNvFp4LinearKernel"))
    assert problem.startswith(f"{DOWN}: accepted by {KERNEL}, yet no kernel was chosen")


def test_wrong_size_is_named() -> None:
    (problem,) = problems_of(layer(k=768))
    assert "reported as N=576, K=768; the checkpoint has N=576, K=1536" in problem


def test_problems_come_in_layer_order() -> None:
    linears = {f"model.layers.{i}.mlp.down_proj": LinearSize(1, 16) for i in (10, 2, 1)}
    found = [problem.split(".")[2] for problem in route_problems(linears, [])]
    assert found == ["1", "2", "10"]


def test_report_without_layers_is_refused() -> None:
    with pytest.raises(TypeError, match='no list "layers"'):
        parse_routes({"kernels": []})


@pytest.mark.parametrize("field", ["prefix", "n", "k", "kernel", "served_by", "verdicts"])
def test_layer_without_a_field_is_refused(field: str) -> None:
    broken = layer()
    del broken[field]
    with pytest.raises(ValueError, match=f"layer 0 of the route report lacks '{field}'"):
        parse_routes({"layers": [broken]})
