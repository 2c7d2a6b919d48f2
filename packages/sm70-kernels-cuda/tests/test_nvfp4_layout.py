"""The resident layout: its definition bit by bit, its inverse, its padding, its memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_BYTES, Nvfp4Block

SHAPES = [(1, 16), (16, 256), (31, 272), (33, 128), (100, 1536), (64, 17408), (0, 256)]


def _random(rng: np.random.Generator, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.from_numpy(rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
    scales = torch.from_numpy(rng.integers(0, 256, (n, k // 16), dtype=np.uint8))
    return codes, scales


def _place(row: int, column: int) -> tuple[int, int, int]:
    """Byte offset in a block, lowest magnitude bit and sign bit of a code, from the layout's description."""
    chunk, group, within = column // 64, column % 64 // 16, column % 16
    word, position = divmod(within, 4)
    half = 0 if row % 16 >= 8 else 1
    byte = 512 * chunk + 128 * group + 16 * (row % 8) + 4 * word + 2 * (position & 1) + half
    return byte, 3 * (position >> 1), 6 + (position >> 1)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_unpack_restores_every_byte(rng: np.random.Generator, n: int, k: int) -> None:
    layout, (codes, scales) = Nvfp4Block(n, k), _random(rng, n, k)
    packed = layout.pack(codes, scales)
    assert packed.shape == layout.storage_shape
    assert packed.numel() == layout.storage_bytes
    restored = layout.unpack(packed)
    assert torch.equal(restored[0], codes)
    assert torch.equal(restored[1], scales)


def test_every_code_and_scale_is_where_the_description_says(rng: np.random.Generator) -> None:
    n, k = 37, 528
    codes, scales = _random(rng, n, k)
    packed = Nvfp4Block(n, k).pack(codes, scales).numpy()
    for row in range(n):
        for column in range(k):
            block = packed[row // 16, column // 256]
            byte, magnitude, sign = _place(row, column % 256)
            code = int(codes[row, column // 2]) >> (4 * (column % 2)) & 15
            assert (int(block[byte]) >> magnitude & 7) | (int(block[byte]) >> sign & 1) << 3 == code
        for group in range(k // 16):
            chunk, t = group % 16 // 4, group % 4
            offset = 2048 + 64 * t + 8 * (row % 8) + 2 * chunk + (row % 16) // 8
            assert packed[row // 16, group // 16, offset] == scales[row, group]


def test_padding_is_zero() -> None:
    codes = torch.full((17, 64), 255, dtype=torch.uint8)
    scales = torch.full((17, 8), 255, dtype=torch.uint8)
    restored = Nvfp4Block(32, 256).unpack(Nvfp4Block(17, 128).pack(codes, scales))
    assert int(restored[0].count_nonzero()) == codes.numel()
    assert int(restored[1].count_nonzero()) == scales.numel()


def test_strided_and_float8_inputs_pack_like_contiguous_bytes(rng: np.random.Generator) -> None:
    codes, scales = _random(rng, 40, 512)
    expected = Nvfp4Block(40, 512).pack(codes, scales)
    strided_codes = codes.t().contiguous().t()
    strided_scales = torch.cat((scales, scales), dim=1)[:, :32].view(torch.float8_e4m3fn)
    assert not strided_codes.is_contiguous()
    assert torch.equal(Nvfp4Block(40, 512).pack(strided_codes, strided_scales), expected)


def test_meta_tensors_pack() -> None:
    codes = torch.empty((96, 128), dtype=torch.uint8, device="meta")
    scales = torch.empty((96, 16), dtype=torch.uint8, device="meta")
    packed = Nvfp4Block(96, 256).pack(codes, scales)
    assert packed.device.type == "meta"
    assert packed.shape == (6, 1, BLOCK_BYTES)


def test_packing_leaves_its_inputs_alone(rng: np.random.Generator) -> None:
    codes, scales = _random(rng, 48, 256)
    kept = codes.clone(), scales.clone()
    Nvfp4Block(48, 256).pack(codes, scales)
    assert torch.equal(codes, kept[0])
    assert torch.equal(scales, kept[1])
