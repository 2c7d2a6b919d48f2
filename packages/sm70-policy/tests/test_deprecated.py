"""Deprecated environment variables: what they set, what wins over them, and that each is mentioned once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sm70_policy.errors import SettingsError
from sm70_policy.settings import Nvfp4Settings, Settings
from sm70_policy.vllm import deprecated
from sm70_policy.vllm.deprecated import ALIASES, WITHOUT_SETTING, with_deprecated

QPN2 = "VLLM_SM70_NVFP4_QPN2"
ROWS = "VLLM_SM70_NVFP4_QPN2_PREFILL_MIN_M"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecated, "_mentioned", set())
    for name in (*(alias.variable for alias in ALIASES), *WITHOUT_SETTING):
        monkeypatch.delenv(name, raising=False)


def _settings(mapping: dict[Any, Any]) -> Nvfp4Settings:
    return Settings.from_mapping(with_deprecated(mapping)).sm70_nvfp4


def test_without_variables_nothing_changes() -> None:
    given = {"sm70_nvfp4": {"qpn4": True}, 7: "another plugin's"}
    assert with_deprecated(given) == given


@pytest.mark.parametrize(("text", "value"), [("0", False), ("1", True), (" Off ", False), ("TRUE", True)])
def test_a_flag(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv(QPN2, text)
    assert _settings({}) == Nvfp4Settings(qpn2=value)
    assert _settings({"sm70_nvfp4": {"prefill_min_m": 7}}) == Nvfp4Settings(qpn2=value, prefill_min_m=7)


def test_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS, "64")
    assert _settings({}) == Nvfp4Settings(prefill_min_m=64)


def test_a_setting_wins_and_the_users_mapping_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(QPN2, "0")
    given = {"sm70_nvfp4": {"qpn2": True}}
    with caplog.at_level(logging.WARNING):
        assert _settings(given).qpn2 is True
    assert given == {"sm70_nvfp4": {"qpn2": True}}
    assert caplog.messages == [f"sm70: {QPN2} is ignored, because sm70_nvfp4.qpn2 is set"]


def test_each_variable_is_mentioned_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(QPN2, "1")
    for name in WITHOUT_SETTING:
        monkeypatch.setenv(name, "1")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with_deprecated({})
    assert len(caplog.messages) == 1 + len(WITHOUT_SETTING)
    assert any("set sm70_nvfp4.qpn2 in --additional-config" in message for message in caplog.messages)
    assert sum("has no effect" in message for message in caplog.messages) == len(WITHOUT_SETTING)


@pytest.mark.parametrize(
    ("name", "text", "words"), [(QPN2, "maybe", "1, true, yes, on"), (ROWS, "many", "a whole number")]
)
def test_what_cannot_be_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingsError, match=rf"{name}='{text}'. Allowed: {words}.*Unset {name}"):
        with_deprecated({})


def test_a_number_out_of_range_is_refused_by_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS, "0")
    with pytest.raises(SettingsError, match=r"sm70_nvfp4\.prefill_min_m = 0"):
        _settings({})


def test_a_malformed_section_is_left_to_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QPN2, "0")
    with pytest.raises(SettingsError, match="sm70_nvfp4 = 3"):
        _settings({"sm70_nvfp4": 3})


def test_every_alias_names_a_setting() -> None:
    for alias in ALIASES:
        Settings().lookup(f"{alias.section}.{alias.field}")
