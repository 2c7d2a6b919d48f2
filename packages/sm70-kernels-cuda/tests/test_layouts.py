"""All resident layouts: their inverse, padding, pages, and what MXFP4 does to scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from build_support.fatbin import identifier
from emulated_kernels import PACKAGE
from mxfp4_oracle import MxCheckpoint, e8m0, every_code_and_exponent, random_mx
from nvfp4_oracle import e4m3
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.kernel_set import KERNEL_SETS
from sm70_kernels_cuda.layouts.fp4_block import LAYOUT_ABI, Fp4Block
from sm70_kernels_cuda.layouts.lane_map import LAYOUTS, render
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_half_block import Nvfp4HalfBlock
from sm70_policy.errors import DriverError, WeightError

REPOSITORY = Path(__file__).resolve().parents[3]
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
SHAPES = [(1, 32), (16, 256), (31, 288), (33, 128), (100, 1536), (40, 17408), (0, 256)]


def _stored(rng: np.random.Generator, layout: Fp4Block) -> tuple[torch.Tensor, torch.Tensor]:
    """Random codes, and random stored scales that are numbers: comparing NaNs would say nothing."""
    codes = torch.from_numpy(rng.integers(0, 256, (layout.n, layout.k // 2), dtype=np.uint8))
    shape = (layout.n, layout.k // layout.group_columns)
    if layout.scale_bytes == 1:
        return codes, torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))
    return codes, torch.from_numpy(rng.standard_normal(shape).astype(np.float16))


def _mx(checkpoint: MxCheckpoint) -> tuple[Mxfp4Block, torch.Tensor, torch.Tensor]:
    layout = Mxfp4Block(*checkpoint.shape)
    operands = (checkpoint.codes, checkpoint.scales, checkpoint.row_factor)
    packed, factors = layout.resident("model.layers.0.mlp.down_proj", *map(torch.from_numpy, operands))
    return layout, packed, factors


def test_there_are_kernels_for_every_layout() -> None:
    assert [kernels.layout for kernels in KERNEL_SETS] == list(LAYOUTS.values())


@EACH_LAYOUT
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_unpack_restores_every_byte(rng: np.random.Generator, layout: type[Fp4Block], n: int, k: int) -> None:
    block = layout(n, k)
    codes, stored = _stored(rng, block)
    packed = block.pack_stored(codes, stored)
    assert packed.shape == block.storage_shape
    assert packed.numel() == block.storage_bytes
    restored = block.unpack(packed)
    assert torch.equal(restored[0], codes)
    assert torch.equal(restored[1], stored)


@EACH_LAYOUT
def test_scales_are_where_the_description_says(rng: np.random.Generator, layout: type[Fp4Block]) -> None:
    block = layout(37, 544)
    codes, stored = _stored(rng, block)
    packed = block.pack_stored(codes, stored)[..., 2048:].contiguous()
    numbers = packed if block.scale_bytes == 1 else packed.view(torch.float16)
    per_chunk = 64 // block.group_columns
    for row in range(37):
        for group in range(544 // block.group_columns):
            block_column, within = divmod(group, 4 * per_chunk)
            chunk, t = divmod(within, per_chunk)
            place = ((t * 8 + row % 8) * 4 + chunk) * 2 + row % 16 // 8
            assert numbers[row // 16, block_column, place] == stored[row, group]


@EACH_LAYOUT
def test_padding_is_zero(layout: type[Fp4Block]) -> None:
    codes = torch.full((17, 64), 255, dtype=torch.uint8)
    stored = torch.full((17, 128 // layout.group_columns), 255, dtype=torch.uint8)
    if layout.scale_bytes == 2:
        stored = stored.half()
    whole_codes, whole_stored = layout(32, 256).unpack(layout(17, 128).pack_stored(codes, stored))
    assert int(whole_codes.count_nonzero()) == codes.numel()
    assert int(whole_stored.count_nonzero()) == stored.numel()


@EACH_LAYOUT
def test_meta_tensors_become_resident(layout: type[Fp4Block]) -> None:
    codes = torch.empty((96, 128), dtype=torch.uint8, device="meta")
    scales = torch.empty((96, 256 // layout.group_columns), dtype=torch.uint8, device="meta")
    packed, factors = layout(96, 256).resident("layer", codes, scales, torch.empty(96, device="meta"))
    assert packed.device.type == factors.device.type == "meta"
    assert packed.shape == layout(96, 256).storage_shape
    assert (factors.shape, factors.dtype) == ((96,), torch.float32)


@EACH_LAYOUT
def test_a_resident_weight_leaves_its_sources_alone(rng: np.random.Generator, layout: type[Fp4Block]) -> None:
    codes = torch.from_numpy(rng.integers(0, 256, (48, 128), dtype=np.uint8))
    scales = torch.from_numpy(rng.integers(110, 120, (48, 256 // layout.group_columns), dtype=np.uint8))
    sources = (codes, scales, torch.rand(48) + 0.5)
    before = [item.clone() for item in sources]
    strided = codes.t().contiguous().t()
    packed, factors = layout(48, 256).resident("layer", *sources)
    again, _ = layout(48, 256).resident("layer", strided, *sources[1:])
    assert torch.equal(packed, again)
    assert all(torch.equal(a, b) for a, b in zip(sources, before, strict=True))
    owned = {item.untyped_storage().data_ptr() for item in sources}
    assert owned.isdisjoint({packed.untyped_storage().data_ptr(), factors.untyped_storage().data_ptr()})


def test_widened_scales_are_the_e4m3_numbers() -> None:
    scales = torch.tensor([*range(0x7F), 0x80], dtype=torch.uint8)[:, None].expand(-1, 2)
    layout = Nvfp4HalfBlock(128, 32)
    _, stored = layout.unpack(layout.pack(torch.zeros((128, 16), dtype=torch.uint8), scales))
    assert np.array_equal(layout.group_factors(stored).double().numpy(), e4m3(scales.numpy()))
    assert not bool(torch.signbit(stored).any())


@pytest.mark.parametrize("spread", [0, 6, 24])
def test_mxfp4_keeps_the_value_of_every_weight(rng: np.random.Generator, spread: int) -> None:
    checkpoint = random_mx(rng, 300, 608, spread=spread)
    layout, packed, factors = _mx(checkpoint)
    _, stored = layout.unpack(packed)
    held = layout.group_factors(stored).double().numpy() * factors.double().numpy()[:, None]
    live = (checkpoint.codes & 0x77).reshape(300, -1, 16).any(axis=-1)
    assert np.array_equal(held[live], e8m0(checkpoint.scales)[live])
    assert int(stored.max()) <= 30
    assert int(stored[torch.from_numpy(live)].min()) >= 6


@pytest.mark.parametrize("byte", [0, 1, 24, 100, 127, 253, 254])
def test_mxfp4_holds_every_scale_in_a_row_of_its_own(byte: int) -> None:
    codes = np.full((2, 16), 0x21, np.uint8)
    checkpoint = MxCheckpoint(codes, np.full((2, 1), byte, np.uint8), np.ones(2, np.float32))
    layout, packed, factors = _mx(checkpoint)
    assert layout.group_factors(layout.unpack(packed)[1]).flatten().tolist() == [1.0, 1.0]
    assert factors.double().tolist() == [2.0 ** (byte - 127)] * 2


def test_mxfp4_takes_24_octaves_and_no_more() -> None:
    checkpoint = every_code_and_exponent()
    _mx(checkpoint)
    checkpoint.scales[7, 0] = 124 - 25
    with pytest.raises(WeightError) as caught:
        _mx(checkpoint)
    assert str(caught.value) == (
        "model.layers.0.mlp.down_proj: MXFP4 scales from 2^-28 to 2^-3 in output row 7. Allowed: 24 octaves "
        "between the scales of a row, not counting groups whose codes are all zero: more is not exact in "
        "FP16. Quantize the layer again with groups below 2^-27 of this row set to zero, or leave the layer "
        "unquantized."
    )
    checkpoint.codes[7, :16] = 0x08  # zero and minus zero
    _mx(checkpoint)


def test_mxfp4_finds_a_wide_row_behind_many_others() -> None:
    checkpoint = MxCheckpoint(
        np.full((1000, 32), 0x11, np.uint8), np.full((1000, 2), 120, np.uint8), np.ones(1000, np.float32)
    )
    checkpoint.scales[700, 1] = 10
    with pytest.raises(WeightError, match="in output row 700"):
        _mx(checkpoint)


@pytest.mark.parametrize(("byte", "factor"), [(254, 4.0), (0, 2.0**-30)])
def test_mxfp4_refuses_a_factor_beyond_float32(byte: int, factor: float) -> None:
    codes = np.full((3, 16), 0x11, np.uint8)
    scales = np.array([[127], [byte], [127]], np.uint8)
    with pytest.raises(WeightError, match=r"down_proj: global scale .* in output row 1"):
        _mx(MxCheckpoint(codes, scales, np.array([1, factor, 1], np.float32)))


@EACH_LAYOUT
def test_the_pages_are_generated_from_the_packers(layout: type[Fp4Block]) -> None:
    page = REPOSITORY / "docs" / "layouts" / f"{layout.name}.md"
    assert page.read_text(encoding="utf-8") == render(layout), (
        f"run: python -m sm70_kernels_cuda.layouts {layout.name} > {page.relative_to(REPOSITORY)}"
    )


def test_kernels_and_packers_agree_on_the_layout_abi() -> None:
    assert identifier(PACKAGE) == f"sm70_kernels_layout_abi_{LAYOUT_ABI}".encode()
    assert binary.layout_abi() == LAYOUT_ABI


@pytest.mark.parametrize("image", [b"no number here", b"\0sm70_kernels_layout_abi_999\0"])
def test_a_binary_for_other_layouts_is_not_loaded(monkeypatch: pytest.MonkeyPatch, image: bytes) -> None:
    found = binary.layout_abi_of(image)
    monkeypatch.setattr(binary, "layout_abi", lambda: found)
    with pytest.raises(DriverError, match=f"for layout ABI {LAYOUT_ABI}; the installed has {found}"):
        binary.module.__wrapped__()
