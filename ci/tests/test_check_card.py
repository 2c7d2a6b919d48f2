"""A session for one card refuses every other one."""

from pathlib import Path

import pytest

import check_card

V100 = check_card.Card("Tesla V100-SXM2-16GB", "7.0")
TITAN_V = check_card.Card("NVIDIA TITAN V", "7.0")
RTX_8000 = check_card.Card("Quadro RTX 8000", "7.5")
T4 = check_card.Card("Tesla T4", "7.5")
B200 = check_card.Card("NVIDIA B200", "10.0")


@pytest.mark.parametrize(
    ("session", "card"), [("gpu-v100", V100), ("gpu-rtx8000", RTX_8000), ("gpu-b200", B200)]
)
def test_a_session_runs_on_its_card(session: str, card: check_card.Card) -> None:
    assert check_card.refusal(session, [card, card]) == ""
    assert check_card.refusal("gpu", [card]) == ""


@pytest.mark.parametrize(
    ("session", "card"),
    [
        ("gpu-v100", TITAN_V),
        ("gpu-v100", T4),
        ("gpu-rtx8000", T4),
        ("gpu-b200", V100),
        ("gpu-rtx8000", check_card.Card("NVIDIA RTX 8000 Ada", "8.9")),
    ],
)
def test_a_session_refuses_another_card_and_names_it(session: str, card: check_card.Card) -> None:
    reason = check_card.refusal(session, [card])
    assert card.name in reason
    assert card.capability in reason


def test_a_mixed_machine_is_refused() -> None:
    assert T4.name in check_card.refusal("gpu-v100", [V100, T4])


@pytest.mark.parametrize("session", sorted(check_card.WANTED))
def test_no_card_is_refused(session: str) -> None:
    assert "needs a CUDA device" in check_card.refusal(session, [])


def test_the_listing_of_nvidia_smi_is_read() -> None:
    assert check_card.parse_listing("Tesla V100-SXM2-16GB, 7.0\nTesla T4, 7.5\n") == [V100, T4]
    assert check_card.parse_listing("No devices were found\n") == []


def test_main_asks_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Tesla T4, 7.5'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_card.main(["gpu"]) == 0
    assert capsys.readouterr().out == "Tesla T4 (7.5)\n"
    assert check_card.main(["gpu-v100"]) == 1
    program.write_text("#!/bin/sh\nexit 9\n")
    assert check_card.main(["gpu"]) == 1
