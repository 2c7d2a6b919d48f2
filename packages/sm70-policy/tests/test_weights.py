"""Validation of a checkpoint's NVFP4 tensors."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

from policy_fakes import make_problem
from sm70_policy.errors import WeightError
from sm70_policy.formats import MXFP4
from sm70_policy.provider import QuantizedWeight
from sm70_policy.weights import validate_mxfp4, validate_nvfp4

N, K = 6, 64
PROBLEM = make_problem(N, K)
REQUANTIZE = "The checkpoint is damaged or was written by a faulty quantizer; download or quantize it again."


def _weight() -> QuantizedWeight:
    return QuantizedWeight(
        codes=torch.arange(N * K // 2, dtype=torch.int32).to(torch.uint8).reshape(N, K // 2),
        scales=torch.linspace(0, 448, N * K // 16).to(torch.float8_e4m3fn).reshape(N, K // 16),
        row_factor=torch.full((N,), 0.25),
    )


def _with_scale_byte(byte: int, count: int = 1) -> QuantizedWeight:
    weight = _weight()
    weight.scales.view(torch.uint8).flatten()[:count] = byte
    return weight


def _message(weight: QuantizedWeight) -> str:
    with pytest.raises(WeightError) as caught:
        validate_nvfp4(PROBLEM, weight)
    return str(caught.value)


def test_a_good_weight_passes_unchanged() -> None:
    weight = _weight()
    before = dataclasses.replace(
        weight, codes=weight.codes.clone(), scales=weight.scales.clone(), row_factor=weight.row_factor.clone()
    )
    validate_nvfp4(PROBLEM, weight)
    assert torch.equal(weight.codes, before.codes)
    assert torch.equal(weight.scales.view(torch.uint8), before.scales.view(torch.uint8))
    assert torch.equal(weight.row_factor, before.row_factor)


def test_scales_that_are_a_view_with_strides_pass() -> None:
    weight = _weight()
    strided = weight.scales.view(torch.uint8).t().contiguous().t().view(torch.float8_e4m3fn)
    assert not strided.is_contiguous()
    validate_nvfp4(PROBLEM, dataclasses.replace(weight, scales=strided))


@pytest.mark.parametrize("k", [1, 8, 24, 63])
def test_k_must_be_whole_groups(k: int) -> None:
    with pytest.raises(WeightError) as caught:
        validate_nvfp4(make_problem(N, k), _weight())
    assert str(caught.value) == (
        f"model.layers.0.mlp.down_proj: K={k} in nvfp4. Allowed: multiples of 16, the columns that share a "
        "scale. Check the tensor-parallel size: it must leave every rank a multiple of it."
    )


@pytest.mark.parametrize(
    ("change", "asked", "allowed"),
    [
        (
            {"codes": torch.zeros(N, K // 2, dtype=torch.int8)},
            "codes of dtype torch.int8 and shape [6, 32]",
            "dtype torch.uint8 and shape [6, 32]",
        ),
        (
            {"codes": torch.zeros(N, K, dtype=torch.uint8)},
            "codes of dtype torch.uint8 and shape [6, 64]",
            "dtype torch.uint8 and shape [6, 32]",
        ),
        (
            {"scales": torch.zeros(N, K // 16)},
            "scales of dtype torch.float32 and shape [6, 4]",
            "dtype torch.float8_e4m3fn and shape [6, 4]",
        ),
        (
            {"scales": torch.zeros(K // 16, N).to(torch.float8_e4m3fn)},
            "scales of dtype torch.float8_e4m3fn and shape [4, 6]",
            "dtype torch.float8_e4m3fn and shape [6, 4]",
        ),
        (
            {"row_factor": torch.ones(1)},
            "row_factor of dtype torch.float32 and shape [1]",
            "dtype torch.float32 and shape [6]",
        ),
        (
            {"row_factor": torch.ones(N, dtype=torch.float64)},
            "row_factor of dtype torch.float64 and shape [6]",
            "dtype torch.float32 and shape [6]",
        ),
    ],
)
def test_dtypes_and_shapes(change: dict[str, torch.Tensor], asked: str, allowed: str) -> None:
    assert _message(dataclasses.replace(_weight(), **change)) == (
        f"model.layers.0.mlp.down_proj: {asked}. Allowed: {allowed}. {REQUANTIZE}"
    )


@pytest.mark.parametrize(
    ("byte", "count", "nan", "negative"),
    [(0x7F, 1, 1, 0), (0xFF, 2, 2, 0), (0x81, 1, 0, 1), (0xFE, 3, 0, 3)],
)
def test_bad_block_scales_are_counted(byte: int, count: int, nan: int, negative: int) -> None:
    assert _message(_with_scale_byte(byte, count)) == (
        f"model.layers.0.mlp.down_proj: {nan} NaN and {negative} negative block scales of 24. "
        f"Allowed: finite block scales of 0 and above. {REQUANTIZE}"
    )


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7E, 0x80])
def test_zero_negative_zero_and_the_largest_scale_pass(byte: int) -> None:
    validate_nvfp4(PROBLEM, _with_scale_byte(byte))


def test_every_scale_byte_is_judged_as_torch_reads_it() -> None:
    values = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn).float()
    for byte in range(256):
        good = bool(torch.isfinite(values[byte])) and float(values[byte]) >= 0
        if good:
            validate_nvfp4(PROBLEM, _with_scale_byte(byte))
        else:
            _message(_with_scale_byte(byte))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), -0.0])
def test_a_bad_row_factor_is_named_with_its_row(bad: float) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    row = random.Random(seed).randrange(N)
    weight = _weight()
    weight.row_factor[row] = bad
    assert _message(weight) == (
        f"model.layers.0.mlp.down_proj: global scale {bad} at output row {row}. "
        f"Allowed: positive finite numbers. {REQUANTIZE}"
    ), f"seed {seed}"


MX_PROBLEM = dataclasses.replace(PROBLEM, weight_format=MXFP4)


def _mx_weight() -> QuantizedWeight:
    scales = torch.arange(0, 255, 23, dtype=torch.int32)[: N * K // 32].to(torch.uint8).reshape(N, K // 32)
    return dataclasses.replace(_weight(), scales=scales)


def test_a_good_mxfp4_weight_passes() -> None:
    weight = _mx_weight()
    weight.scales[0, 0], weight.scales[0, 1] = 0, 254
    validate_mxfp4(MX_PROBLEM, weight)


def test_a_nan_of_mxfp4_names_the_layer() -> None:
    weight = _mx_weight()
    weight.scales[2:4, 1] = 255
    with pytest.raises(WeightError) as caught:
        validate_mxfp4(MX_PROBLEM, weight)
    assert str(caught.value) == (
        "model.layers.0.mlp.down_proj: 2 NaN block scales of 12. Allowed: E8M0 bytes below 255. " + REQUANTIZE
    )


@pytest.mark.parametrize("k", [16, 48, 80])
def test_k_of_mxfp4_must_be_whole_groups(k: int) -> None:
    problem = dataclasses.replace(MX_PROBLEM, k=k)
    with pytest.raises(WeightError, match=rf"K={k} in mxfp4\. Allowed: multiples of 32"):
        validate_mxfp4(problem, _mx_weight())


def test_scales_of_nvfp4_are_not_those_of_mxfp4() -> None:
    with pytest.raises(WeightError, match=r"scales of dtype torch\.float8_e4m3fn and shape \[6, 4\]"):
        validate_mxfp4(MX_PROBLEM, _weight())
