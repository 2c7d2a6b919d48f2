"""What takes part in a measurement: an implementation with its weights loaded, and the suite's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sm70_policy.errors import describe
from sm70_tools.bench.cases import tolerance
from sm70_tools.bench.errors import UnavailableError, WrongResultError
from sm70_tools.bench.weights import relative_error

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_tools.bench.cases import Shape
    from sm70_tools.bench.weights import DecodeRows, Nvfp4Weight

Call = Callable[["Tensor"], "Tensor"]
"""FP16 [M, K] to FP16 [M, N]."""

OURS = "ours"

_GENERAL_ROWS = range(1, 65)
"""Rows of x for which each general kernel is timed: those that the model of docs/roofline.md covers."""

_BLOCKS_EACH = (1, 2)
"""Blocks of a cluster kernel for each multiprocessor."""


@dataclass(frozen=True)
class Contender:
    """One implementation, loaded with independent weights of one shape.

    Attributes:
        name: Name in the column `variant`.
        format: Format of its weights.
        nbytes: Bytes of one weight.
        calls: One call for each weight.
        decode_rows: The weight of the first call, for the oracle.
        accepts: Says of a number of rows whether it takes them; it takes any when None.
        into: Writes the first call's result into a given tensor, where the implementation can.
        tolerance: Largest relative error for M rows.
        judge: Relative error of a result, from x, the result and the weight.
    """

    name: str
    format: str
    nbytes: int
    calls: tuple[Call, ...]
    decode_rows: DecodeRows
    accepts: Callable[[int], bool] | None = None
    into: Callable[[Tensor, Tensor], None] | None = None
    tolerance: Callable[[int], float] = tolerance
    judge: Callable[[Tensor, Tensor, DecodeRows], float] = relative_error

    def takes(self, m: int) -> bool:
        """Whether it multiplies M rows."""
        return self.accepts is None or self.accepts(m)

    def check(self, x: Tensor, n: int) -> float:
        """Compare the first call with the oracle.

        Args:
            x: FP16 [M, K].
            n: Output features.

        Returns:
            The relative error.

        Raises:
            WrongResultError: It exceeds the tolerance, or an element was not written.
        """
        error = self.judge(x, self._poisoned_result(x, n), self.decode_rows)
        allowed = self.tolerance(x.shape[0])
        if not error < allowed:  # also when it is NaN
            raise WrongResultError(
                describe(
                    asked=f"{self.name} at {n}x{x.shape[1]}, M={x.shape[0]}: relative error {error:.2e}",
                    allowed=f"less than {allowed:.0e}",
                    fix="The result is wrong, so it is not timed",
                )
            )
        return error

    def _poisoned_result(self, x: Tensor, n: int) -> Tensor:
        import torch

        y = torch.full((x.shape[0], n), torch.nan, dtype=x.dtype, device=x.device)
        if self.into is not None:
            self.into(x, y)
            return y
        # The caching allocator hands a freed block out again: most likely the call's output is poisoned too.
        del y
        return self.calls[0](x)


def pack(weights: Sequence[Nvfp4Weight], shape: Shape) -> list[tuple[Tensor, Tensor]]:
    """The weights as the suite's operators take them: blocks, and a factor for each row."""
    import torch

    from sm70_kernels_cuda import ops  # noqa: F401 - registers the operators
    from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block

    layout = Nvfp4Block(shape.n, shape.k)
    return [
        (
            layout.pack(weight.codes, weight.scales),
            torch.full((shape.n,), weight.factor, dtype=torch.float32, device=weight.codes.device),
        )
        for weight in weights
    ]


def load_ours(weights: Sequence[Nvfp4Weight], shape: Shape, *, every_variant: bool) -> list[Contender]:
    """Pack the weights for the suite's operator.

    Args:
        weights: Independent weights of one shape.
        shape: That shape.
        every_variant: Whether each compiled kernel takes part as well, by its own name. Needs CUDA.
    """
    packed = pack(weights, shape)
    calls = tuple(partial(_operator, blocks, factors, shape.k) for blocks, factors in packed)
    ours = Contender(OURS, "nvfp4", shape.nvfp4_bytes, calls, weights[0].decode_rows)
    if not every_variant:
        return [ours]
    import torch

    from sm70_kernels_cuda import launch
    from sm70_kernels_cuda.launch_general import GENERAL_VARIANTS
    from sm70_kernels_cuda.nvfp4 import kernels_for

    kernels = kernels_for(torch.cuda.current_device())
    every: list[tuple[str, Any, Chosen]] = [
        *((item.kernel, kernels.run, _in_rows(item, _strip_rows(item))) for item in launch.VARIANTS),
        *((item.kernel, kernels.general.run, _in_rows(item, _GENERAL_ROWS)) for item in GENERAL_VARIANTS),
        *_newer_variants(kernels, shape),
    ]
    return [ours, *(_variant(name, run, chosen, packed, ours) for name, run, chosen in every)]


