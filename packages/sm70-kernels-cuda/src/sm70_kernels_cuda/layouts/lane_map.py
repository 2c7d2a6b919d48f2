"""Documentation of the layouts, derived by packing probes: what a page says is what the packer does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.fp4_block import BLOCK_COLUMNS, BLOCK_ROWS, CODE_BYTES, Fp4Block
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.layouts.nvfp4_half_block import Nvfp4HalfBlock

if TYPE_CHECKING:
    from torch import Tensor

_CODES = BLOCK_ROWS * BLOCK_COLUMNS
_CODE_BITS = 8 * CODE_BYTES

LAYOUTS: dict[str, type[Fp4Block]] = {
    layout.name: layout for layout in (Nvfp4Block, Mxfp4Block, Nvfp4HalfBlock)
}
"""All layouts by name."""

_SCALES = {
    Nvfp4Block.name: "E4M3 scales of one byte for 16 columns",
    Mxfp4Block.name: "scales of one byte b for 32 columns: 2^(b - 30), times the row factor",
    Nvfp4HalfBlock.name: "scales of two bytes for 16 columns, the checkpoint's E4M3 scale times 2^7 as FP16",
}


def code_of_bit() -> list[tuple[int, int, str]]:
    """For each bit of a block's codes: row, column, and `s` for a sign or `m0` to `m2` for a magnitude."""
    owners: list[tuple[int, int, str]] = []
    planes = {name: _owner_plane(1 << bit) for bit, name in enumerate(("m0", "m1", "m2", "s"))}
    for bit in range(_CODE_BITS):
        name, code = next((name, plane[bit]) for name, plane in planes.items() if plane[bit] >= 0)
        owners.append((code // BLOCK_COLUMNS, code % BLOCK_COLUMNS, name))
    return owners


def _owner_plane(pattern: int) -> list[int]:
    """Index of the code whose bit `pattern` lands on each bit of the block; -1 where none does."""
    used = _packed_bits([pattern] * _CODES)
    owner = [0 if bit else -1 for bit in used]
    for power in range(_CODES.bit_length() - 1):
        plane = _packed_bits([pattern if code >> power & 1 else 0 for code in range(_CODES)])
        for position, bit in enumerate(plane):
            owner[position] += bit << power
    return owner


def _packed_bits(codes: list[int]) -> list[int]:
    import torch

    nibbles = torch.tensor(codes, dtype=torch.uint8).view(BLOCK_ROWS, BLOCK_COLUMNS)
    packed = _pack(nibbles[:, 0::2] | (nibbles[:, 1::2] << 4))
    return [byte >> bit & 1 for byte in packed for bit in range(8)]


def _pack(codes: Tensor) -> list[int]:
    import torch

    scales = torch.zeros((BLOCK_ROWS, BLOCK_COLUMNS // 16), dtype=torch.uint8)
    block = Nvfp4Block(BLOCK_ROWS, BLOCK_COLUMNS).pack(codes, scales)[0, 0, :CODE_BYTES]
    return [int(byte) for byte in block]


def scale_of_byte(layout: type[Fp4Block]) -> list[tuple[int, int]]:
    """For each stored scale of a block: row and first column of its group."""
    import torch

    groups = BLOCK_COLUMNS // layout.group_columns
    dtype = torch.uint8 if layout.scale_bytes == 1 else torch.int16
    numbers = torch.arange(BLOCK_ROWS * groups).to(dtype).view(BLOCK_ROWS, groups)
    codes = torch.zeros((BLOCK_ROWS, BLOCK_COLUMNS // 2), dtype=torch.uint8)
    packed = layout(BLOCK_ROWS, BLOCK_COLUMNS).pack_stored(codes, numbers)[0, 0, CODE_BYTES:].clone()
    places = (divmod(int(number), groups) for number in packed.view(dtype))
    return [(row, group * layout.group_columns) for row, group in places]


def render(layout: type[Fp4Block]) -> str:
    """The page docs/layouts/<name of the layout>.md."""
    owners = code_of_bit()
    return "\n".join(
        [
            f"# Layout `{layout.name}`",
            "",
            f"Made from the packer by `python -m sm70_kernels_cuda.layouts {layout.name}`; a test compares.",
            "",
            f"A block holds {BLOCK_ROWS} rows (output features) by {BLOCK_COLUMNS} columns (input features)",
            f"in {layout.block_bytes()} bytes: {CODE_BYTES} bytes of codes in 128 atoms of 16 bytes, then",
            f"{_SCALES[layout.name]}. A weight is",
            "a row-major array of blocks, padded with zeros to whole blocks and an even number of row tiles.",
            "",
            "## Atoms: rows and columns by byte offset",
            "",
            *_atom_table(owners),
            "",
            "## The first word of the first atom: 32 bits, highest first",
            "",
            "`s` is a code's sign, `m2` to `m0` its magnitude; `r` and `c` are its row and column.",
            "",
            "```text",
            *_word_lines(owners),
            "```",
            "",
            "## Scales: (row, first column) of eight in a row",
            "",
            *_scale_table(layout),
            "",
            "## Who reads what",
            "",
            *_reader_table(),
            "",
        ]
    )


def _atom_table(owners: list[tuple[int, int, str]]) -> list[str]:
    lines = ["| bytes | rows | columns |", "|---|---|---|"]
    for atom in (*range(10), 31, 32, 127):
        bits = owners[atom * 128 : (atom + 1) * 128]
        rows = sorted({row for row, _, _ in bits})
        columns = sorted({column for _, column, _ in bits})
        row_text = " and ".join(map(str, rows))
        lines.append(f"| {16 * atom} to {16 * atom + 15} | {row_text} | {columns[0]} to {columns[-1]} |")
    return lines


def _word_lines(owners: list[tuple[int, int, str]]) -> list[str]:
    lines = []
    for byte in (3, 2, 1, 0):
        cells = [owners[8 * byte + bit] for bit in range(7, -1, -1)]
        text = "  ".join(f"{name:>2} r{row} c{column}" for row, column, name in cells)
        lines.append(f"byte {byte} | {text}")
    return lines


def _scale_table(layout: type[Fp4Block]) -> list[str]:
    scales = scale_of_byte(layout)
    lines = ["| byte of the block | scales |", "|---|---|"]
    for group in (0, 1, 7, 8, len(scales) // 8 - 1):
        cells = ", ".join(map(str, scales[8 * group : 8 * group + 8]))
        lines.append(f"| {CODE_BYTES + 8 * layout.scale_bytes * group} | {cells} |")
    return lines


def _reader_table() -> list[str]:
    return [
        "Lane L of a warp reads whole atoms. With g and t as in the offset `512 c + 128 t + 16 g`:",
        "",
        "| instruction | row tile | g | t | of one warp's 16-byte load |",
        "|---|---|---|---|---|",
        "| `mma.m8n8k4` | (L >> 2) & 3 | (L & 3) + 4 (L >> 4) | one for the warp | 64 rows x 16 columns |",
        "| `mma.m16n8k8` and `m16n8k16` | one for the warp | L >> 2 | L & 3 | 16 rows x 64 columns |",
        "| decoder to dense | one for the block | L & 7 | L >> 3 | 16 rows x 64 columns |",
    ]
