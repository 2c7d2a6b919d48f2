"""The table of hot loops: what the sources give, and how a loop is found and timed in a listing."""

from __future__ import annotations

import pytest

import sass
from build_support.disassembly import Instruction, parse
from build_support.libraries import BuildError
from build_support.loop_profile import ARCHITECTURES, hot_loop, profile_all, profile_kernel
from sm70_kernels_cuda.launch import VARIANTS, VOLTA_ATOM, atom_of
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant, warp_shape
from sm70_kernels_cuda.profile.loops import REPLAY_LATENCIES, TABLE, from_text, load, to_text

# An HMMA step of 7.0 makes a quarter of four 8 x 8 x 4 products, one of 7.5 a product of 16 x 8 x 8, and
# one of 9.0 of 16 x 8 x 16.
PRODUCTS = {"70": 256, "75": 1024, "90": 2048}
LOADS = (
    *[Instruction("LDG.E.NA.128.CONSTANT.SYS R8, [R4]", stall=4, sets=4)] * 4,
    Instruction("LDG.E.NA.64.CONSTANT.SYS R6, [R6]", stall=4, sets=4),
)
WEIGHT = Instruction("IMAD.MOV.U32 R40, RZ, RZ, R8", stall=2, waits=frozenset({4}))
X = Instruction("LDG.E.128.SYS R20, [R62]", stall=1, sets=2)
PRODUCT = Instruction("HMMA.884.F32.F32.STEP0 R56, R20.ROW, R44.COL, R56", stall=8, waits=frozenset({2}))


def loop_of(*body: Instruction) -> list[Instruction]:
    """A kernel: one instruction, the loop, one instruction."""
    back = Instruction("BRA `(.L_x_1)", stall=5, target=1)
    return [Instruction("S2R R0, SR_TID.X"), *body, back, Instruction("EXIT")]


