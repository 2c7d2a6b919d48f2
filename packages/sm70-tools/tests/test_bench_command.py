"""`sm70 bench`: options, exit status, and what a run prints and writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sm70_tools.bench import cases, command, gated, roof, summary
from sm70_tools.bench.cases import Shape
from sm70_tools.bench.command import Outputs, run_linear_with
from sm70_tools.bench.errors import RowFileError
from sm70_tools.bench.linear import Failure, LinearRun, Outcome, Request
from sm70_tools.bench.peers import PEERS
from sm70_tools.bench.rows import Measurement, read_rows
from sm70_tools.bench.timing import Timing
from sm70_tools.cli import build_parser, main
from sm70_tools.errors import ArgumentError
from tools_bench import ODD, PROVENANCE, SMALL, FakeEngine, absent_peer, request


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CACHE_BYTES", 10_000)
    roofs = roof.Roofs(4000.0, 500.0)
    monkeypatch.setattr(command, "measure_roofs", lambda engine, *, matmul: roofs)


@pytest.fixture
def _no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def _request(*options: str) -> Request:
    return command._request(build_parser().parse_args(["bench", "linear", *options]))


def test_the_defaults() -> None:
    asked = _request()
    assert asked.shapes == cases.SHAPES
    assert asked.rows == (1, 4, 8, 16, 32, 64, 512, 4096)
    assert [peer.name for peer in asked.peers] == ["humming", "torch"]
    assert (asked.every_variant, asked.rounds, asked.time_limit) == (False, 30, None)
    assert asked.seed != _request().seed


def test_the_options() -> None:
    asked = _request(
        *("--shapes", "5120x1536", "--m", "1,8", "--peers", "torch", "--variants", "all"),
        *("--rounds", "7", "--seed", "3", "--time-limit", "60.5"),
    )
    assert asked == Request((Shape(5120, 1536),), (1, 8), (PEERS["torch"],), True, 7, 3, 60.5)
    assert _request("--peers", "").peers == ()


def test_the_gated_operator_stands_beside_its_two_steps() -> None:
    asked = _request("--op", "gated", "--m", "1")
    assert (asked.op, asked.shapes, asked.peers) == (gated.GATED, gated.SHAPES, (gated.TWO_STEPS,))
    assert _request("--op", "gated", "--shapes", "5120x1536").shapes == (Shape(5120, 1536),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shapes", "5120"), "--shapes with '5120'"),
        (("--m", "0"), "--m '0'"),
        (("--peers", "marlyn"), "--peers with 'marlyn'. Allowed: humming, torch"),
        (
            ("--op", "gated", "--shapes", "5000x1536"),
            "--op gated with 5000x1536. Allowed: N in multiples of 64",
        ),
        (("--rounds", "4"), "--rounds 4. Allowed: 5 or more"),
    ],
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str) -> None:
    assert main(["bench", "linear", *options]) == 2
    assert capsys.readouterr().err.startswith(f"sm70: error: {message}")


@pytest.mark.usefixtures("_no_cuda")
@pytest.mark.parametrize("what", ["linear", "host"])
def test_without_cuda(capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert main(["bench", what]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        f"sm70: error: sm70 bench {what}, but torch {torch.__version__} sees no CUDA"
    )
    assert captured.err.count("\n") == 1


def test_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "linear"]) == 2
    assert "but torch is not installed" in capsys.readouterr().err


def test_without_compiled_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("sm70_kernels_cuda.binary.is_present", lambda: False)
    assert main(["bench", "linear"]) == 2
    assert "lacks" in capsys.readouterr().err


def test_too_few_host_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "host", "--calls", "10"]) == 2
    assert "--calls 10. Allowed: 1000 or more" in capsys.readouterr().err


def test_the_commit_is_asked_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.invalid")
    for arguments in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(("git", *arguments), check=True)  # noqa: S607
    commit = command._head()
    assert len(commit) >= 7
    assert set(commit) <= set("0123456789abcdef")


def test_without_git_the_commit_has_to_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ArgumentError, match="Pass --commit HASH"):
        command._head()


def test_a_run_writes_rows_tables_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs(tmp_path / "a" / "r.csv", tmp_path / "b" / "r.md", tmp_path / "c" / "r.png")
    asked = request(shapes=(SMALL, ODD), rows=(1, 300), peers=(absent_peer(), PEERS["torch"]))
    assert run_linear_with(asked, FakeEngine(), PROVENANCE, outputs) == 0
    assert outputs.rows is not None
    rows = read_rows(outputs.rows)
    assert [(row["shape"], row["m"], row["variant"], row["format"]) for row in rows] == [
        (shape, m, variant, weights)
        for shape in ("48x256", "33x128")
        for m in ("1", "300")
        for variant, weights in (("ours", "nvfp4"), ("torch", "fp16"))
    ]
    assert {(row["date"], row["checked"], row["roof_gbps"]) for row in rows} == {
        (PROVENANCE.date, "yes", "4000")
    }
    captured = capsys.readouterr()
    assert captured.err == "not measured: humming: no-such-package is not installed\n"
    assert "NVIDIA H200, commit b0d2dcc, seed 7\n" in captured.out
    assert "48x256 M=1    ours" in captured.out
    assert "2.00x ours" in captured.out
    assert outputs.chart is not None
    assert outputs.chart.read_bytes()[:4] == b"\x89PNG"
    assert outputs.markdown is not None
    document = outputs.markdown.read_text()
    assert "| N x K | M | ours us | of read roof | of matmul roof | humming us | humming / ours |" in document
    assert "no-such-package is not installed | - | 2.00 (2.00 to 2.00) | 2.00 |" in document


def test_a_killed_run_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.csv"
    original = LinearRun._measure_rows
    measured: list[int] = []

    def killed_in_the_second(self: LinearRun, *arguments: object) -> None:
        if measured:
            raise KeyboardInterrupt
        measured.append(1)
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LinearRun, "_measure_rows", killed_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_linear_with(request(rows=(1, 2)), FakeEngine(), PROVENANCE, Outputs(path))
    assert [row["m"] for row in read_rows(path)] == ["1"]


def test_a_foreign_file_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("a,b\n")
    engine = FakeEngine()
    with pytest.raises(RowFileError, match="whose first line"):
        run_linear_with(request(), engine, PROVENANCE, Outputs(path))
    assert engine.captured == []


def test_the_time_limit_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = request(shapes=(SMALL, ODD, Shape(64, 128)), time_limit=0.0)
    target = tmp_path / "r.md"
    assert run_linear_with(asked, FakeEngine(), PROVENANCE, Outputs(markdown=target)) == 0
    printed = capsys.readouterr().out
    assert "The time limit ended the run after 0 of 3 shapes. Measure the others with " in printed
    assert printed.endswith(" --shapes 48x256,33x128,64x128\n")
    assert "Left out by the time limit: 48x256, 33x128, 64x128." in target.read_text()


def _measurement(shape: Shape, m: int, variant: str, us: float) -> Measurement:
    return Measurement(shape, m, variant, "nvfp4", shape.nvfp4_bytes, Timing(us, us, us), 2e-4)


def _outcome() -> Outcome:
    outcome = Outcome(
        [
            *(_measurement(SMALL, 1, "ours", 2.0), _measurement(SMALL, 1, "torch", 4.0)),
            *(_measurement(ODD, 1, "ours", 1.0), _measurement(ODD, 1, "torch", 8.0)),
            *(_measurement(SMALL, 8, "torch", 4.0), _measurement(ODD, 8, "ours", 1.0)),
            _measurement(SMALL, 1, "qpn2_nvfp4_t1_w8", 1.5),
        ]
    )
    outcome.failures.append(Failure("ours", SMALL, 8, "WrongResultError: 1 | 2", of_peer=False))
    return outcome


def test_geometric_means_take_the_shapes_that_have_both() -> None:
    results = summary.Results(_outcome())
    mean = results.mean((SMALL, ODD), 1, "torch")
    assert mean is not None
    assert mean.ratio == pytest.approx(4.0)
    assert mean.count == 2
    assert results.mean((SMALL, ODD), 8, "torch") is None
    asked = request(shapes=(SMALL, ODD), rows=(1, 8), peers=(PEERS["torch"],))
    assert summary.closing_lines(_outcome(), asked) == [
        "M=1    geometric mean of peer's time over ours: torch 4.00 over 2 shapes"
    ]


def test_the_document_names_failures_and_kernels() -> None:
    asked = request(shapes=(SMALL, ODD), rows=(1, 8), peers=(PEERS["torch"],))
    document = summary.markdown(_outcome(), asked, PROVENANCE, roof.Roofs(4.0))
    assert "| 48x256 | 8 | WrongResultError: 1 / 2 | - | - | 4.00 (4.00 to 4.00) | - |" in document
    assert "| 33x128 | 8 | 1.00 (1.00 to 1.00) | 59.4% | - | - | - |" in document
    assert "| 1 | 4.00 over 2 shapes |" in document
    assert "| 48x256 | 1 | qpn2_nvfp4_t1_w8 | 1.50 (1.50 to 1.50) | 115.2% |" in document
    assert "- not measured: ours 48x256 M=8: WrongResultError: 1 | 2" in document
    tables = [line for line in document.splitlines() if line.startswith("| 48x256")]
    assert len({line.count("|") for line in tables if "qpn2" not in line}) == 1


def test_a_wrong_result_of_the_suite_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearRun, "run", lambda self: _outcome())
    assert run_linear_with(request(), FakeEngine(), PROVENANCE, Outputs()) == 1
    of_peer = replace(_outcome().failures[0], of_peer=True)
    monkeypatch.setattr(LinearRun, "run", lambda self: Outcome(failures=[of_peer]))
    assert run_linear_with(request(), FakeEngine(), PROVENANCE, Outputs()) == 0


@pytest.mark.parametrize("m", [255, 256])
def test_the_product_roof_counts_from_256_rows(m: int) -> None:
    item = _measurement(SMALL, m, "ours", 2.0)
    text = summary.line(item, roof.Roofs(4000.0, 500.0), item)
    assert ("of matmul" in text) == (m == 256)


def test_the_module_runs_from_sources_without_torch_or_matplotlib() -> None:
    program = (
        "import sys; from sm70_tools.cli import build_parser; build_parser(); "
        "print(sorted({'torch', 'matplotlib', 'numpy', 'vllm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    done = subprocess.run(
        [sys.executable, "-m", "sm70_tools.cli", "bench", "linear", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: sm70 bench linear" in done.stdout
