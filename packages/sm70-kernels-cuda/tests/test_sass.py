"""The machine code for 7.0 and 7.5, and for 8.0 and 9.0 beside them: tensor cores used, nothing spilled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import sass
from build_support.fatbin import include_folders
from build_support.nvrtc import compile_source
from emulated_kernels import PACKAGE
from sm70_kernels_cuda.kernel_set import KERNEL_SETS, NVFP4_HALF_KERNELS
from sm70_kernels_cuda.launch import TURING_ATOM, VOLTA_ATOM, Variant, atom_of
from sm70_kernels_cuda.launch_cluster import CLUSTER_VARIANTS

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

ARCHITECTURES = ("70", "75", "80", "90")
EACH_VARIANT = pytest.mark.parametrize(
    "variant", [item for kernels in KERNEL_SETS for item in kernels.strip], ids=lambda variant: variant.kernel
)

# A block of 16 warps can have 128 registers a thread, one of 8 warps 255; below that, what leaves room for
# two blocks of 8 warps on a multiprocessor (128), and for M <= 8 for three of them from 7.5 on (80).
REGISTER_BUDGET = {
    ("70", 1): 96,
    ("75", 1): 80,
    ("70", 2): 112,
    ("75", 2): 96,
    ("70", 4): 168,
    ("75", 4): 128,
    ("80", 1): 80,
    ("90", 1): 80,
    ("80", 2): 96,
    ("90", 2): 96,
    ("80", 4): 112,
    ("90", 4): 112,
}
SHARED_BUDGET = 48 * 1024


@dataclass(frozen=True)
class MachineCode:
    """The kernels of one architecture."""

    architecture: str
    resources: dict[str, sass.Resources]
    instructions: dict[str, Counter[str]]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MachineCode:
    cubin: Path = tmp_path_factory.mktemp("cubin") / f"sm_{request.param}.cubin"
    source = PACKAGE / "csrc" / "sm70_kernels.cu"
    cubin.write_bytes(compile_source(source, f"sm_{request.param}", include_folders(PACKAGE)))
    return MachineCode(request.param, sass.resources(cubin), sass.instructions(cubin))


def test_the_binary_holds_exactly_the_kernels_that_are_launched(code: MachineCode) -> None:
    atom = atom_of(int(code.architecture))
    wanted = {name for kernels in KERNEL_SETS for name in kernels.kernels(atom)}
    if code.architecture >= "90":
        wanted |= {item.kernel for item in CLUSTER_VARIANTS}
    assert set(code.resources) == wanted


def test_the_cluster_kernels_use_tensor_cores_and_fit(code: MachineCode) -> None:
    for variant in CLUSTER_VARIANTS if code.architecture >= "90" else ():
        used = code.resources[variant.kernel].registers
        assert used * variant.warps * 32 * (2 if variant.warps == 8 else 1) <= 65536
        assert code.instructions[variant.kernel]["HMMA.16816.F32"] >= 16 * variant.token_tiles


def test_nothing_is_spilled(code: MachineCode) -> None:
    for name, used in code.resources.items():
        assert (used.stack, used.local) == (0, 0), f"{name} on sm_{code.architecture}: {used}"
        assert not any(op.startswith(("STL", "LDL")) for op in code.instructions[name]), name


def test_every_product_can_end_with_silu_and_none_divides(code: MachineCode) -> None:
    """The exponential is one instruction among few, and FCHK would lead to the subroutine of a division."""
    for name, counts in code.instructions.items():
        if not name.startswith("dequantize"):
            assert counts["MUFU.EX2"] > 0, name
        assert not counts["FCHK"], name


@EACH_VARIANT
def test_registers_and_shared_memory_are_within_budget(code: MachineCode, variant: Variant) -> None:
    used = code.resources[variant.kernel].registers
    assert used <= REGISTER_BUDGET[code.architecture, variant.token_tiles]
    assert used * variant.warps * 32 <= 65536
    assert variant.shared_bytes(atom_of(int(code.architecture))) <= SHARED_BUDGET


@EACH_VARIANT
def test_tensor_cores_do_the_products(code: MachineCode, variant: Variant) -> None:
    counts = code.instructions[variant.kernel]
    atom = atom_of(int(code.architecture))
    if atom is VOLTA_ATOM:
        steps = [counts[f"HMMA.884.F32.F32.STEP{step}"] for step in range(4)]
        # A unit has 4 chunks of 4 words; each word feeds two products for each token tile.
        assert min(steps) == max(steps) >= 32 * variant.token_tiles
    elif atom is TURING_ATOM:
        # Each word feeds two products of 8 columns of K for each token tile.
        assert counts["HMMA.1688.F32"] >= 32 * variant.token_tiles
        assert {op for op in counts if op.startswith("HMMA")} == {"HMMA.1688.F32"}
    else:
        assert counts["HMMA.16816.F32"] >= 16 * variant.token_tiles
    # An emulated m8n8k4 is a routine of 12 SHFL and 32 FFMA; the epilogue alone has an FFMA for each output.
    assert counts["FFMA"] < 32, "a product was emulated"
    assert not any(op.startswith("SHFL") for op in counts), "a product was emulated"


@EACH_VARIANT
def test_a_unit_is_four_wide_loads_and_one_of_scales(code: MachineCode, variant: Variant) -> None:
    counts = code.instructions[variant.kernel]
    streaming = {op: count for op, count in counts.items() if op.startswith("LDG.E.NA.")}
    wide = sum(count for op, count in streaming.items() if ".128." in op)
    scales = sum(count for op, count in streaming.items() if ".64." in op)
    if variant in NVFP4_HALF_KERNELS.strip:  # scales of two bytes: 16 bytes of them as well
        assert wide % 5 == scales == 0 < wide
    else:
        assert wide == 4 * scales > 0
    assert wide + scales == sum(streaming.values()), streaming
    # Activations come 16 bytes at a time as well: two loads for each token tile and chunk.
    activations = sum(count for op, count in counts.items() if op.startswith("LDG.E.128"))
    assert activations == 8 * variant.token_tiles