def test_the_table_is_what_the_sources_give(tmp_path_factory: pytest.TempPathFactory) -> None:
    text = to_text(profile_all(tmp_path_factory.mktemp("cubin")))
    message = "stale: run python -m build_support.loop_profile in packages/sm70-kernels-cuda"
    assert text == TABLE.read_text(encoding="utf-8"), message


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kernel)
def test_a_loop_does_the_work_of_one_unit(architecture: str, variant: object) -> None:
    assert isinstance(variant, type(VARIANTS[0]))
    loop = load()[architecture][variant.kernel]
    # 64 columns x 16 of K, or 16 x 64 by 4 chunks: 4096 codes and 256 scales, for each tile of 8 rows.
    assert loop.unit_bytes == 4096 // 2 + 256
    assert loop.tensor * PRODUCTS[architecture] == 4096 * 8 * variant.token_tiles
    assert loop.activation_loads == 8 * variant.token_tiles
    counted = (loop.tensor, loop.half, loop.integer, loop.multiply, loop.activation_loads, loop.shared)
    assert sum(counted) + loop.weight_loads + loop.scale_loads + loop.other == loop.instructions
    assert list(loop.serial_cycles) == sorted(loop.serial_cycles)
    assert loop.instructions <= loop.serial_cycles[0]
    assert 0 < loop.cover_cycles < loop.serial_cycles[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", GENERAL_VARIANTS, ids=lambda variant: variant.kernel)
def test_a_loop_does_the_work_of_its_slabs(architecture: str, variant: GeneralVariant) -> None:
    loop, atom = load()[architecture][variant.kernel], atom_of(int(architecture))
    rows = warp_shape(atom).rows
    assert loop.slabs == sass.unrolled_slabs(atom, variant)
    # 64 columns of K of the warp's rows, for each tile of 8 rows of x.
    assert loop.tensor * PRODUCTS[architecture] == loop.slabs * rows * 64 * 8 * variant.token_tiles
    assert loop.weight_loads == loop.slabs * rows // 16
    copies = 2 * variant.token_tiles // variant.warps_n
    assert loop.activation_loads == loop.slabs * copies
    # A copy of 16 bytes a lane is four passes, and so is a read: two for each of a lane's groups and tile.
    reads = 2 * variant.token_tiles * atom.units_per_block
    passes = 4 * loop.slabs * (copies + reads)
    assert passes <= loop.shared_wavefronts <= passes + 4  # and a few of LDS RZ, which waits
    if loop.slabs == 2:
        assert loop.cover_cycles > (0.85 if atom is VOLTA_ATOM else 0.7) * loop.serial_cycles[0] / 2


def test_reading_gives_what_was_written() -> None:
    assert from_text(to_text(load())) == load()


def test_the_duration_is_linear_between_replays_and_beyond() -> None:
    loop = load()["70"]["qpn2_nvfp4_t1_w8"]
    for latency, cycles in zip(REPLAY_LATENCIES, loop.serial_cycles, strict=True):
        assert loop.serial(latency) == cycles
    assert loop.serial(150) == (loop.serial_cycles[2] + loop.serial_cycles[3]) / 2
    assert loop.serial(1200) == 2 * loop.serial_cycles[5] - loop.serial_cycles[4]


def test_a_loop_is_timed_by_its_stalls_and_waits() -> None:
    profile = profile_kernel("k", loop_of(WEIGHT, *LOADS, X, PRODUCT, PRODUCT), 80)
    # Stalls: 2 + 5 * 4 + 1 + 2 * 8 + 5. The load of x issues at 22, and the next instruction waits for it.
    assert profile.serial_cycles[0] == 44
    assert profile.serial_cycles[REPLAY_LATENCIES.index(400)] == 22 + 400 + 16 + 5
    # From the last load (4) over x (1), the products (16) and the branch (5) to the weight's first use.
    assert profile.cover_cycles == 4 + 1 + 16 + 5
    assert (profile.instructions, profile.tensor, profile.multiply, profile.other) == (10, 2, 1, 1)


def test_a_slab_covers_the_time_from_its_loads_to_the_first_wait_for_one_of_them() -> None:
    store = Instruction("STS.128 [R3], R20", stall=2, waits=frozenset({2}))
    # Stalls: 2 + 5 * 4 + 1 + 8 + 2 + 5. The store waits for x, the loop's start for the weight: 1 + 8 + 2 + 5
    # cycles and the last but one load's 4 after the last load of codes, whose latency counts.
    profile = profile_kernel("k", loop_of(WEIGHT, *LOADS, X, PRODUCT, store), 80, loads_of_slab=4)
    assert (profile.slabs, profile.serial_cycles[0], profile.shared_wavefronts) == (1, 38, 4)
    assert profile.cover_cycles == 4 + 4 + 1 + 8 + 2 + 5
    # With one scoreboard for both, the product waits for the weight as well.
    shared = Instruction("LDG.E.128.SYS R20, [R62]", stall=1, sets=4)
    wait = Instruction("HMMA.884.F32.F32.STEP0 R56, R20.ROW, R44.COL, R56", stall=8, waits=frozenset({4}))
    assert profile_kernel("k", loop_of(WEIGHT, *LOADS, shared, wait), 80, loads_of_slab=4).cover_cycles == 9


def test_two_slabs_of_an_iteration_are_counted() -> None:
    body = (WEIGHT, *LOADS, X, PRODUCT, *LOADS, X, PRODUCT)
    assert profile_kernel("k", loop_of(*body), 80, loads_of_slab=4).slabs == 2


def test_asynchronous_copies_end_at_the_wait_for_all() -> None:
    copy = Instruction("LDGSTS.E.BYPASS.128 [R35], [R116.64]", stall=1)
    wait = Instruction("DEPBAR.LE SB0, 0x0", stall=3)
    profile = profile_kernel("k", loop_of(WEIGHT, *LOADS, copy, PRODUCT, wait), 80, loads_of_slab=4)
    assert profile.activation_loads == 1
    # The copy is issued at 22 and has 400 cycles to go; the wait and the branch follow.
    assert profile.serial_cycles[REPLAY_LATENCIES.index(400)] == 22 + 400 + 3 + 5


def test_waiting_for_the_next_weight_at_once_covers_nothing() -> None:
    early = Instruction("MOV R0, R1", waits=frozenset({4}))
    assert profile_kernel("k", loop_of(*LOADS, early, X, PRODUCT), 80).cover_cycles == 4


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ([Instruction("EXIT")], "no HMMA"),
        ([PRODUCT, *LOADS, Instruction("EXIT")], "no backward branch spans all 1 HMMAs"),
        ([PRODUCT, *loop_of(*LOADS, PRODUCT)[1:]], "no backward branch spans all 2 HMMAs"),
    ],
)
def test_a_loop_that_cannot_be_found_is_an_error(instructions: list[Instruction], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        hot_loop("k", instructions)


@pytest.mark.parametrize(
    "body",
    [
        (X, PRODUCT),
        (*LOADS, X, PRODUCT, Instruction("LDG.E.64.SYS R2, [R4]", sets=1)),
        (*LOADS, X, PRODUCT, Instruction("STL [R1], R2")),
    ],
)
def test_a_loop_with_unknown_accesses_is_an_error(body: tuple[Instruction, ...]) -> None:
    with pytest.raises(BuildError, match="the hot loop has"):
        profile_kernel("k", loop_of(*body), 80)


def test_the_innermost_loop_counts() -> None:
    inner = loop_of(*LOADS, PRODUCT)[1:-1]
    outer = Instruction("BRA `(.L_x_0)", target=0)
    assert hot_loop("k", [Instruction("NOP"), *inner, outer]) == inner


def test_control_bits_are_read() -> None:
    # A load that stalls for 1, sets barrier 5 by its result and barrier 2 by its operands, and a branch that
    # stalls for 15 and waits for barriers 0 and 5.
    control = (1 << 41) | (5 << 46) | (2 << 49)
    branch = (15 << 41) | (7 << 46) | (7 << 49) | (0b100001 << 52)
    text = f"""
.text.kernel:
.L_x_7:
        /*0590*/              @!P0 LDG.E.NA.128.CONSTANT R12, desc[UR8][R28.64] ;  /* 0x000000081c0c8981 */
                                                                                    /* 0x{control:016x} */
        /*05a0*/              @!P0 BRA `(.L_x_7) ;  /* 0x000000081c0c8947 */
                                                    /* 0x{branch:016x} */
"""
    load_, back = parse(text)["kernel"]
    assert load_.opcode == "LDG.E.NA.128.CONSTANT"
    assert (load_.stall, load_.sets, load_.waits, load_.target) == (1, 5, frozenset(), None)
    assert (back.stall, back.sets, back.waits, back.target) == (15, None, frozenset({0, 5}), 0)
