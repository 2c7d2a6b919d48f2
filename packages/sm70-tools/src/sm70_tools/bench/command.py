"""The subcommand `sm70 bench`, with `linear`, `host` and `chart`."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.bench import chart, gated, summary
from sm70_tools.bench.cases import MATMUL_ROOF_FROM, ROWS, SHAPES, parse_rows, parse_shapes
from sm70_tools.bench.contenders import OURS, require_kernels
from sm70_tools.bench.errors import UnavailableError
from sm70_tools.bench.host import measure_host
from sm70_tools.bench.linear import LinearRun, Request
from sm70_tools.bench.peers import PEERS, parse_peers
from sm70_tools.bench.roof import measure_roofs
from sm70_tools.bench.rows import LINEAR, Provenance, RowFile, read_rows
from sm70_tools.bench.timing import CudaEngine
from sm70_tools.doctor import driver
from sm70_tools.errors import ArgumentError

if TYPE_CHECKING:
    import argparse

    from sm70_tools.bench.linear import Outcome
    from sm70_tools.bench.roof import Roofs
    from sm70_tools.bench.timing import Engine

LEAST_ROUNDS = 5
LEAST_CALLS = 1000


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` to the command line."""
    parser = commands.add_parser("bench", help="checked measurements beside peers, and charts of them")
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    _add_linear(kinds.add_parser("linear", help="the NVFP4 linear: check, then time on a CUDA device"))
    host = kinds.add_parser("host", help="wall time of one operator call, against torch.mul(out=)")
    host.add_argument("--calls", type=int, default=10_000, metavar="N", help="calls of each (default 10000)")
    host.set_defaults(run=run_host)
    drawing = kinds.add_parser("chart", help="draw a PNG from a CSV file of rows; needs no CUDA")
    drawing.add_argument("file", type=Path, metavar="FILE.csv")
    drawing.add_argument("--output", type=Path, required=True, metavar="FILE.png")
    drawing.add_argument("--commit", metavar="HASH", help="whose rows (default: that of the last row)")
    drawing.add_argument("--m", metavar="M,...", help="row counts to draw (default: all)")
    drawing.set_defaults(run=run_chart)


def _add_linear(parser: argparse.ArgumentParser) -> None:
    rows = ",".join(map(str, ROWS))
    parser.add_argument(
        "--op",
        choices=("linear", "gated"),
        default="linear",
        help="gated: silu(gate) * up of merged projections, beside our linear and torch's silu (no peers)",
    )
    parser.add_argument(
        "--peers", default=",".join(PEERS), metavar="NAME,...", help=f"of {', '.join(PEERS)} (default: all)"
    )
    parser.add_argument("--shapes", metavar="NxK,...", help="layers (default: those of models)")
    parser.add_argument("--m", default=rows, metavar="M,...", help=f"row counts (default {rows})")
    parser.add_argument(
        "--variants", choices=("ours", "all"), default="ours", help="all: each compiled kernel by itself too"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.csv", help="append rows to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write the tables to this file")
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw this run")
    parser.add_argument("--commit", metavar="HASH", help="what is measured (default: asked of git)")
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="replays that count (default 30)")
    parser.add_argument("--seed", type=int, metavar="N", help="of weights and activations (default: fresh)")
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="begin no new shape after this time"
    )
    parser.set_defaults(run=run_linear)


def run_linear(arguments: argparse.Namespace) -> int:
    """Run `sm70 bench linear`. Returns 1 when a result of the suite was wrong or failed, else 0."""
    request = _request(arguments)
    require_cuda("sm70 bench linear")
    require_kernels()
    if arguments.chart is not None:
        chart.require_matplotlib()
    provenance = _provenance(arguments.commit or _head())
    outputs = Outputs(arguments.output, arguments.markdown, arguments.chart)
    return run_linear_with(request, CudaEngine(), provenance, outputs)


@dataclass(frozen=True)
class Outputs:
    """Files to write; each may be left out."""

    rows: Path | None = None
    markdown: Path | None = None
    chart: Path | None = None


def run_linear_with(request: Request, engine: Engine, provenance: Provenance, outputs: Outputs) -> int:
    """Measure on an engine, print, and write the files.

    Returns:
        1 when a result of the suite was wrong or failed, else 0.
    """
    with contextlib.ExitStack() as stack:
        file = None if outputs.rows is None else stack.enter_context(RowFile(outputs.rows))
        print(f"{provenance.gpu}, commit {provenance.commit}, seed {request.seed}", flush=True)
        roofs = measure_roofs(engine, matmul=max(request.rows) >= MATMUL_ROOF_FROM)
        print(f"The card {roofs}.", flush=True)
        progress = _Progress(provenance, roofs, file)
        outcome = LinearRun(request, engine, time.monotonic, progress.report).run()
    progress.report(outcome)
    for text in summary.closing_lines(outcome, request):
        print(text)
    if outputs.markdown is not None:
        outputs.markdown.parent.mkdir(parents=True, exist_ok=True)
        document = summary.markdown(outcome, request, provenance, roofs)
        outputs.markdown.write_text(document, encoding="utf-8")
    if outputs.chart is not None and outcome.measurements:
        rows = [item.row(provenance, roofs.read_gbps) for item in outcome.measurements]
        chart.draw(chart.select(rows), outputs.chart)
    return 1 if any(not failure.of_peer for failure in outcome.failures) else 0


