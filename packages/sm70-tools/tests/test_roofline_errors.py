"""The errors that are printed beside predictions, the constants behind them, the page, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sm70_tools.cli import main
from sm70_tools.roofline.cards import GENERAL, HOPPER, TURING, VOLTA, Compared, find_figures
from sm70_tools.roofline.compare import (
    GENERAL_COMMIT,
    compare_public,
    compare_row,
    read_general_rows,
    read_rows,
)
from sm70_tools.roofline.fit import (
    MEASURED_CONSTANTS,
    PUBLIC_CONSTANTS,
    descend,
    measured_loss,
    public_loss,
    with_constants,
)
from sm70_tools.roofline.page import render_page
from sm70_tools.roofline.predictions import LABEL, error_range
from sm70_tools.roofline.references import PUBLIC_FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_tools.roofline.cards import Figures

REPOSITORY = Path(__file__).resolve().parents[3]
MEASURED = REPOSITORY / "benchmarks" / "results" / "h200"
ROWS = read_rows(MEASURED / "strip_kernels.csv")
GENERAL_ROWS = read_general_rows(MEASURED / "linear.csv", find_figures("h200"))
PAGE = REPOSITORY / "docs" / "roofline.md"


def _range_of(errors: list[float], stated: Compared) -> None:
    """The stated range holds all errors and is no wider than rounding makes it."""
    assert stated.low <= min(errors) < stated.low + 0.011, (min(errors), stated)
    assert stated.high - 0.011 < max(errors) <= stated.high, (max(errors), stated)


def _public_errors(card: str, *, fitted: bool) -> list[float]:
    """Errors of times, which are the inverses of bandwidths."""
    chosen = [item for item in PUBLIC_FIGURES if item.card == card and item.fitted is fitted]
    figures = find_figures(card)
    return [item.gb_s / compare_public(item, figures).predicted - 1 for item in chosen]


def test_stated_errors_on_measured_rows() -> None:
    errors = [compare_row(row, find_figures("h200")).error for row in ROWS]
    assert HOPPER.fitted.what.startswith(f"{len(errors)} measured rows")
    _range_of(errors, HOPPER.fitted)


def test_stated_errors_on_rows_that_were_left_out() -> None:
    few, many = [row for row in ROWS if row.m <= 8], [row for row in ROWS if row.m > 8]
    fitted = descend(find_figures("h200"), MEASURED_CONSTANTS, lambda item: measured_loss(item, few))
    assert HOPPER.free.what.startswith(f"{len(many)} of them")
    _range_of([compare_row(row, fitted).error for row in many], HOPPER.free)


@pytest.mark.parametrize(("card", "family"), [("v100", VOLTA), ("rtx8000", TURING)])
def test_stated_errors_on_public_figures(card: str, family: object) -> None:
    assert family is find_figures(card).family
    for fitted, stated in ((True, find_figures(card).family.fitted), (False, find_figures(card).family.free)):
        errors = _public_errors(card, fitted=fitted)
        assert stated.what.startswith(f"{len(errors)} ")
        _range_of(errors, stated)


def test_stated_errors_on_measured_rows_of_the_general_kernel() -> None:
    errors = [compare_row(row, find_figures("h200")).error for row in GENERAL_ROWS]
    assert GENERAL.what.startswith(f"{len(errors)} measured rows")
    assert {row.m for row in GENERAL_ROWS} == {64}
    assert {(row.n, row.k) for row in GENERAL_ROWS} == {(row.n, row.k) for row in ROWS}
    _range_of(errors, GENERAL)


def test_only_rows_of_the_general_kernel_and_of_its_commit_are_read(tmp_path: Path) -> None:
    head, commit = "commit,shape,m,variant,us_median", GENERAL_COMMIT
    rows = (
        *("b0d2dcc,64x64,64,ours,1.0", f"{commit},64x64,8,ours,2.0", f"{commit},64x64,64,ours,3.0"),
        *(f"{commit},64x64,64,torch,4.0", f"{commit},64x64,512,ours,5.0", "later,64x64,64,ours,6.0"),
    )
    file = tmp_path / "linear.csv"
    file.write_text("\n".join((head, *rows)), encoding="utf-8")
    (row,) = read_general_rows(file, find_figures("h200"))
    assert (row.n, row.k, row.m, row.us) == (64, 64, 64, 3.0)
    assert row.kernel.startswith("general_nvfp4_")


def test_measured_times_are_met_within_a_fifth() -> None:
    assert len({(row.n, row.k) for row in ROWS}) == 8
    assert max(abs(compare_row(row, find_figures("h200")).error) for row in ROWS) < 0.20


def test_public_figures_of_the_v100_are_met_within_16_percent() -> None:
    chosen = [item for item in PUBLIC_FIGURES if item.card == "v100" and item.fitted]
    assert {(item.title, item.m) for item in chosen} == {
        (title, m) for title in ("trunk", "lm_head") for m in (1, 8, 16)
    }
    assert max(abs(compare_public(item, find_figures("v100")).error) for item in chosen) < 0.16


@pytest.mark.parametrize(
    ("key", "names", "objective"),
    [
        ("h200", MEASURED_CONSTANTS, lambda figures: measured_loss(figures, ROWS)),
        ("v100", PUBLIC_CONSTANTS, public_loss),
        ("rtx8000", PUBLIC_CONSTANTS, public_loss),
    ],
)
def test_the_constants_are_the_fitted_ones(
    key: str, names: tuple[str, ...], objective: Callable[[Figures], float]
) -> None:
    figures = find_figures(key)
    for name in names:
        for factor in (0.9, 1.1):
            trial = with_constants(figures, {name: getattr(figures.family, name) * factor})
            assert objective(trial) > objective(figures), f"{key}: {name} fits better by {factor}; fit again"


def test_descending_finds_a_constant_again() -> None:
    start = with_constants(find_figures("rtx8000"), {"line_cycles": 3.0})
    found = descend(start, ("line_cycles",), public_loss)
    assert found.family.line_cycles == pytest.approx(TURING.line_cycles, rel=0.02)


def test_the_page_is_up_to_date() -> None:
    message = "stale: python -m sm70_tools.roofline page benchmarks/results/h200 > docs/roofline.md"
    assert PAGE.read_text(encoding="utf-8") == render_page(ROWS, GENERAL_ROWS), message


def test_the_command_labels_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--device", "v100", "--shapes", "4096x4096", "--m", "1,4096"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count(LABEL) == 2
    assert "qpn2_nvfp4_t1" in text
    assert ">= " in text
    for part in (HOPPER.fitted, HOPPER.free, VOLTA.fitted, VOLTA.free, GENERAL):
        assert part.text in text
    assert "879 GB/s" in text


def test_the_command_serves_64_rows_and_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shapes", "4096x4096", "--m", "9,64,65", "--json"]
    assert main(["roofline", "--device", "v100", *options]) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert [row["is_bound"] for row in rows] == [False, False, True]
    assert all(row["kernel"].startswith("general_nvfp4_") for row in rows[:2])
    assert "more than 64 rows" in rows[2]["kernel"]
    assert main(["roofline", "--device", "v100", "--shapes", "4096x4096", "--m", "65"]) == 0
    assert "More than 64 rows of x are not modelled" in " ".join(capsys.readouterr().out.split())


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--device", "T4", "--shapes", "5120x1536,4096x4096", "--m", "8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["label"]) == ("sm70-roofline/1", LABEL)
    assert [(row["n"], row["k"], row["m"]) for row in document["predictions"]] == [
        (5120, 1536, 8),
        (4096, 4096, 8),
    ]
    first = document["predictions"][0]
    assert first["gb_s"] == pytest.approx(5120 * 1536 * 0.5625 / first["us"] / 1e3, rel=1e-3)
    low, high = error_range(find_figures("t4"))
    assert (document["error"]["low"], document["error"]["high"]) == (low, high)
    assert low < 0 < high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "b200"), "v100, v100-32gb"),
        (("--device", "v100", "--shapes", "4096"), "as a shape"),
        (("--device", "v100", "--shapes", "0x64"), "as a shape"),
        (("--device", "v100", "--shapes", "64x100"), "multiple of 64"),
        (("--device", "v100", "--m", "1,x"), "rows of x"),
        (("--device", "v100", "--m", "0"), "rows of x"),
    ],
)
def test_wrong_questions_are_answered_with_what_is_allowed(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", *options]) == 2
    assert message in capsys.readouterr().err


def test_without_the_kernels_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sm70_kernels_cuda", None)
    assert main(["roofline", "--device", "v100"]) == 2
    assert "sm70-tools[cuda]" in capsys.readouterr().err
