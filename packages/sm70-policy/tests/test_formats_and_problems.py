"""Weight formats, and the problems that are built from them."""

import random

import pytest

from sm70_policy.errors import ProblemError
from sm70_policy.formats import FORMATS, NVFP4, WeightFormat, find_format
from sm70_policy.problem import ActivationDtype, LinearProblem

_INT3 = WeightFormat("int3", "int3", 3, 32, "float16", 2, global_scale=False)


def test_nvfp4_is_four_bits_with_one_byte_of_scale_for_sixteen_columns() -> None:
    assert (NVFP4.code_bits, NVFP4.group_size, NVFP4.scale_bytes, NVFP4.global_scale) == (4, 16, 1, True)
    assert (NVFP4.code, NVFP4.scale) == ("e2m1", "e4m3")


@pytest.mark.parametrize(
    ("weight_format", "n", "k", "expected"),
    [
        (NVFP4, 1, 16, 9),
        (NVFP4, 3, 32, 54),
        (NVFP4, 4096, 4096, 9_437_184),
        (NVFP4, 1, 17, 11),  # nine bytes of codes, two scales
        (_INT3, 2, 32, 28),
        (_INT3, 2, 33, 34),  # 13 bytes of codes, two scales of two bytes
    ],
)
def test_weight_bytes(weight_format: WeightFormat, n: int, k: int, expected: int) -> None:
    assert weight_format.weight_bytes(n, k) == expected


def test_weight_bytes_of_whole_groups_are_nine_sixteenths_of_the_elements() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(50):
        n, k = rng.randrange(1, 9000), 16 * rng.randrange(1, 900)
        assert NVFP4.weight_bytes(n, k) * 16 == n * k * 9, f"seed {seed}: N={n} K={k}"


def test_a_format_is_found_by_its_name() -> None:
    assert {name: find_format(name) for name in FORMATS} == FORMATS
    assert find_format("nvfp4") is NVFP4


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(ProblemError) as caught:
        find_format("q4_k")
    assert str(caught.value) == (
        f"the weight format 'q4_k'. Allowed: {', '.join(FORMATS)}. Use a checkpoint in one of these formats."
    )
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_problem_takes_shards_that_sum_to_n() -> None:
    problem = LinearProblem("qkv_proj", NVFP4, 12, 32, ActivationDtype.FLOAT16, (8, 2, 2))
    assert problem.shards == (8, 2, 2)
    assert problem.weight_bytes == 12 * (16 + 2)


@pytest.mark.parametrize(("n", "k"), [(0, 16), (16, 0), (-1, 16), (16, -16)])
def test_sizes_below_one_are_refused(n: int, k: int) -> None:
    with pytest.raises(ProblemError) as caught:
        LinearProblem("layer", NVFP4, n, k, ActivationDtype.FLOAT16)
    assert str(caught.value) == (
        f"layer: a linear layer with N={n} and K={k}. Allowed: N >= 1 and K >= 1. "
        "Check the model's configuration and the tensor-parallel size."
    )


@pytest.mark.parametrize("shards", [(8,), (8, 2), (8, 2, 3), (12, 0), (14, -2)])
def test_shards_must_be_positive_and_sum_to_n(shards: tuple[int, ...]) -> None:
    with pytest.raises(ProblemError, match="positive shard sizes that sum to N"):
        LinearProblem("layer", NVFP4, 12, 32, ActivationDtype.FLOAT16, shards)


def test_activation_dtypes_carry_the_names_of_torch() -> None:
    assert [str(dtype) for dtype in ActivationDtype] == ["float16", "bfloat16", "float32"]
