import math

import numpy as np
import pytest

from sm70_demo.fake_quantize import E2M1_VALUES, E4M3_VALUES, dequantize

E2M1_TABLE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]

# One row for each exponent field from 0 to 15: the value of mantissa 0 and the step to the next mantissa.
E4M3_ROWS = [
    (0.0, 0.001953125), (0.015625, 0.001953125), (0.03125, 0.00390625), (0.0625, 0.0078125),
    (0.125, 0.015625), (0.25, 0.03125), (0.5, 0.0625), (1.0, 0.125),
    (2.0, 0.25), (4.0, 0.5), (8.0, 1.0), (16.0, 2.0),
    (32.0, 4.0), (64.0, 8.0), (128.0, 16.0), (256.0, 32.0),
]  # fmt: skip


def test_e2m1_table() -> None:
    assert E2M1_VALUES.tolist() == E2M1_TABLE + [-value for value in E2M1_TABLE]
    assert math.copysign(1.0, E2M1_VALUES[8]) == -1.0


@pytest.mark.parametrize("code", range(256))
def test_e4m3_table(code: int) -> None:
    base, step = E4M3_ROWS[code >> 3 & 0xF]
    expected = (base + step * (code & 7)) * (-1.0 if code & 0x80 else 1.0)
    if code in {0x7F, 0xFF}:
        assert math.isnan(E4M3_VALUES[code])
    else:
        assert E4M3_VALUES[code] == expected


def test_e4m3_largest_value() -> None:
    assert np.nanmax(E4M3_VALUES) == 448.0


def test_dequantize_takes_low_nibble_first_and_one_scale_per_16() -> None:
    packed = np.zeros((2, 16), dtype=np.uint8)
    packed[0, 0] = 0x72  # columns 0 and 1: 1.0 and 6.0
    packed[0, 8] = 0x0F  # column 16, in the second block: -6.0
    packed[1, 15] = 0x90  # column 31: -0.5
    scale = np.array([[0x38, 0x40], [0x38, 0x7E]], dtype=np.uint8)  # 1, 2; 1, 448
    expected = np.zeros((2, 32), dtype=np.float32)
    expected[0, 0], expected[0, 1], expected[0, 16], expected[1, 31] = 0.25, 1.5, -3.0, -56.0
    np.testing.assert_array_equal(dequantize(packed, scale, 4.0), expected)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 3)])
def test_scales_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"need scales \(2, 2\)"):
        dequantize(np.zeros((2, 16), dtype=np.uint8), np.zeros(shape, dtype=np.uint8), 1.0)
