"""The constraints for vLLM 0.19.1, without asking an index."""

from __future__ import annotations

from typing import Any

import pytest

import check_constraints
from check_constraints import CONSTRAINTS, judge, read_pins


def resolution(**versions: str) -> dict[str, Any]:
    return {"install": [{"metadata": {"name": name, "version": item}} for name, item in versions.items()]}


PINS = {"vllm": "0.19.1", "torch": "2.10.0", "typing-extensions": "4.16.0"}


def test_a_pinned_set_passes() -> None:
    found = resolution(vllm="0.19.1", torch="2.10.0", typing_extensions="4.16.0", six="1.17.0")
    assert judge("3.12.1", found, PINS) == []


def test_what_is_not_pinned_is_named_with_its_version() -> None:
    (finding,) = judge("3.12.1", resolution(torch="2.10.0", fastapi="0.165.0"), PINS)
    assert finding == "Python 3.12.1: fastapi 0.165.0 is not pinned: add fastapi==0.165.0"


@pytest.mark.parametrize("versions", [{"torch": "2.11.0"}, {}])
def test_another_torch_is_a_finding(versions: dict[str, str]) -> None:
    (finding,) = judge("3.11.7", resolution(**versions), PINS)
    assert "2.10.0 has the code for 7.0" in finding


@pytest.mark.parametrize("line", ["fastapi>=1", "fastapi", "Fast_API==1\nfast-api==2", "fastapi==1 # why"])
def test_a_line_that_is_no_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="in the form name==version"):
        read_pins(line)


def test_the_file_pins_what_carries_code_for_7_0() -> None:
    pins = read_pins(CONSTRAINTS.read_text(encoding="utf-8"))
    assert (pins["vllm"], pins["torch"], pins["triton"]) == ("0.19.1", "2.10.0", "3.6.0")
    assert not check_constraints.UNPINNED & set(pins)


def test_no_interpreter_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("check_constraints.shutil.which", lambda _: None)
    assert check_constraints.main([]) == 1
    assert "is on the path" in capsys.readouterr().out


def test_pips_refusal_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_constraints, "resolve", lambda _: "ERROR: ResolutionImpossible")
    assert check_constraints.main(["--python", "python3.11"]) == 1
    assert "python3.11: ERROR: ResolutionImpossible" in capsys.readouterr().out
