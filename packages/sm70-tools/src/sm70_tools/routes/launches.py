"""Which kernels an operator of sm70-kernels-cuda would launch on a card of 7.x or 8.x: arithmetic, no card.

It follows the operator's own way from sizes to launches; a test runs the operator with a driver that only
takes notes, and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError

if TYPE_CHECKING:
    from sm70_tools.routes.cards import RoutedCard

OPERATORS: dict[str, tuple[str, ...]] = {
    "sm70::nvfp4_linear": ("nvfp4_block", "nvfp4_half_block"),
    "sm70::mxfp4_linear": ("mxfp4_block",),
}
"""Operators whose launches are known, with the layouts that their weight can have."""

_NEWER_KERNELS_FROM = 9


def launches_of(operator: str, scalars: Mapping[str, Any], block_bytes: int, n: int, card: RoutedCard) -> Any:  # noqa: ANN401
    """A function from M to what is launched, as text; None for an operator that is not known here.

    Args:
        operator: Its name, with namespace.
        scalars: Its arguments that are no tensors.
        block_bytes: Bytes of a block of the weight, which say its layout.
        n: Output features.
        card: The card.

    Raises:
        ArgumentError: The card has kernels whose launch depends on answers of its driver.
    """
    if operator not in OPERATORS:
        return None
    if card.card.sm.major >= _NEWER_KERNELS_FROM:
        raise ArgumentError(
            describe(
                asked=f"launches of {operator} on {card.card.device}",
                allowed="cards of compute capability 7.x and 8.x: on newer ones they depend on the driver",
                fix="Ask for the route alone",
            )
        )
    from sm70_kernels_cuda.kernel_set import KERNEL_SETS

    (kernel_set,) = (
        item
        for item in KERNEL_SETS
        if item.layout.name in OPERATORS[operator] and item.layout.block_bytes() == block_bytes
    )

    def launches(m: int) -> str:
        return _launches(m, n, scalars, card, kernel_set)

    return launches


def _launches(m: int, n: int, scalars: Mapping[str, Any], card: RoutedCard, kernel_set: Any) -> str:  # noqa: ANN401
    from sm70_kernels_cuda import launch
    from sm70_kernels_cuda.choice import choose_linear
    from sm70_kernels_cuda.kernel_set import NVFP4_KERNELS
    from sm70_kernels_cuda.launch_cluster import Card
    from sm70_kernels_cuda.launch_general import launch_general
    from sm70_kernels_cuda.tuning.table import NO_TUNING, load

    number = card.card.sm.number
    atom = launch.atom_of(number)
    k = int(scalars["k"])
    if m >= (scalars["dense_rows"] or atom.dense_rows):
        return f"{_text(launch.launch_dequantize(n, k, kernel_set.dequantize))}; aten::mm"
    variant = choose_linear(
        m,
        n,
        k,
        scalars["qpn2"],
        sm_number=number,
        atom=atom,
        card=Card(card.multiprocessors, card.shared_bytes),
        tuning=load() if kernel_set is NVFP4_KERNELS else NO_TUNING,
        kernel_set=kernel_set,
    )
    if isinstance(variant, launch.Variant):
        return _text(launch.launch_variant(variant, n, atom))
    return _text(launch_general(variant, m, n, atom))


def _text(item: Any) -> str:  # noqa: ANN401
    x, y = item.grid
    return f"{item.kernel} grid={x}x{y} threads={item.threads} shared={item.shared_bytes}"
