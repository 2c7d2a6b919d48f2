"""Documentation of a layout, derived by packing probes: what the page says is what the packer does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda.layouts.nvfp4_block import BLOCK_COLUMNS, BLOCK_ROWS, Nvfp4Block

if TYPE_CHECKING:
    from torch import Tensor

_CODES = BLOCK_ROWS * BLOCK_COLUMNS
_CODE_BITS = 8 * 2048


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
    block = Nvfp4Block(BLOCK_ROWS, BLOCK_COLUMNS).pack(codes, scales)[0, 0, :2048]
    return [int(byte) for byte in block]


def scale_of_byte() -> list[tuple[int, int]]:
    """For each of the 256 scale bytes of a block: row and group of 16 columns."""
    import torch

    groups = BLOCK_COLUMNS // 16
    numbers = torch.arange(BLOCK_ROWS * groups, dtype=torch.uint8).view(BLOCK_ROWS, groups)
    codes = torch.zeros((BLOCK_ROWS, BLOCK_COLUMNS // 2), dtype=torch.uint8)
    packed = Nvfp4Block(BLOCK_ROWS, BLOCK_COLUMNS).pack(codes, numbers)[0, 0, 2048:]
    return [divmod(int(number), groups) for number in packed]


def render() -> str:
    """The page docs/layouts/nvfp4_block.md."""
    owners = code_of_bit()
    return "\n".join(
        [
            "# Layout `nvfp4_block`",
            "",
            "Generated from the packer by `python -m sm70_kernels_cuda.layouts`; a test compares the two.",
            "",
            f"A block holds {BLOCK_ROWS} rows (output features) by {BLOCK_COLUMNS} columns (input features)",
            "in 2304 bytes: 2048 bytes of codes in 128 atoms of 16 bytes, then 256 scale bytes. A weight is",
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
            "## Scales: (row, first column) of the bytes of each 8-byte group",
            "",
            *_scale_table(scale_of_byte()),
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


def _scale_table(scales: list[tuple[int, int]]) -> list[str]:
    lines = ["| byte of the block | bytes 0 to 7 |", "|---|---|"]
    for group in (0, 1, 7, 8, 31):
        cells = ", ".join(f"({row}, {16 * column})" for row, column in scales[8 * group : 8 * group + 8])
        lines.append(f"| {2048 + 8 * group} | {cells} |")
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