@dataclass
class _Progress:
    """Prints and stores what is new since the last report."""

    provenance: Provenance
    roofs: Roofs
    file: RowFile | None
    measured: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)

    def report(self, outcome: Outcome) -> None:
        """Print new failures and measurements, and append the latter to the file."""
        for failure in outcome.failures[self.failed :]:
            print(summary.failure_line(failure), file=sys.stderr, flush=True)
        ours = {(item.shape, item.m): item for item in outcome.measurements if item.variant == OURS}
        for item in outcome.measurements[self.measured :]:
            if self.file is not None:
                self.file.write(item.row(self.provenance, self.roofs.read_gbps))
            print(summary.line(item, self.roofs, ours.get((item.shape, item.m))), flush=True)
        self.failed, self.measured = len(outcome.failures), len(outcome.measurements)


def run_host(arguments: argparse.Namespace) -> int:
    """Run `sm70 bench host`."""
    if arguments.calls < LEAST_CALLS:
        raise ArgumentError(
            describe(
                asked=f"--calls {arguments.calls}",
                allowed=f"{LEAST_CALLS} or more",
                fix="Ask for enough calls to have a median",
            )
        )
    require_cuda("sm70 bench host")
    require_kernels()
    import torch

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {arguments.calls} calls each")
    print(measure_host(CudaEngine(), arguments.calls, time.perf_counter, torch.cuda.synchronize))
    return 0


def run_chart(arguments: argparse.Namespace) -> int:
    """Run `sm70 bench chart`."""
    chart.require_matplotlib()
    counts = () if arguments.m is None else parse_rows(arguments.m)
    selection = chart.select(read_rows(arguments.file), arguments.commit, counts)
    chart.draw(selection, arguments.output)
    print(f"{arguments.output}: {selection.title}, {len(selection.rows)} rows")
    return 0


def _request(arguments: argparse.Namespace) -> Request:
    if arguments.rounds < LEAST_ROUNDS:
        raise ArgumentError(
            describe(
                asked=f"--rounds {arguments.rounds}",
                allowed=f"{LEAST_ROUNDS} or more",
                fix="Ask for enough rounds to have percentiles",
            )
        )
    is_gated = arguments.op == "gated"
    default = gated.SHAPES if is_gated else SHAPES
    shapes = default if arguments.shapes is None else parse_shapes(arguments.shapes)
    if is_gated:
        gated.require_gated(shapes)
    return Request(
        shapes=shapes,
        rows=parse_rows(arguments.m),
        peers=(gated.TWO_STEPS,) if is_gated else parse_peers(arguments.peers),
        every_variant=arguments.variants == "all",
        rounds=arguments.rounds,
        seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        time_limit=arguments.time_limit,
        op=gated.GATED if is_gated else LINEAR,
    )


def require_cuda(what: str) -> None:
    """Make sure that there is a CUDA device.

    Args:
        what: The command, for the message.

    Raises:
        UnavailableError: torch or a device is missing.
    """
    allowed = "a machine with an NVIDIA card of compute capability 7.0 or newer, and torch built for CUDA"
    fix = "Run it on such a machine; sm70 doctor says what this one lacks"
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            describe(asked=f"{what}, but torch is not installed", allowed=allowed, fix=fix)
        )
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError(
            describe(
                asked=f"{what}, but torch {torch.__version__} sees no CUDA device", allowed=allowed, fix=fix
            )
        )


def _provenance(commit: str) -> Provenance:
    import torch

    _, cards = driver.probe(driver.ask())
    return Provenance(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        gpu=torch.cuda.get_device_name(),
        driver=cards[0].driver if cards else "unknown",
        cuda=str(torch.version.cuda),
        torch=str(torch.__version__),
    )


def _head() -> str:
    """The commit that git names for the current folder.

    Raises:
        ArgumentError: git does not answer.
    """
    command = ("git", "rev-parse", "--short", "HEAD")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ArgumentError(
            describe(
                asked=f"the commit that is measured, and git does not tell ({type(error).__name__})",
                allowed="a hash",
                fix="Pass --commit HASH",
            )
        ) from error
