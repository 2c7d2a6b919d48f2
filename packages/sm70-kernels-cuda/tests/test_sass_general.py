"""The machine code of the general kernel for 7.0 and 7.5, and for 8.0 and 9.0 beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import sass
from build_support.fatbin import include_folders
from build_support.nvrtc import compile_source
from emulated_kernels import PACKAGE
from sm70_kernels_cuda.kernel_set import KERNEL_SETS
from sm70_kernels_cuda.launch import AMPERE_ATOM, VOLTA_ATOM, Atom

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from sm70_kernels_cuda.launch_general import GeneralVariant

ARCHITECTURES = ("70", "75", "80", "90")
CASES = [
    (architecture, variant)
    for architecture in ARCHITECTURES
    for kernels in KERNEL_SETS
    for variant in kernels.general_for(VOLTA_ATOM if architecture < "80" else AMPERE_ATOM)
]
EACH_VARIANT = pytest.mark.parametrize(
    ("code", "variant"),
    CASES,
    ids=[f"{architecture}-{variant.kernel}" for architecture, variant in CASES],
    indirect=["code"],
)

# By atom and token tiles. Two blocks on a multiprocessor can have 128 registers a thread, one can have 255.
REGISTER_BUDGET = {
    (VOLTA_ATOM.name, 1): 128,
    (VOLTA_ATOM.name, 2): 160,
    (VOLTA_ATOM.name, 4): 192,
    (VOLTA_ATOM.name, 6): 232,
    (VOLTA_ATOM.name, 8): 255,
    (AMPERE_ATOM.name, 1): 88,
    (AMPERE_ATOM.name, 2): 104,
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

    @property
    def atom(self) -> Atom:
        return VOLTA_ATOM if self.architecture < "80" else AMPERE_ATOM


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MachineCode]:
    @functools.cache
    def of(architecture: str) -> MachineCode:
        folder: Path = tmp_path_factory.mktemp("cubin")
        source, cubin = folder / "general.cu", folder / "general.cubin"
        source.write_text('#include "general_nvfp4.cuh"\n', encoding="utf-8")
        cubin.write_bytes(compile_source(source, f"sm_{architecture}", include_folders(PACKAGE)))
        return MachineCode(architecture, sass.resources(cubin), sass.instructions(cubin))

    return of


@pytest.fixture
def code(request: pytest.FixtureRequest, compiled: Callable[[str], MachineCode]) -> MachineCode:
    return compiled(request.param)


@pytest.mark.parametrize("code", ARCHITECTURES, indirect=True)
def test_the_table_holds_exactly_the_compiled_kernels(code: MachineCode) -> None:
    found = {name for name in code.resources if name.startswith("general_")}
    wanted = {item.kernel for kernels in KERNEL_SETS for item in kernels.general_for(code.atom)}
    assert found == wanted


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
        assert min(steps) == max(steps) == 32 * variant.token_tiles
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
    # For each token tile: two halves of a group, and on 7.x four groups.
    assert wide == variant.token_tiles * (8 if code.atom is VOLTA_ATOM else 2)


@EACH_VARIANT
def test_x_arrives_without_registers_from_8_0_on(code: MachineCode, variant: GeneralVariant) -> None:
    counts = code.instructions[variant.kernel]
    pieces = variant.token_tiles * variant.warps_k // 4  # of 16 bytes that a thread copies in each slab
    asynchronous = sum(count for op, count in counts.items() if op.startswith("LDGSTS."))
    through_registers = sum(count for op, count in counts.items() if op.startswith("LDG.E.128"))
    copies = through_registers if code.atom is VOLTA_ATOM else asynchronous
    assert asynchronous + through_registers == copies == 2 * pieces  # before the loop and in it
