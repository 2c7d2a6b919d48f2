"""Which strip or general kernel multiplies: the tuning table first, then arithmetic of the sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sm70_kernels_cuda.launch import QPN2_K_MULTIPLE, Variant, choose_variant
from sm70_kernels_cuda.launch_general import choose_general

if TYPE_CHECKING:
    from sm70_kernels_cuda.launch import Atom
    from sm70_kernels_cuda.launch_cluster import Card
    from sm70_kernels_cuda.launch_general import GeneralVariant
    from sm70_kernels_cuda.tuning.table import TuningTable


def choose_linear(
    m: int, n: int, k: int, qpn2: bool, *, sm_number: int, atom: Atom, card: Card, tuning: TuningTable
) -> Variant | GeneralVariant:
    """Pick the strip or general kernel for M rows of x.

    Args:
        m: Rows of x, 1 or more.
        n: Output features.
        k: Input features.
        qpn2: Whether a strip kernel may run.
        sm_number: Compute capability, 70 for 7.0.
        atom: The tensor-core atom that the binary holds for it.
        card: The device.
        tuning: Rows that come before the arithmetic.
    """
    tuned = tuning.find(sm_number, card.multiprocessors, m, n, k)
    if tuned is not None and _can_run(tuned, k, qpn2, atom, card):
        return tuned
    if qpn2 and m <= atom.strip_rows:
        return choose_variant(m, k, atom)
    return choose_general(m, n, k, atom, card)


def _can_run(variant: Variant | GeneralVariant, k: int, qpn2: bool, atom: Atom, card: Card) -> bool:
    if isinstance(variant, Variant):
        return qpn2 and k % QPN2_K_MULTIPLE == 0
    return variant.shared_bytes(atom) <= card.shared_bytes
