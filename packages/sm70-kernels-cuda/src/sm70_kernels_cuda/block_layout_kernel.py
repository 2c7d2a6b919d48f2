"""What the kernels that read the `nvfp4_block` layout share: verdicts and the preparation of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda import binary
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_policy.capability import Sm
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype
from sm70_policy.verdict import SUPPORTED, Rejection, Verdict
from sm70_policy.weights import validate_nvfp4

if TYPE_CHECKING:
    from sm70_policy.capability import Device
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


class BlockLayoutNvFp4Kernel:
    """Base of the kernels that multiply FP16 activations with a weight in the `nvfp4_block` layout.

    Attributes:
        capabilities: Those that it serves, of CAPABILITIES.
        elsewhere: What to do on the others of CAPABILITIES.
        k_multiple: K must be a multiple of this.
        k_fix: What to do where it is not.
        qpn2: Whether the operator may use the QPN2 kernels for few rows.
    """

    capabilities: frozenset[Sm] = CAPABILITIES
    elsewhere: str = _ANOTHER_CARD
    k_multiple: int
    k_fix: str
    qpn2: bool

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """Judge format, card, dtype and K. Any N is padded with zeros."""
        if problem.weight_format != NVFP4:
            return Rejection(
                "format", f"serves {NVFP4.name}, asked for {problem.weight_format.name}", "use another kernel"
            )
        if device.sm not in self.capabilities:
            allowed = ", ".join(str(sm) for sm in sorted(self.capabilities))
            return Rejection(
                "capability",
                f"needs compute capability {allowed}; asked for {device}",
                self.elsewhere if device.sm in CAPABILITIES else _ANOTHER_CARD,
            )
        if not binary.is_present():
            return Rejection(
                "binary-missing",
                "this installation of sm70-kernels-cuda holds no compiled kernels",
                "pip install --force-reinstall sm70-kernels-cuda",
            )
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
        return Nvfp4Block(problem.n, problem.k).storage_bytes + 4 * problem.n

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        """Permute the checkpoint's bytes into the resident layout.

        Raises:
            WeightError: The tensors do not form a valid weight.
        """
        import torch

        from sm70_kernels_cuda.modules import PackedLinear

        validate_nvfp4(problem, weight)
        packed = Nvfp4Block(problem.n, problem.k).pack(weight.codes, weight.scales)
        if packed.is_cuda:
            # The cluster kernel reads weights before its predecessor in the stream has ended. That must never
            # be the kernel that wrote them.
            torch.cuda.synchronize(packed.device)
        dense_rows = settings.sm70_nvfp4.prefill_min_m or 0
        return PackedLinear(
            packed, weight.row_factor.clone(), problem.k, qpn2=self.qpn2, dense_rows=dense_rows
        )
