"""The machine code of the general kernel for 7.0 and 7.5, and for 8.0 and 9.0 beside them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import sass
from build_support.fatbin import include_folders
from build_support.nvrtc import compile_source
from emulated_kernels import PACKAGE
from sm70_kernels_cuda.launch import AMPERE_ATOM, TURING_ATOM, VOLTA_ATOM, Atom, atom_of
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant, warp_shape

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURES = ("70", "75", "80", "90")
EACH_VARIANT = pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)

# By atom and token tiles. Two blocks on a multiprocessor can have 128 registers a thread, one can have 255.
REGISTER_BUDGET = {
    (VOLTA_ATOM.name, 1): 128,
    (VOLTA_ATOM.name, 2): 176,
    (VOLTA_ATOM.name, 3): 208,
    (VOLTA_ATOM.name, 4): 232,
    (VOLTA_ATOM.name, 6): 255,
    (VOLTA_ATOM.name, 8): 255,
    (TURING_ATOM.name, 1): 96,
    (TURING_ATOM.name, 2): 128,
    (TURING_ATOM.name, 3): 152,
    (TURING_ATOM.name, 4): 176,
    (TURING_ATOM.name, 6): 208,
    (TURING_ATOM.name, 8): 255,
    (AMPERE_ATOM.name, 1): 88,
    (AMPERE_ATOM.name, 2): 104,
    (AMPERE_ATOM.name, 3): 120,
    (AMPERE_ATOM.name, 4): 128,
    (AMPERE_ATOM.name, 6): 160,
    (AMPERE_ATOM.name, 8): 208,
}


@dataclass(frozen=True)
class MachineCode:
    """The kernels of one architecture."""

    architecture: str
    resources: dict[str, sass.Resources]
    instructions: dict[str, Counter[str]]
    listing: dict[str, list[str]]

    @property
    def atom(self) -> Atom:
        return atom_of(int(self.architecture))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MachineCode:
    folder: Path = tmp_path_factory.mktemp("cubin")
    source, cubin = folder / "general.cu", folder / "general.cubin"
    source.write_text('#include "general_nvfp4.cuh"\n', encoding="utf-8")
    cubin.write_bytes(compile_source(source, f"sm_{request.param}", include_folders(PACKAGE)))
    return MachineCode(request.param, sass.resources(cubin), sass.instructions(cubin), sass.listing(cubin))


def test_the_table_holds_exactly_the_compiled_kernels(code: MachineCode) -> None:
    compiled = {name for name in code.resources if name.startswith("general_")}
    assert compiled == {variant.kernel for variant in GENERAL_VARIANTS}


@EACH_VARIANT
def test_nothing_is_spilled(code: MachineCode, variant: GeneralVariant) -> None:
    used = code.resources[variant.kernel]
    assert (used.stack, used.local) == (0, 0)
    assert not any(op.startswith(("STL", "LDL")) for op in code.instructions[variant.kernel])


@EACH_VARIANT
def test_registers_leave_room_for_the_blocks_that_the_launch_counts_on(
    code: MachineCode, variant: GeneralVariant
) -> None:
    used = code.resources[variant.kernel].registers
    assert used <= REGISTER_BUDGET[code.atom.name, variant.token_tiles]
    granted = -(-used // 8) * 8  # registers come in eights
    assert granted * variant.threads * variant.resident_blocks(code.atom) <= 65536


@EACH_VARIANT
def test_tensor_cores_do_the_products(code: MachineCode, variant: GeneralVariant) -> None:
    counts = code.instructions[variant.kernel]
    if code.atom is VOLTA_ATOM:
        steps = [counts[f"HMMA.884.F32.F32.STEP{step}"] for step in range(4)]
        # A chunk has 4 groups of 4 words; each word feeds two products for each token tile.
        slabs = sass.unrolled_slabs(code.atom, variant)
        assert min(steps) == max(steps) == slabs * 32 * variant.token_tiles
    elif code.atom is TURING_ATOM:
        # As from 8.0 on, in two halves.
        assert counts["HMMA.1688.F32"] == sass.unrolled_slabs(code.atom, variant) * 16 * variant.token_tiles
        assert {op for op in counts if op.startswith("HMMA")} == {"HMMA.1688.F32"}
    else:
        # A chunk has 4 words in each of two row tiles; each word feeds one product for each token tile.
        assert counts["HMMA.16816.F32"] == 8 * variant.token_tiles
    # An emulated m8n8k4 is a routine of 12 SHFL and 32 FFMA.
    assert counts["FFMA"] < 32, "a product was emulated"
    assert not any(op.startswith("SHFL") for op in counts), "a product was emulated"


@EACH_VARIANT
def test_a_fragment_of_x_is_one_wide_load_from_shared_memory(
    code: MachineCode, variant: GeneralVariant
) -> None:
    wide = sum(count for op, count in code.instructions[variant.kernel].items() if op.startswith("LDS.U.128"))
    wide += sum(count for op, count in code.instructions[variant.kernel].items() if op.startswith("LDS.128"))
    # For each token tile: two halves of a group, and with m8n8k4 four groups.
    groups = 8 if code.atom is VOLTA_ATOM else 2
    assert wide == sass.unrolled_slabs(code.atom, variant) * variant.token_tiles * groups


@EACH_VARIANT
def test_x_arrives_without_registers_from_8_0_on(code: MachineCode, variant: GeneralVariant) -> None:
    counts = code.instructions[variant.kernel]
    pieces = 2 * variant.token_tiles // variant.warps_n  # of 16 bytes that a thread copies in each slab
    asynchronous = sum(count for op, count in counts.items() if op.startswith("LDGSTS."))
    through_registers = sum(count for op, count in counts.items() if op.startswith("LDG.E.128"))
    copies = asynchronous if code.atom is AMPERE_ATOM else through_registers
    slabs = 1 + sass.unrolled_slabs(code.atom, variant)  # before the loop and in it
    assert asynchronous + through_registers == copies == slabs * pieces


@EACH_VARIANT
def test_no_load_crosses_a_barrier(code: MachineCode, variant: GeneralVariant) -> None:
    """With two sets of atoms: a load that moved up over the barrier would be waited for with x at once."""
    if sass.unrolled_slabs(code.atom, variant) == 1:
        return
    kinds = {"LDG.E.NA.128": "weight", "LDG.E.128": "x", "STS.128": "store", "BAR.": "barrier"}
    order = [
        kind for op in code.listing[variant.kernel] for start, kind in kinds.items() if op.startswith(start)
    ]
    barriers = [i for i, kind in enumerate(order) if kind == "barrier"]
    pieces, weights = 2 * variant.token_tiles // variant.warps_n, warp_shape(code.atom).rows // 16
    for first, last in pairwise(barriers[:3]):  # the loop's two slabs, after the barrier before the loop
        slab = Counter(order[first + 1 : last])
        assert slab == {"weight": weights, "x": pieces, "store": pieces}
