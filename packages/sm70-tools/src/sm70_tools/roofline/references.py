"""QPN2 and QPN of v100-skinny in the model's terms, and their public figures, which it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from sm70_tools.roofline.kernel import NVFP4_BYTES, PACKED_ROWS, QUADPAIR_ROWS, STEP_FMAS, Kernel

TRUNK = ((5120, 1536), (5120, 4352), (8704, 5120), (4096, 5120), (2048, 5120))
"""Shapes N x K whose bytes and times the authors sum up as `trunk`."""

LM_HEAD = ((62080, 5120),)

_WARPS = {(8704, 5120): 8, (2048, 5120): 32}
_DEFAULT_WARPS = 16
_UNITS_IN_FLIGHT = 2


@dataclass(frozen=True)
class PublicFigure:
    """A published bandwidth.

    Attributes:
        card: Key of the card.
        kernel: `QPN2`, `QPN2 packed` or `QPN`.
        title: What it is the bandwidth of.
        shapes: N x K of the launches; the bandwidth is the sum of bytes by the sum of times.
        m: Rows of x.
        gb_s: The published bandwidth, in 10^9 bytes a second.
        fitted: Whether constants of the model were fitted to it.
    """

    card: str
    kernel: str
    title: str
    shapes: tuple[tuple[int, int], ...]
    m: int
    gb_s: float
    fitted: bool


def _rtx8000() -> tuple[PublicFigure, ...]:
    figures: list[PublicFigure] = []
    for shape, one, eight, packed in (
        ((5120, 1536), 346, 266, 322),
        ((5120, 4352), 436, 315, 399),
        ((2048, 5120), 492, 330, 444),
        ((4096, 5120), 567, 371, 543),
        ((8704, 5120), 609, 406, 590),
        ((62080, 5120), 597, 444, 576),
    ):
        title = f"{shape[0]}x{shape[1]}"
        figures += [
            PublicFigure("rtx8000", "QPN2", title, (shape,), 1, one, fitted=True),
            PublicFigure("rtx8000", "QPN2", title, (shape,), 8, eight, fitted=True),
            PublicFigure("rtx8000", "QPN2 packed", title, (shape,), 8, packed, fitted=False),
        ]
    return tuple(figures)


def _qpn_by_shape() -> tuple[PublicFigure, ...]:
    rows = zip(TRUNK, (370, 488, 646, 382, 265), strict=True)
    return tuple(
        PublicFigure("v100", "QPN", f"{n}x{k}", ((n, k),), 8, gb_s, fitted=False) for (n, k), gb_s in rows
    )


# kernel_matched_20260819.csv, qpn2_pack_20260909.csv and qpn_race_20260810.csv of v100-skinny (MIT licence).
PUBLIC_FIGURES: tuple[PublicFigure, ...] = (
    PublicFigure("v100", "QPN2", "trunk", TRUNK, 1, 679.5, fitted=True),
    PublicFigure("v100", "QPN2", "trunk", TRUNK, 8, 619.8, fitted=True),
    PublicFigure("v100", "QPN", "trunk", TRUNK, 16, 301.9, fitted=True),
    PublicFigure("v100", "QPN2", "lm_head", LM_HEAD, 1, 842.9, fitted=True),
    PublicFigure("v100", "QPN2", "lm_head", LM_HEAD, 8, 777.8, fitted=True),
    PublicFigure("v100", "QPN", "lm_head", LM_HEAD, 16, 457.8, fitted=True),
    *_rtx8000(),
    *_qpn_by_shape(),
)


def qpn_kernel(name: str, m: int, n: int, k: int) -> Kernel:
    """QPN2 or QPN in the model's terms.

    Its authors publish the tile (32 columns), the lane map, the registers (56) and the warps; a unit
    of 32 columns x 16 of K takes 16 HMMA for each tile of 8 rows. Counts of other instructions are those of
    this project's decoder, and two units in flight a warp are assumed, as QPN2 has two accumulator chains.
    With one for QPN the figures that serve for fitting would be met within 6 %, the others within 31 % only.
    """
    tiles = -(-m // 8)
    warps = 4 if name == "QPN" else _WARPS.get((n, k), _DEFAULT_WARPS)
    depth = _UNITS_IN_FLIGHT
    serial = depth * (63.0 + 40.0 * (tiles - 1))
    return Kernel(
        name=name,
        strip=32,
        warps=warps,
        warps_k=warps,
        token_tiles=tiles,
        registers=56,
        shared_bytes=warps * 8 * 32 * 4,
        k_of_unit=16 * depth,
        k_padding=16 * depth,
        instructions=depth * (47.0 + 24.0 * (tiles - 1)),
        tensor=depth * 16.0 * tiles,
        hmma_fmas=STEP_FMAS,
        half=depth * 8.5,
        integer=depth * 13.4,
        multiply=depth * 7.2,
        x_loads=2 * depth,
        quarters=PACKED_ROWS if name == "QPN2 packed" else QUADPAIR_ROWS,
        shared_wavefronts=0,
        weight_lines=depth * 32 * 16 * NVFP4_BYTES / 128,
        cover_cycles=serial,
        serial_points=((0.0, serial), (100.0, serial + 100.0)),
    )
