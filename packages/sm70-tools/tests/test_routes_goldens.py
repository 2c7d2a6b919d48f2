"""The committed snapshots, without vLLM: their form, their rows, and what they have to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from sm70_policy.capability import SM7X
from sm70_tools.routes import encoding, markdown
from sm70_tools.routes.cards import ROUTED_CARDS
from sm70_tools.routes.categories import CATEGORIES, find_category, row_ids
from sm70_tools.routes.hosts import HOSTS

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "snapshots").glob("*.json"))
EACH_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
STOCK = [path for path in FILES if path.name.startswith("stock-")]


def test_there_is_a_file_for_every_category_with_rows_and_host() -> None:
    names = {
        f"{category.name}-{host.version}.json"
        for category in CATEGORIES
        if not category.empty
        for host in HOSTS
    }
    assert {path.name for path in FILES} == names


@EACH_FILE
def test_a_file_is_as_the_command_writes_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    taken = encoding.from_text(text, path.name)
    assert encoding.to_text(taken) == text
    assert path.name == f"{taken.category}-{taken.host}.json"
    assert len(text) < 400_000


@EACH_FILE
def test_a_file_has_all_rows_and_says_what_it_was_taken_with(path: Path) -> None:
    taken = encoding.read(path)
    category = find_category(taken.category)
    assert tuple(sorted(taken.rows)) == row_ids(category)
    assert taken.notes == category.notes
    assert taken.packages["vllm"] == taken.host
    assert all(taken.packages[name] for name in ("sm70-policy", "sm70-kernels-cuda", "torch"))


def test_every_layer_of_the_grid_is_served_by_the_suite() -> None:
    taken = encoding.read(ROOT / "snapshots" / f"nvfp4-{HOSTS[0].version}.json")
    classes = {
        (card, layer["class"])
        for row in taken.rows.values()
        if "decode_m" in row
        for card, outcome in row["cards"].items()
        for layer in outcome["layers"].values()
    }
    assert classes == {
        ("v100", "Qpn2NvFp4LinearKernel"),
        ("v100", "TurboMindNvFp4LinearKernel"),
        ("rtx8000", "TuringQpn2NvFp4LinearKernel"),
        ("rtx8000", "TurboMindNvFp4LinearKernel"),
    }


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.stem)
def test_newer_cards_keep_the_routes_of_stock_vllm(path: Path) -> None:
    for row_id, row in encoding.read(path).rows.items():
        is_sm7x = ROUTED_CARDS[row_id.split("/")[1]].card.sm in SM7X
        assert is_sm7x or row["stock"] == row["suite"], row_id


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.stem)
def test_the_suite_takes_what_it_has_kernels_for_and_no_more(path: Path) -> None:
    for row_id, row in encoding.read(path).rows.items():
        _, card, name = row_id.split("/")
        differs = card in {"v100", "rtx8000"} and name.startswith(("nvfp4", "mxfp4"))
        assert (row["stock"] != row["suite"]) == differs, row_id


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.stem)
def test_the_documentation_shows_the_table(path: Path) -> None:
    page = (ROOT / "docs" / "routes.md").read_text(encoding="utf-8")
    assert markdown.stock_table(encoding.read(path)) in page
