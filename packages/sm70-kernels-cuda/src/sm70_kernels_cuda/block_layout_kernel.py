"""What the kernels that read a layout of blocks share: verdicts and the preparation of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda import binary
from sm70_kernels_cuda.layouts.fp4_block import LAYOUT_ABI
from sm70_policy.capability import Sm
from sm70_policy.formats import MXFP4
from sm70_policy.problem import ActivationDtype
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict
from sm70_policy.weights import validate_mxfp4, validate_nvfp4

if TYPE_CHECKING:
    from sm70_kernels_cuda.layouts.fp4_block import Fp4Block
    from sm70_policy.capability import Device
    from sm70_policy.formats import WeightFormat
    from sm70_policy.problem import LinearProblem
    from sm70_policy.provider import PreparedLinear, QuantizedWeight
    from sm70_policy.settings import Settings

CAPABILITIES: frozenset[Sm] = frozenset(
    Sm(major, minor)
    for major, minor in (
        *((7, 0), (7, 2), (7, 5)),
        *((8, 0), (8, 6), (8, 7), (8, 9), (9, 0)),
        *((10, 0), (10, 3), (12, 0), (12, 1)),
    )
)
"""Capabilities that the fat binary holds code for: cubins for 7.0 to 10.x, PTX for 12.x."""

_ANOTHER_CARD = "use another card"


class BlockLayoutKernel:
    """Base of the kernels that multiply FP16 activations with a weight in a layout of blocks.

    Attributes:
        capabilities: Those that it serves, of CAPABILITIES.
        elsewhere: What to do on the others of CAPABILITIES.
        weight_format: The checkpoint's format.
        layout: How the weight stays on the device.
        k_multiple: K must be a multiple of this.
        k_fix: What to do where it is not.
        qpn2: Whether the operator may use the QPN2 kernels for few rows.
    """

    capabilities: frozenset[Sm] = CAPABILITIES
    elsewhere: str = _ANOTHER_CARD
    weight_format: WeightFormat
    layout: type[Fp4Block]
    k_multiple: int
    k_fix: str
    qpn2: bool

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """Judge format, card, dtype and K. Any N is padded with zeros."""
        if problem.weight_format != self.weight_format:
            return Rejection(
                "format",
                f"serves {self.weight_format.name}, asked for {problem.weight_format.name}",
                "use another kernel",
            )
        if device.sm not in self.capabilities:
            allowed = ", ".join(str(sm) for sm in sorted(self.capabilities))
            return Rejection(
                "capability",
                f"needs compute capability {allowed}; asked for {device}",
                self.elsewhere if device.sm in CAPABILITIES else _ANOTHER_CARD,
            )
        unusable = _why_no_binary()
        if unusable is not None:
            return unusable
        if problem.activation is not ActivationDtype.FLOAT16:
            return Rejection(
                "activation-dtype",
                f"computes in float16, the model asks for {problem.activation}",
                "pass --dtype float16",
            )
        if problem.k % self.k_multiple:
            return Rejection(
                "k-not-multiple",
                f"needs K to be a multiple of {self.k_multiple}, got K={problem.k}",
                self.k_fix,
            )
        return SUPPORTED

    def resident_bytes(self, problem: LinearProblem) -> int:
        """Bytes of the packed weight and the row factors."""
        return self.layout(problem.n, problem.k).storage_bytes + 4 * problem.n

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        """Bring the checkpoint's tensors into the resident layout.

        Raises:
            WeightError: The tensors do not form a valid weight, or the layout cannot hold it exactly.
        """
        import torch

        from sm70_kernels_cuda.modules import PackedLinear, PackedMxfp4Linear

        is_mxfp4 = self.weight_format == MXFP4
        (validate_mxfp4 if is_mxfp4 else validate_nvfp4)(problem, weight)
        layout = self.layout(problem.n, problem.k)
        packed, factor = layout.resident(problem.layer, weight.codes, weight.scales, weight.row_factor)
        if packed.is_cuda:
            # The cluster kernel reads weights before its predecessor in the stream has ended. That must never
            # be the kernel that wrote them.
            torch.cuda.synchronize(packed.device)
        dense_rows = settings.lookup(f"sm70_{self.weight_format.name}.prefill_min_m") or 0
        module = PackedMxfp4Linear if is_mxfp4 else PackedLinear
        return module(packed, factor, problem.k, qpn2=self.qpn2, dense_rows=dense_rows)


def _why_no_binary() -> Rejection | None:
    fix = "pip install --force-reinstall sm70-kernels-cuda"
    if not binary.is_present():
        return Rejection(
            "binary-missing", "this installation of sm70-kernels-cuda holds no compiled kernels", fix
        )
    if not binary.fits_layouts():
        return Rejection(
            "binary-layout",
            f"the compiled kernels read layout ABI {binary.layout_abi()}, this package writes {LAYOUT_ABI}",
            fix,
        )
    return None
