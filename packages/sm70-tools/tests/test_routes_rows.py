"""The rows of a snapshot: how many, under which names, and what is not applicable."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sm70_tools.errors import ArgumentError, NothingToDoError
from sm70_tools.routes.cards import ROUTED_CARDS
from sm70_tools.routes.categories import CATEGORIES, find_category, row_ids
from sm70_tools.routes.configurations import Configuration, grid
from sm70_tools.routes.edges import NVFP4_EDGES
from sm70_tools.routes.hosts import HOSTS, find_host
from sm70_tools.routes.scopes import SCOPES, find_scope, why_not

_ID = re.compile(
    r"nvfp4/(?P<scope>flash-next-modelopt|35b-awq|27b-nvfp4)/kv=(auto|fp8|fp8_e5m2)/tp=[24]"
    r"/spec=(none|mtp|dflash)/conc=[148]/budget=(4096|8192)"
)


def test_a_category_has_324_configurations_and_18_edge_cases() -> None:
    ids = row_ids(find_category("nvfp4"))
    assert len(ids) == len(set(ids)) == 324 + 18
    assert list(ids) == sorted(ids)
    matches = [_ID.fullmatch(row_id) for row_id in ids]
    scopes = Counter(match["scope"] for match in matches if match)
    assert scopes == {"flash-next-modelopt": 108, "35b-awq": 108, "27b-nvfp4": 108}
    assert [row_id for row_id in ids if row_id.startswith("nvfp4/edge/")] == [
        row_id for row_id, match in zip(ids, matches, strict=True) if not match
    ]


def test_names_of_rows_are_these() -> None:
    configuration = Configuration("27b-nvfp4", "fp8", 4, "mtp", 4, 8192)
    assert configuration.row_id("nvfp4") == "nvfp4/27b-nvfp4/kv=fp8/tp=4/spec=mtp/conc=4/budget=8192"


@pytest.mark.parametrize(("speculation", "rows"), [("none", 4), ("mtp", 20), ("dflash", 36)])
def test_every_drafted_token_is_a_row_to_verify(speculation: str, rows: int) -> None:
    configuration = Configuration("27b-nvfp4", "auto", 2, speculation, 4, 8192)
    assert (configuration.decode_rows, configuration.prefill_rows) == (rows, 8192)


def test_edge_cases_cover_what_they_should() -> None:
    names = {edge.name for edge in NVFP4_EDGES}
    assert {edge.fault for edge in NVFP4_EDGES} == {"", "weight", "memory", "operators", "layout-abi"}
    variables = {variable for edge in NVFP4_EDGES for variable in edge.environment}
    assert variables == {
        f"VLLM_SM70_NVFP4_QPN2{rest}"
        for rest in ("", "_PREFILL", "_SHARED_WEIGHT", "_SHARED_SCALES", "_PREFILL_MIN_M")
    }
    assert len(names) == len(NVFP4_EDGES)
    assert all(edge.about for edge in NVFP4_EDGES)


def test_a_checkpoint_of_another_format_is_not_applicable() -> None:
    reasons = {scope.name: why_not(scope, "nvfp4") for scope in SCOPES}
    assert reasons["27b-nvfp4"] is None
    assert reasons["flash-next-modelopt"] is None
    assert "awq" in str(reasons["35b-awq"])


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope.roles], ids=lambda scope: scope.name)
@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_divide_every_layer(scope: object, tp: int) -> None:
    for role in find_scope(getattr(scope, "name", "")).roles:
        assert (role.k % tp == 0) if role.splits_inputs else all(width % tp == 0 for width in role.outputs)


def test_the_27b_layers_are_those_of_its_ranks() -> None:
    # N and K of a rank of four, as published for the model.
    roles = {role.name: role for role in find_scope("27b-nvfp4").roles}
    shapes = {
        name: (role.outputs[0], role.k // 4) if role.splits_inputs else (sum(role.outputs) // 4, role.k)
        for name, role in roles.items()
    }
    assert shapes == {
        "qkv_proj": (3584, 5120),
        "o_proj": (5120, 1536),
        "in_proj_qkvz": (4096, 5120),
        "out_proj": (5120, 1536),
        "gate_up_proj": (8704, 5120),
        "down_proj": (5120, 4352),
    }


@pytest.mark.parametrize("name", ["awq", "fp8", "moe", "large-m"])
def test_a_category_without_kernels_says_so(name: str) -> None:
    with pytest.raises(NothingToDoError, match=f"nothing to snapshot yet for the category {name} "):
        find_category(name)


def test_an_unknown_category_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"'nvfp5'. Allowed: nvfp4, awq, fp8, moe, large-m, stock\."):
        find_category("nvfp5")


def test_an_unknown_host_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"vLLM 0\.1\.0\. Allowed: 0\.33\.0"):
        find_host("0.1.0")


def test_cards_are_known() -> None:
    for category in CATEGORIES:
        assert set(category.cards) <= set(ROUTED_CARDS)
        assert bool(category.cards) != bool(category.empty)
    numbers = [card.card.sm.number for card in ROUTED_CARDS.values()]
    assert numbers == [70, 75, 80, 90, 100]
    assert len({host.version for host in HOSTS}) == len(HOSTS)


def test_the_grid_is_108_for_each_scope() -> None:
    assert len(set(grid(("one",)))) == 108
