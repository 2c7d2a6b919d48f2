"""Settings: what is read, what is refused, what is left to others."""

from typing import Any

import pytest

from sm70_policy.errors import SettingsError
from sm70_policy.settings import Nvfp4Settings, ReportSettings, Settings


def test_defaults() -> None:
    settings = Settings.from_mapping({})
    assert settings == Settings()
    assert settings.sm70_nvfp4 == Nvfp4Settings(enabled=None, qpn2=True)
    assert settings.sm70_report == ReportSettings(routes_file=None)


def test_fields_are_read_and_the_rest_keeps_its_default() -> None:
    settings = Settings.from_mapping(
        {"sm70_nvfp4": {"qpn2": False}, "sm70_report": {"routes_file": "r.json"}}
    )
    assert settings.sm70_nvfp4 == Nvfp4Settings(enabled=None, qpn2=False)
    assert settings.sm70_report.routes_file == "r.json"


@pytest.mark.parametrize("value", [None, True, False])
def test_enabled_has_three_states(value: bool | None) -> None:
    assert Settings.from_mapping({"sm70_nvfp4": {"enabled": value}}).sm70_nvfp4.enabled is value


@pytest.mark.parametrize("foreign", ["other_plugin", "nvfp4", "gc_sm70", "", 7, None])
def test_keys_of_others_are_left_alone(foreign: object) -> None:
    mapping = {foreign: {"qpn2": "nonsense"}, "sm70_nvfp4": {"qpn2": False}}
    assert Settings.from_mapping(mapping) == Settings(sm70_nvfp4=Nvfp4Settings(qpn2=False))


def _message(mapping: dict[Any, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.from_mapping(mapping)
    return str(caught.value)


def test_an_unknown_section_names_the_near_match() -> None:
    assert _message({"sm70_nvpf4": {}}) == (
        "the section 'sm70_nvpf4'. Allowed: sm70_nvfp4, sm70_mxfp4, sm70_report. Did you mean 'sm70_nvfp4'."
    )


def test_an_unknown_field_names_the_near_match() -> None:
    assert _message({"sm70_nvfp4": {"qpn_2": True}}) == (
        "the field 'sm70_nvfp4.qpn_2'. Allowed: sm70_nvfp4.enabled, sm70_nvfp4.qpn2, sm70_nvfp4.qpn4, "
        "sm70_nvfp4.prefill_min_m. Did you mean 'sm70_nvfp4.qpn2'."
    )


def test_a_section_unlike_any_other_gets_no_guess() -> None:
    message = _message({"sm70": {}, "x": 1})
    assert message.startswith("the section 'sm70'.")
    far = _message({"sm70qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq": {}})
    assert far.endswith("Remove it from the configuration.")


@pytest.mark.parametrize("content", [True, None, "qpn2", ["qpn2"], 1])
def test_a_section_must_be_an_object(content: object) -> None:
    assert _message({"sm70_nvfp4": content}) == (
        f'sm70_nvfp4 = {content!r}. Allowed: an object of fields. Write {{"sm70_nvfp4": {{...}}}}.'
    )


@pytest.mark.parametrize(
    ("section", "field", "value", "allowed"),
    [
        ("sm70_nvfp4", "qpn2", "false", "bool"),
        ("sm70_nvfp4", "qpn2", 0, "bool"),
        ("sm70_nvfp4", "qpn2", None, "bool"),
        ("sm70_nvfp4", "enabled", 1, "bool or null"),
        ("sm70_nvfp4", "enabled", "auto", "bool or null"),
        ("sm70_report", "routes_file", 3, "str or null"),
        ("sm70_report", "routes_file", False, "str or null"),
    ],
)
def test_a_value_of_another_type_is_refused(section: str, field: str, value: object, allowed: str) -> None:
    assert _message({section: {field: value}}) == (
        f"{section}.{field} = {value!r} ({type(value).__name__}). Allowed: {allowed}. "
        "Change the value in the configuration."
    )


def test_lookup_reads_by_dotted_name() -> None:
    settings = Settings.from_mapping({"sm70_nvfp4": {"qpn2": False}})
    assert settings.lookup("sm70_nvfp4.qpn2") is False
    assert settings.lookup("sm70_nvfp4.enabled") is None


@pytest.mark.parametrize("dotted", ["sm70_nvfp4.qpn3", "sm70_nvpf4.qpn2", "sm70_nvfp4", "", "from_mapping.x"])
def test_lookup_of_an_unknown_name_is_an_error_of_the_suite(dotted: str) -> None:
    with pytest.raises(SettingsError, match="the setting") as caught:
        Settings().lookup(dotted)
    assert "sm70_nvfp4.qpn2" in str(caught.value)


def test_two_engines_share_nothing() -> None:
    mapping = {"sm70_nvfp4": {"qpn2": False}}
    first = Settings.from_mapping(mapping)
    mapping["sm70_nvfp4"]["qpn2"] = True
    second = Settings.from_mapping(mapping)
    assert (first.sm70_nvfp4.qpn2, second.sm70_nvfp4.qpn2) == (False, True)
    assert first != second


@pytest.mark.parametrize("value", [1, 512, None])
def test_the_prefill_threshold_takes_positive_numbers(value: int | None) -> None:
    settings = Settings.from_mapping({"sm70_nvfp4": {"prefill_min_m": value}})
    assert settings.sm70_nvfp4.prefill_min_m == value


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "512"])
def test_the_prefill_threshold_refuses_everything_else(value: object) -> None:
    with pytest.raises(SettingsError, match=r"sm70_nvfp4\.prefill_min_m"):
        Settings.from_mapping({"sm70_nvfp4": {"prefill_min_m": value}})
