"""Rows of measured numbers and their file."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from sm70_tools.bench.cases import Shape
from sm70_tools.bench.errors import RowFileError
from sm70_tools.bench.rows import COLUMNS, Measurement, RowFile, read_rows
from sm70_tools.bench.timing import Timing
from tools_bench import PROVENANCE

HEADER = (
    "date,commit,gpu,driver,cuda,torch,op,format,shape,m,variant,us_median,us_p20,us_p80,bytes,roof_gbps,"
    "flops,checked"
)
MEASUREMENT = Measurement(Shape(5120, 1536), 1, "ours", "nvfp4", 4423680, Timing(5.6512, 5.607, 5.68), 2.1e-4)
LINE = (
    "2026-11-30T02:31:35+00:00,b0d2dcc,NVIDIA H200,580.1,13.0,2.11.0,linear,nvfp4,5120x1536,1,ours,5.65,5.61,"
    "5.68,4423680,4463,15728640,yes"
)


def _row() -> dict[str, str]:
    return MEASUREMENT.row(PROVENANCE, 4463.4)


def test_the_columns() -> None:
    assert ",".join(COLUMNS) == HEADER
    assert tuple(_row()) == COLUMNS


def test_each_row_is_in_the_file_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "h200" / "linear.csv"
    with RowFile(path) as file:
        assert path.read_text() == f"{HEADER}\n"
        file.write(_row())
        assert path.read_text() == f"{HEADER}\n{LINE}\n"
    assert read_rows(path) == [_row()]


def test_a_second_run_appends(tmp_path: Path) -> None:
    path = tmp_path / "linear.csv"
    later = replace(PROVENANCE, date="2026-12-01T00:00:00+00:00")
    for provenance in (PROVENANCE, later):
        with RowFile(path) as file:
            file.write(MEASUREMENT.row(provenance, 4463.4))
    assert path.read_text().count(HEADER) == 1
    assert [row["date"] for row in read_rows(path)] == [PROVENANCE.date, later.date]


def test_an_empty_file_gets_its_header(tmp_path: Path) -> None:
    path = tmp_path / "linear.csv"
    path.touch()
    with RowFile(path) as file:
        file.write(_row())
    assert path.read_text() == f"{HEADER}\n{LINE}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"linear.csv, whose first line is 'a,b'. Allowed: a new file"),
        (f"{HEADER},more\n", r"whose first line is"),
        (f"{HEADER}\n{LINE[:40]}", r"linear.csv, which ends in the middle of a row"),
    ],
)
def test_a_foreign_or_damaged_file_is_left_as_it_is(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "linear.csv"
    path.write_text(text)
    with pytest.raises(RowFileError, match=message):
        RowFile(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\n", "which holds no row"),
        (f"{HEADER}\n{LINE}\nx,y\n", "line 3, with another number of columns"),
        (f"{HEADER}\n{LINE},more\n", "line 2, with another number of columns"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "linear.csv"
    path.write_text(text)
    with pytest.raises(RowFileError, match=message):
        read_rows(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RowFileError, match="which does not exist"):
        read_rows(tmp_path / "linear.csv")


def test_the_published_rows_have_these_columns() -> None:
    for path in (Path(__file__).parents[3] / "benchmarks" / "results").glob("*/*.csv"):
        with path.open(newline="") as file:
            assert next(csv.reader(file)) == HEADER.split(",")
