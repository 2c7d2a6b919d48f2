"""Measures the NVFP4 linear beside its peers: check, then time, one shape after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sm70_policy.errors import Sm70Error
from sm70_tools.bench.cases import copies
from sm70_tools.bench.contenders import load_ours
from sm70_tools.bench.gated import GATED, load_gated
from sm70_tools.bench.peers import one_line
from sm70_tools.bench.rows import LINEAR, Measurement
from sm70_tools.bench.timing import interleave
from sm70_tools.bench.weights import Nvfp4Weight

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sm70_tools.bench.cases import Shape
    from sm70_tools.bench.contenders import Contender
    from sm70_tools.bench.peers import Peer
    from sm70_tools.bench.timing import Engine, Replay


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        shapes: Layers, in this order.
        rows: Row counts of the activations.
        peers: Who stands beside.
        every_variant: Whether each compiled kernel is timed as well.
        rounds: Replays of each graph that count.
        seed: Seed of weights and activations.
        time_limit: Seconds after which no new shape is begun; none when None.
        op: `linear`, or GATED for silu(gate) * up of merged projections.
    """

    shapes: tuple[Shape, ...]
    rows: tuple[int, ...]
    peers: tuple[Peer, ...]
    every_variant: bool
    rounds: int
    seed: int
    time_limit: float | None = None
    op: str = LINEAR


@dataclass(frozen=True)
class Failure:
    """A number that could not be measured.

    Attributes:
        variant: Who failed.
        shape: The layer; all layers when None.
        m: Rows; all of them when None.
        reason: Why.
        of_peer: Whether it is a peer's.
    """

    variant: str
    shape: Shape | None
    m: int | None
    reason: str
    of_peer: bool

    def concerns(self, variant: str, shape: Shape, m: int) -> bool:
        """Whether it explains why a number is missing."""
        return self.variant == variant and self.shape in {None, shape} and self.m in {None, m}


@dataclass
class Outcome:
    """What a run brought.

    Attributes:
        measurements: All numbers, in the order measured.
        failures: All that could not be measured.
        missing: Shapes that the time limit left out.
    """

    measurements: list[Measurement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    missing: tuple[Shape, ...] = ()


class LinearRun:
    """One run of the measurement."""

    def __init__(
        self, request: Request, engine: Engine, clock: Callable[[], float], report: Callable[[Outcome], None]
    ) -> None:
        """Prepare a run.

        Args:
            request: What to measure.
            engine: Runs the calls.
            clock: Seconds, for the time limit.
            report: Called after every shape and row count with what there is so far.
        """
        self._request = request
        self._engine = engine
        self._clock = clock
        self._report = report
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Measure all shapes, or those that the time limit lets begin."""
        import torch

        request = self._request
        began = self._clock()
        generator = torch.Generator(self._engine.device).manual_seed(request.seed)
        torch.manual_seed(request.seed)  # the dense weights of torch's own linear
        present = self._present_peers()
        for i, shape in enumerate(request.shapes):
            if request.time_limit is not None and self._clock() - began >= request.time_limit:
                self._outcome.missing = request.shapes[i:]
                break
            self._measure_shape(shape, present, generator)
            self._engine.release()
        return self._outcome

    def _present_peers(self) -> list[Peer]:
        present = []
        for peer in self._request.peers:
            reason = peer.absence()
            if reason:
                self._fail(peer.name, None, None, reason, of_peer=True)
            else:
                present.append(peer)
        return present

    def _measure_shape(self, shape: Shape, peers: list[Peer], generator: torch.Generator) -> None:
        import torch

        weights = [Nvfp4Weight.random(shape, generator) for _ in range(copies(shape.nvfp4_bytes))]
        if self._request.op == GATED:
            ours = load_gated(weights, shape)
        else:
            ours = load_ours(weights, shape, every_variant=self._request.every_variant)
        others = []
        for peer in peers:
            try:
                others.append(peer.load(weights, shape))
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way
                self._fail(peer.name, shape, None, one_line(error), of_peer=True)
        # The oracle needs the first weight; what the peers made of the others is theirs.
        del weights[1:]
        for m in self._request.rows:
            x = torch.randn(
                (m, shape.k), dtype=torch.float16, device=self._engine.device, generator=generator
            )
            self._measure_rows(shape, x, ours, others)
            self._report(self._outcome)

    def _measure_rows(
        self, shape: Shape, x: torch.Tensor, ours: list[Contender], others: list[Contender]
    ) -> None:
        import torch

        m = x.shape[0]
        expected = (Sm70Error, torch.OutOfMemoryError)
        replays: dict[str, Replay] = {}
        errors: dict[str, float] = {}
        taking = [contender for contender in (*ours, *others) if contender.takes(m)]
        for contender in taking:
            of_peer = contender in others
            try:
                errors[contender.name] = contender.check(x, shape.n)
                replays[contender.name] = self._engine.capture([partial(call, x) for call in contender.calls])
            except Exception as error:
                # What is unexpected in the suite's own code ends the run with its traceback.
                if not of_peer and not isinstance(error, expected):
                    raise
                self._fail(contender.name, shape, m, one_line(error), of_peer=of_peer)
        timings = interleave(replays, self._request.rounds)
        for contender in taking:
            name = contender.name
            if name in timings:
                self._outcome.measurements.append(
                    Measurement(
                        shape,
                        m,
                        name,
                        contender.format,
                        contender.nbytes,
                        timings[name],
                        errors[name],
                        self._request.op,
                    )
                )

    def _fail(self, variant: str, shape: Shape | None, m: int | None, reason: str, *, of_peer: bool) -> None:
        self._outcome.failures.append(Failure(variant, shape, m, reason, of_peer))
