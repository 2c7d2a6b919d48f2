"""Shapes, row counts and the number of weights."""

from __future__ import annotations

import pytest

from sm70_tools.bench import cases
from sm70_tools.bench.cases import Shape
from sm70_tools.errors import ArgumentError


def test_shapes_keep_their_order_and_lose_duplicates() -> None:
    assert cases.parse_shapes("5120x1536, 4096x4096,5120x1536") == (Shape(5120, 1536), Shape(4096, 4096))


@pytest.mark.parametrize(
    "text", ["", "4096", "4096x", "4096X4096", "0x4096", "4096x-16", "4096x4090", "64x64"]
)
def test_shapes_that_cannot_be_measured(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^--shapes with .*Allowed: NxK with K a multiple of 16"):
        cases.parse_shapes(text)


def test_the_default_shapes_are_their_own_text() -> None:
    assert cases.parse_shapes(",".join(map(str, cases.SHAPES))) == cases.SHAPES
    assert len(cases.SHAPES) == 8


def test_bytes_and_operations() -> None:
    shape = Shape(5120, 1536)
    assert (shape.nvfp4_bytes, shape.fp16_bytes, shape.flops(1)) == (4_423_680, 15_728_640, 15_728_640)


def test_rows() -> None:
    assert cases.parse_rows("1, 8,8,4096") == (1, 8, 4096)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,,2", "1.5", "x"])
def test_rows_that_do_not_exist(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^--m '.*Allowed: positive numbers"):
        cases.parse_rows(text)


@pytest.mark.parametrize("shape", [*cases.SHAPES, Shape(86_816, 1), Shape(65_536, 65_536)])
def test_the_weights_overflow_the_cache(shape: Shape) -> None:
    for size in (shape.nvfp4_bytes, shape.fp16_bytes):
        count = cases.copies(size)
        assert 2 <= count <= 4096
        assert count * size > 200_000_000


def test_the_least_shape_needs_the_most_copies() -> None:
    assert cases.copies(cases.parse_shapes("5426x16")[0].nvfp4_bytes) == 4096


@pytest.mark.parametrize(("m", "allowed"), [(1, 4e-4), (64, 4e-4), (65, 1e-3), (4096, 1e-3)])
def test_tolerances(m: int, allowed: float) -> None:
    assert cases.tolerance(m) == allowed