Chosen = Callable[[int], Any]
"""From M to what `run` of a family takes, or None where the kernel is none for so many rows."""


def _in_rows(variant: Any, rows: range) -> Chosen:  # noqa: ANN401 - sm70_kernels_cuda is an extra
    return lambda m: variant if m in rows else None


def _strip_rows(variant: Any) -> range:  # noqa: ANN401
    """Rows that fill more than half of a strip kernel's tiles."""
    most = 8 * variant.token_tiles
    return range(most // 2 - 3, most + 1)


def _newer_variants(kernels: Any, shape: Shape) -> list[tuple[str, Any, Chosen]]:  # noqa: ANN401
    """The kernels that only some cards have, with each number of blocks along K or on a multiprocessor."""
    from sm70_kernels_cuda.launch_cluster import CLUSTER_VARIANTS, consider_cluster
    from sm70_kernels_cuda.launch_warpgroup import MOST_SPLIT, WARPGROUP_VARIANTS, consider_warpgroup

    splits = range(1, MOST_SPLIT + 1)
    families = (
        (kernels.cluster, consider_cluster, CLUSTER_VARIANTS, "b", _BLOCKS_EACH),
        (kernels.warpgroup, consider_warpgroup, WARPGROUP_VARIANTS, "k", splits),
    )
    return [
        (
            f"{item.kernel}_{mark}{count}",
            family.run,
            partial(_consider, consider, item, count, shape, family.card),
        )
        for family, consider, variants, mark, counts in families
        if family is not None
        for item in variants
        for count in counts
    ]


def _consider(plan: Callable[..., Any], variant: Any, count: int, shape: Shape, card: Any, m: int) -> Any:  # noqa: ANN401
    return plan(variant, count, m, shape.n, shape.k, card)


def _operator(blocks: Tensor, factors: Tensor, k: int, x: Tensor) -> Tensor:
    import torch

    result: Tensor = torch.ops.sm70.nvfp4_linear(x, blocks, factors, None, k)
    return result


def _variant(
    name: str,
    run: Callable[..., None],
    chosen: Chosen,
    packed: Sequence[tuple[Tensor, Tensor]],
    ours: Contender,
) -> Contender:
    """One compiled kernel with one way to spread it over the card."""

    def into(blocks: Tensor, factors: Tensor, x: Tensor, y: Tensor) -> None:
        run(chosen(x.shape[0]), x, blocks, factors, None, y)

    def call(blocks: Tensor, factors: Tensor, x: Tensor) -> Tensor:
        y = x.new_empty((x.shape[0], factors.shape[0]))
        into(blocks, factors, x, y)
        return y

    return Contender(
        name,
        ours.format,
        ours.nbytes,
        tuple(partial(call, blocks, factors) for blocks, factors in packed),
        ours.decode_rows,
        accepts=lambda m: chosen(m) is not None,
        into=partial(into, *packed[0]),
        tolerance=ours.tolerance,
    )


def require_kernels() -> None:
    """Make sure that the suite's kernels are installed and compiled.

    Raises:
        UnavailableError: They are not.
    """
    fix = "pip install sm70-kernels-cuda, or build the binary with its hatch_build.py in a checkout"
    try:
        from sm70_kernels_cuda import binary
    except ImportError as error:
        raise UnavailableError(
            describe(
                asked=f"sm70_kernels_cuda, which cannot be imported ({error})",
                allowed="an installation of sm70-kernels-cuda",
                fix=fix,
            )
        ) from error
    if not binary.is_present():
        raise UnavailableError(
            describe(
                asked="the compiled kernels, which this installation of sm70-kernels-cuda lacks",
                allowed="an installation from a wheel, or a checkout with a built binary",
                fix=fix,
            )
        )
