"""`sm70 routes` without vLLM: exit status, messages, the processes' environment, other revisions."""

from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sm70_tools.cli import main
from sm70_tools.errors import ArgumentError, WorkerError
from sm70_tools.routes import baseline, encoding, processes
from sm70_tools.routes.categories import find_category
from sm70_tools.routes.request import Request
from sm70_tools.routes.snapshot import Snapshot
from tools_routes import ONE, rows, snapshot


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "routes.json"
    path.write_text(encoding.to_text(snapshot()), encoding="utf-8")
    return str(path)


def _answer_with(monkeypatch: pytest.MonkeyPatch, taken: Snapshot) -> None:
    monkeypatch.setattr(processes, "take", lambda *arguments: taken)


def _pretend_vllm(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def found(distribution: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(distribution)
        return version

    monkeypatch.setattr(metadata, "version", found)


@pytest.mark.parametrize("name", ["awq", "fp8", "moe", "large-m"])
def test_nothing_to_snapshot_is_status_3(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routes", "snapshot", "--category", name]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"sm70: nothing to snapshot yet for the category {name} (")
    assert "no package of the suite has a kernel for it" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["snapshot", "--category", "nvfp5"], "the category 'nvfp5'. Allowed: nvfp4, "),
        (["snapshot", "--category", "nvfp4", "--host", "0.1.0"], "routes in vLLM 0.1.0. Allowed: 0.33.0"),
        (["check"], "with neither. Allowed: one of the two"),
        (["check", "FILE", "--baseline-ref", "HEAD"], "Allowed: one of the two"),
        (["check", "FILE", "--category", "stock"], "--category stock for FILE, which holds nvfp4"),
        (["check", "FILE", "--host", "0.19.1"], "--host 0.19.1 for FILE, which holds 0.33.0"),
        (["check", "nothing.json"], "the routes in nothing.json, which cannot be read"),
        (["diff", "FILE", "nothing.json"], "the routes in nothing.json, which cannot be read"),
        (["table", "FILE"], "a table of nvfp4. Allowed: a snapshot of the category stock"),
    ],
)
def test_what_cannot_be_answered_is_status_2(
    arguments: list[str], words: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["routes", *(file if part == "FILE" else part for part in arguments)]) == 2
    assert words.replace("FILE", file) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "words"),
    [(None, "vLLM 0.33.0, which is not installed"), ("0.26.0", "vLLM 0.33.0, but 0.26.0 is installed")],
)
def test_a_missing_or_other_vllm_is_named(
    version: str | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _pretend_vllm(monkeypatch, version)
    assert main(["routes", "snapshot", "--category", "nvfp4"]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "pip install vllm==0.33.0" in message


def test_the_build_of_a_version_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_vllm(monkeypatch, "0.33.0+cpu")
    monkeypatch.setattr(processes, "ask", lambda request, folders: _raise(WorkerError("asked")))
    with pytest.raises(WorkerError, match="asked"):
        processes.take(find_category("nvfp4"), "0.33.0")


def _raise(error: Exception) -> Any:
    raise error


def test_a_process_that_fails_says_its_last_words() -> None:
    with pytest.raises(WorkerError) as caught:
        processes.ask(Request("nvfp4", "0.33.0", "no-such-card", ()))
    assert "the process for nvfp4 on no-such-card ended with status 1" in str(caught.value)
    assert "KeyError: 'no-such-card'" in str(caught.value)


def test_processes_do_not_see_what_changes_routes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VLLM_DISABLED_KERNELS", "VLLM_SM70_NVFP4_QPN2", "SM70_X", "VLLM_PLUGINS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "before")
    found = processes._environment((tmp_path / "a", tmp_path / "b"))
    assert {name: value for name, value in found.items() if name.startswith(("VLLM_", "SM70_"))} == {
        "VLLM_PLUGINS": "",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CACHE_ROOT": str(tmp_path),
    }
    assert found["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "a"), str(tmp_path / "b"), "before"]
    assert os.environ["VLLM_DISABLED_KERNELS"] == "1"


def test_check_passes_on_the_same_rows(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answer_with(monkeypatch, snapshot())
    assert main(["routes", "check", file]) == 0
    assert "0 differ, 0 unexpected, 0 missing" in capsys.readouterr().out


def test_check_fails_with_the_rows_that_differ(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = rows()
    content[ONE]["cards"]["v100"]["layers"]["qkv_proj"]["class"] = "SlowKernel"
    other = Snapshot("nvfp4", "0.33.0", {"vllm": "0.33.0", "triton": "3.9.0"}, {}, content)
    _answer_with(monkeypatch, other)
    written = tmp_path / "new.json"
    assert main(["routes", "check", file, "--output", str(written)]) == 1
    printed = capsys.readouterr().out
    assert f"differs and is not expected to: {ONE}\n" in printed
    assert "taken with other packages: triton not installed -> 3.9.0" in printed
    assert encoding.read(written) == other
    expected = tmp_path / "expected.json"
    expected.write_text(f'["{ONE}"]', encoding="utf-8")
    assert main(["routes", "check", file, "--expected-changes", str(expected)]) == 0


def test_a_snapshot_is_printed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answer_with(monkeypatch, snapshot())
    assert main(["routes", "snapshot", "--category", "nvfp4"]) == 0
    assert encoding.from_text(capsys.readouterr().out, "a test") == snapshot()
    path = tmp_path / "routes.json"
    assert main(["routes", "snapshot", "--category", "nvfp4", "--output", str(path)]) == 0
    assert encoding.read(path) == snapshot()


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose first commit has another policy than its files."""
    root = tmp_path / "checkout"
    policy = root / "packages" / "sm70-policy" / "which.txt"
    policy.parent.mkdir(parents=True)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    policy.write_text("old", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "old"]):
        _git(root, *command)
    policy.write_text("new", encoding="utf-8")
    monkeypatch.chdir(policy.parent)
    return root


def test_another_revision_is_taken_from_its_own_files(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def install(tree: Path, target: Path, revision: str) -> None:
        seen["policy"] = (tree / "packages" / "sm70-policy" / "which.txt").read_text(encoding="utf-8")
        seen["target"] = str(target)

    def take(category: object, version: str, folders: tuple[Path, ...]) -> Snapshot:
        seen["folders"] = " ".join(map(str, folders))
        return snapshot()

    monkeypatch.setattr(baseline, "_install", install)
    monkeypatch.setattr(processes, "take", take)
    assert baseline.take(find_category("nvfp4"), "0.33.0", "HEAD") == snapshot()
    assert seen["policy"] == "old"
    assert seen["folders"].startswith(seen["target"])
    assert len(_git(checkout, "worktree", "list").splitlines()) == 1, "the worktree is removed again"
    assert not Path(seen["target"]).exists()


def test_the_worktree_is_removed_when_a_package_cannot_be_built(checkout: Path) -> None:
    with pytest.raises(WorkerError, match="packages of HEAD, which could not be built"):
        baseline.take(find_category("nvfp4"), "0.33.0", "HEAD")
    assert len(_git(checkout, "worktree", "list").splitlines()) == 1


def test_an_unknown_revision_or_no_checkout_is_named(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match="rev-parse --verify nothing"):
        baseline.take(find_category("nvfp4"), "0.33.0", "nothing")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="a checkout of the suite"):
        baseline.take(find_category("nvfp4"), "0.33.0", "HEAD")
