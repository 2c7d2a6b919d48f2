"""Skips in one leg are fine, skips in all legs are not, and tests that need a card are listed."""

import subprocess
import sys
from pathlib import Path

import pytest

import check_skips
from repository import ROOT
from tree_builder import write


def leg(folder: Path, name: str, **outcomes: str) -> None:
    inner = {
        "passed": "",
        "failed": '<failure message="x"/>',
        "error": '<error message="x"/>',
        "xfailed": '<skipped type="pytest.xfail" message="known"/>',
    }
    cases = "".join(
        f'<testcase classname="m" name="{test}">'
        + inner.get(outcome, f'<skipped type="pytest.skip" message="{outcome}"/>')
        + "</testcase>"
        for test, outcome in outcomes.items()
    )
    write(folder, f"{name}.xml", f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = check_skips.main(["--reports", str(folder)])
    return status, capsys.readouterr().out


def test_a_test_that_ran_in_one_leg_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leg(tmp_path, "tests", a="passed", b="needs vLLM")
    leg(tmp_path, "routes", b="passed")
    status, output = run(tmp_path, capsys)
    assert status == 0
    assert output.endswith("2 leg(s): 2 passed, 0 failed, 0 xfailed, 0 skipped everywhere\n")


def test_a_test_that_was_skipped_in_all_legs_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leg(tmp_path, "tests", a="passed", b="needs vLLM")
    leg(tmp_path, "routes", b="no time")
    status, output = run(tmp_path, capsys)
    assert status == 1
    assert "m::b: skipped in every leg (needs vLLM)" in output
    assert "1 skipped everywhere" in output


def test_a_test_that_needs_a_card_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leg(tmp_path, "tests", a="passed", g="needs a CUDA device")
    status, output = run(tmp_path, capsys)
    assert status == 0
    assert "needs a card: m::g" in output
    leg(tmp_path, "gpu", g="passed")
    assert "needs a card" not in run(tmp_path, capsys)[1]


def test_failures_and_expected_failures_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leg(tmp_path, "tests", a="failed", b="error", c="xfailed", d="passed")
    assert "1 passed, 2 failed, 1 xfailed, 0 skipped everywhere" in run(tmp_path, capsys)[1]


def test_no_reports_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(tmp_path, capsys)
    assert status == 1
    assert "holds no report" in output


def test_the_reports_of_pytest_are_read_as_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real run with the root's conftest.py, on a machine that shows no CUDA device."""
    write(
        tmp_path,
        "test_sample.py",
        "import pytest\n"
        "def test_fine(): pass\n"
        "def test_skipped(): pytest.skip('never')\n"
        "@pytest.mark.gpu\ndef test_card(): pass\n"
        "@pytest.mark.xfail(strict=True)\ndef test_known(): assert False\n",
    )
    write(tmp_path, "conftest.py", (ROOT / "conftest.py").read_text())
    write(tmp_path, "pytest.ini", "[pytest]\nmarkers = gpu\n")
    report = tmp_path / "reports" / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", "."]
    subprocess.run(command, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": ""}, check=True, capture_output=True)
    status, output = run(report.parent, capsys)
    assert status == 1
    assert "needs a card: test_sample::test_card" in output
    assert "test_sample::test_skipped: skipped in every leg" in output
    assert output.endswith("1 leg(s): 1 passed, 0 failed, 1 xfailed, 2 skipped everywhere\n")
