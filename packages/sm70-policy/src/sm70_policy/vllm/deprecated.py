"""Environment variables that other Volta builds of vLLM read, for one release.

They are read here and nowhere else. A setting in vLLM's configuration wins; each variable that is set is
mentioned once a process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sm70_policy.errors import SettingsError, describe

_LOG = logging.getLogger(__name__)
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

_mentioned: set[str] = set()


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() in _TRUE | _FALSE:
        return text.strip().lower() in _TRUE
    raise SettingsError(_unreadable(name, text, "1, true, yes, on or 0, false, no, off"))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise SettingsError(_unreadable(name, text, "a whole number")) from error


def _unreadable(name: str, text: str, allowed: str) -> str:
    return describe(asked=f"{name}={text!r}", allowed=allowed, fix=f"Unset {name}")


@dataclass(frozen=True)
class Alias:
    """A variable with a setting in its place.

    Attributes:
        variable: Its name.
        section: Section of the settings.
        field: Field of that section.
        read: Turns the variable's name and text into the field's value.
    """

    variable: str
    section: str
    field: str
    read: Callable[[str, str], Any]


ALIASES: tuple[Alias, ...] = (
    Alias("VLLM_SM70_NVFP4_QPN2", "sm70_nvfp4", "qpn2", _flag),
    Alias("VLLM_SM70_NVFP4_QPN2_PREFILL_MIN_M", "sm70_nvfp4", "prefill_min_m", _number),
)

WITHOUT_SETTING: Mapping[str, str] = {
    "VLLM_SM70_NVFP4_QPN2_PREFILL": "more rows always decode the weight into scratch; "
    "sm70_nvfp4.prefill_min_m says from how many on",
    "VLLM_SM70_NVFP4_QPN2_SHARED_WEIGHT": "a weight is always held once",
    "VLLM_SM70_NVFP4_QPN2_SHARED_SCALES": "scales always keep their compact form",
}
"""Variables that ask for what is always so here, and why there is nothing to set."""


def with_deprecated(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    """The user's settings, with what the variables say in the places that they leave open.

    Args:
        mapping: `additional_config` of the engine; it is not changed.

    Raises:
        SettingsError: A variable's text cannot be read.
    """
    merged = dict(mapping)
    for name, why in WITHOUT_SETTING.items():
        if name in os.environ:
            _mention(name, f"has no effect: {why}")
    for alias in ALIASES:
        text = os.environ.get(alias.variable)
        if text is None:
            continue
        setting = f"{alias.section}.{alias.field}"
        section = merged.get(alias.section, {})
        if not isinstance(section, Mapping):
            continue  # the settings refuse it
        if alias.field in section:
            _mention(alias.variable, f"is ignored, because {setting} is set")
            continue
        merged[alias.section] = {**section, alias.field: alias.read(alias.variable, text)}
        _mention(alias.variable, f"is deprecated: set {setting} in --additional-config instead")
    return merged


def _mention(name: str, what: str) -> None:
    if name not in _mentioned:
        _mentioned.add(name)
        _LOG.warning("sm70: %s %s", name, what)
