"""Which kernels the fat binary holds for each layout. csrc/ has a line for each; a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import TOKEN_TILE, VARIANTS, Variant
from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS, GeneralVariant, warp_shape
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.layouts.nvfp4_half_block import Nvfp4HalfBlock

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch import Atom
    from sm70_kernels_cuda.layouts.fp4_block import Fp4Block

FEW_VARIANTS_ROWS = 16
"""Up to so many rows of x the strip kernels run for layouts with few general kernels.

Predicted by the model of docs/roofline.md with the kernels of NVFP4 of the same shapes, not measured: on a
V100, an RTX 8000 and a T4 the general ones take the same time to 12 % more up to 16 rows, as the mean over
its shapes, and 11 % less to 7 % more from 17 to 32.
"""


@dataclass(frozen=True, eq=False)  # hashed by every call of an operator: by identity, not by its rows
class KernelSet:
    """The kernels of one layout. There is one object for each.

    Attributes:
        layout: What they read.
        strip: Kernels for few rows and K in multiples of 128.
        general: Kernels for any rows and K.
        newer_kernels: Whether there are cluster kernels, for 9.x and 10.x, and warpgroup kernels, for 9.0.
    """

    layout: type[Fp4Block]
    strip: tuple[Variant, ...]
    general: tuple[GeneralVariant, ...]
    newer_kernels: bool = False

    @property
    def native_rows(self) -> int:
        """Most rows of x that a strip kernel takes."""
        return TOKEN_TILE * max(item.token_tiles for item in self.strip)

    def strip_rows(self, atom: Atom) -> int:
        """Most rows of x that a strip kernel is chosen for; more go to a general kernel."""
        least = 0 if self.layout is Nvfp4Block else FEW_VARIANTS_ROWS
        return min(max(atom.strip_rows, least), self.native_rows)

    @property
    def dequantize(self) -> str:
        """Name of the decoder to dense FP16."""
        return f"dequantize_{self.layout.name.removesuffix('_block')}"

    def general_for(self, atom: Atom) -> tuple[GeneralVariant, ...]:
        """The general kernels that are compiled for an atom.

        Those of NVFP4 are there for every atom, also the ones that were measured to be too large for it.
        """
        most = warp_shape(atom).most_tiles
        keeps_all = self.layout is Nvfp4Block
        return tuple(item for item in self.general if keeps_all or item.token_tiles <= most)

    def considered_for(self, atom: Atom) -> tuple[GeneralVariant, ...]:
        """Those of `general_for` that the choice considers."""
        return warp_shape(atom).variants if self.layout is Nvfp4Block else self.general_for(atom)

    def kernels(self, atom: Atom) -> set[str]:
        """Names of all of them but `newer_kernels` in the code for an atom."""
        strip = {item.kernel for item in self.strip}
        return {self.dequantize} | strip | {item.kernel for item in self.general_for(atom)}


NVFP4_KERNELS = KernelSet(Nvfp4Block, VARIANTS, GENERAL_VARIANTS, newer_kernels=True)

# Few variants: each adds to the size of the binary and to the time of every build. For one token tile, 16
# warps are for 7.0 and 8 for 7.5 and up.
MXFP4_KERNELS = KernelSet(
    Mxfp4Block,
    tuple(Variant(tiles, warps, "mxfp4") for tiles, warps in ((1, 8), (1, 16), (2, 16), (4, 8))),
    tuple(GeneralVariant(*shape, "mxfp4") for shape in ((1, 1, 8), (4, 2, 4), (8, 4, 2))),
)

# For one request at a time: one row in decode, and whole prompts.
NVFP4_HALF_KERNELS = KernelSet(
    Nvfp4HalfBlock,
    (Variant(1, 16, "nvfp4_half"),),
    tuple(GeneralVariant(*shape, "nvfp4_half") for shape in ((4, 2, 4), (8, 4, 2))),
)

KERNEL_SETS: tuple[KernelSet, ...] = (NVFP4_KERNELS, MXFP4_KERNELS, NVFP4_HALF_KERNELS)
