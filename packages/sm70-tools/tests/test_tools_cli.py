"""The command line: exit status, output for programs, and errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sm70_tools import __version__
from sm70_tools.cli import build_parser, main
from sm70_tools.explain import command
from tools_checkpoints import compressed_tensors, fake_registry, llama_config, llama_tensors, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _known_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "installed", fake_registry)


@pytest.fixture
def model(tmp_path: Path) -> str:
    config = llama_config(quantization_config=compressed_tensors())
    return str(write_checkpoint(tmp_path / "tiny", config, llama_tensors()))


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["explain", *arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, document


def _kernels(document: dict[str, Any]) -> set[str | None]:
    return {layer["kernel"] for layer in document["layers"] if layer["format"] == "nvfp4"}


def test_json_lists_every_layer(capsys: pytest.CaptureFixture[str], model: str) -> None:
    status, document = _json(capsys, model, "--device", "v100")
    assert status == 0
    assert (document["schema"], document["model"], document["tp"]) == ("sm70-explain/1", "tiny", 1)
    assert len(document["layers"]) == 9
    assert _kernels(document) == {"FastFakeKernel"}
    assert (document["served"], document["fits"]) == (True, True)


@pytest.mark.parametrize(
    "options",
    [
        ("--disable", "Other", "FastFakeKernel"),
        ("--disable", "FastFakeKernel", "--disable", "Other"),
        ("--config", '{"sm70_nvfp4": {"qpn2": false}}'),
        ("--config", '{"sm70_nvfp4": {"enabled": false}, "of_others": 1}'),
    ],
)
def test_the_user_turns_a_kernel_off(
    capsys: pytest.CaptureFixture[str], model: str, options: tuple[str, ...]
) -> None:
    status, document = _json(capsys, model, "--device", "v100", *options)
    assert status == 0
    assert _kernels(document) == {None}
    assert document["served"] is False


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--device", "v100"), 0),
        (("--device", "v100", "--tp", "4"), 0),
        (("--device", "v100", "--check"), 0),
        (("--device", "v100", "--check", "--context", "4096"), 0),
        (("--device", "v100", "--check", "--tp", "4"), 1),
        (("--device", "h200", "--check", "--tp", "4"), 0),
    ],
)
def test_only_check_fails_on_a_bad_answer(
    capsys: pytest.CaptureFixture[str], model: str, options: tuple[str, ...], status: int
) -> None:
    assert main(["explain", model, *options]) == status
    assert "Memory of one rank" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "p100"), "sm70: error: the card 'p100'. Allowed: v100, "),
        (("--device", "v100", "--tp", "3"), "sm70: error: --tp 3 for 8 heads and 2 key-value heads. "),
        (("--device", "v100", "--context", "5000"), "sm70: error: --context 5000. Allowed: 1 to 4096 tokens"),
        (("--device", "v100", "--config", "{"), "sm70: error: --config '{', which is not JSON ("),
        (("--device", "v100", "--config", "[]"), "sm70: error: --config '[]', a JSON list. "),
        (
            ("--device", "v100", "--config", '{"sm70_nvfp4": {"qpn": true}}'),
            "sm70: error: the field 'sm70_nvfp4.qpn'. ",
        ),
    ],
)
def test_errors_of_the_user_are_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], model: str, options: tuple[str, ...], message: str
) -> None:
    assert main(["explain", model, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


def test_a_damaged_file_is_status_2(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert main(["explain", f"{model}/nothing", "--device", "v100"]) == 2
    assert "which does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["explain"], ["explain", "x"], ["unknown"]])
def test_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: sm70" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"sm70-tools {__version__}\n"


def test_every_subcommand_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert "{" not in build_parser().format_help()
    for name in ("doctor", "explain"):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert f"usage: sm70 {name}" in capsys.readouterr().out


def test_explaining_needs_neither_torch_nor_vllm(model: str) -> None:
    program = (
        "import sys; from sm70_tools.cli import main; "
        f"status = main(['explain', {model!r}, '--device', 'v100', '--json']); "
        "print(status, sorted({'torch', 'vllm', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"
    assert json.loads(done.stdout)["schema"] == "sm70-explain/1"


def test_the_doctor_answers_in_json_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "sm70_tools.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "sm70-doctor/1"
    assert done.returncode == (1 if document["blocked"] else 0)
    assert {finding["check"] for finding in document["findings"]} == {
        "machine",
        "driver",
        "torch",
        "vllm",
        "packages",
        "patches",
    }
