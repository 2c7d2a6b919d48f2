"""Typed settings, built once per engine from the mapping that the user passed to vLLM.

The spelling is vLLM's own: `--additional-config '{"sm70_nvfp4": {"qpn2": false}}'`. Keys that do not start
with `sm70` belong to others and are left alone.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from sm70_policy.errors import SettingsError, describe

_PREFIX = "sm70"


@dataclass(frozen=True)
class Nvfp4Settings:
    """Section `sm70_nvfp4`.

    Attributes:
        enabled: Whether the suite's NVFP4 kernels take part. None means: on compute capability 7.x and on the
            CPU, where stock vLLM has no NVFP4 kernel, yes; elsewhere no. True asks for them everywhere.
        qpn2: Whether `Qpn2NvFp4LinearKernel` takes part, on compute capability 7.5
            `TuringQpn2NvFp4LinearKernel`.
        qpn4: Whether `Qpn4NvFp4LinearKernel` takes part, in engines of one request without speculation. Off,
            because it holds a ninth more bytes a weight, and the machine code for 7.0 saves 16 of 444
            instructions a loop for them; whether that pays has not been measured on any card.
        prefill_min_m: From so many rows on, a layer decodes its weight into scratch and runs a dense FP16
            GEMM. None leaves it to the kernels: 1024 on compute capability 7.x and 9.0, 128 on other cards
            from 8.0 on.
    """

    enabled: bool | None = None
    qpn2: bool = True
    qpn4: bool = False
    prefill_min_m: int | None = None

    def __post_init__(self) -> None:
        _check_prefill("sm70_nvfp4", self.prefill_min_m)


@dataclass(frozen=True)
class Mxfp4Settings:
    """Section `sm70_mxfp4`.

    Attributes:
        enabled: Whether the suite's MXFP4 kernels take part. None means: on compute capability 7.x and on the
            CPU, where stock vLLM takes no MXFP4 linear layer, yes; elsewhere no. True asks for them
            everywhere.
        qpn2: Whether `Qpn2MxFp4LinearKernel` takes part.
        prefill_min_m: As in `sm70_nvfp4`.
    """

    enabled: bool | None = None
    qpn2: bool = True
    prefill_min_m: int | None = None

    def __post_init__(self) -> None:
        _check_prefill("sm70_mxfp4", self.prefill_min_m)


def _check_prefill(section: str, rows: int | None) -> None:
    if rows is not None and rows < 1:
        raise SettingsError(
            describe(
                asked=f"{section}.prefill_min_m = {rows}",
                allowed="1 and above, or null",
                fix="A number above the longest batch turns the dense GEMM off",
            )
        )


@dataclass(frozen=True)
class ReportSettings:
    """Section `sm70_report`.

    Attributes:
        routes_file: Where rank 0 writes the routes of all layers as JSON; None writes no file.
    """

    routes_file: str | None = None


@dataclass(frozen=True)
class Settings:
    """All settings of one engine."""

    sm70_nvfp4: Nvfp4Settings = field(default_factory=Nvfp4Settings)
    sm70_mxfp4: Mxfp4Settings = field(default_factory=Mxfp4Settings)
    sm70_report: ReportSettings = field(default_factory=ReportSettings)

    @classmethod
    def from_mapping(cls, mapping: Mapping[Any, Any]) -> Settings:
        """Read the sections of the suite out of `mapping`.

        Raises:
            SettingsError: An unknown section or field (the message names the nearest known one), or a value
                of the wrong type.
        """
        sections = {item.name: item for item in dataclasses.fields(cls)}
        hints = get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, content in mapping.items():
            if not (isinstance(name, str) and name.startswith(_PREFIX)):
                continue
            if name not in sections:
                raise SettingsError(_unknown("the section", name, sections))
            values[name] = _read_section(hints[name], name, content)
        return cls(**values)

    def lookup(self, dotted: str) -> Any:  # noqa: ANN401 - the type depends on the field
        """Return the value of a field by its dotted name, such as `sm70_nvfp4.qpn2`.

        Raises:
            SettingsError: There is no such field; the message names the nearest known one.
        """
        names = [
            f"{section.name}.{item.name}"
            for section in dataclasses.fields(self)
            for item in dataclasses.fields(getattr(self, section.name))
        ]
        if dotted not in names:
            raise SettingsError(_unknown("the setting", dotted, names))
        section_name, _, field_name = dotted.partition(".")
        return getattr(getattr(self, section_name), field_name)


def _read_section(section: type, name: str, content: object) -> object:
    if not isinstance(content, Mapping):
        raise SettingsError(
            describe(
                asked=f"{name} = {content!r}",
                allowed="an object of fields",
                fix=f'Write {{"{name}": {{...}}}}',
            )
        )
    hints = get_type_hints(section)
    for key, value in content.items():
        if key not in hints:
            raise SettingsError(_unknown("the field", f"{name}.{key}", [f"{name}.{hint}" for hint in hints]))
        _check_type(f"{name}.{key}", value, hints[key])
    return section(**content)


def _check_type(name: str, value: object, hint: Any) -> None:  # noqa: ANN401 - a type hint has no narrower type
    allowed = get_args(hint) or (hint,)
    if type(value) not in allowed:
        wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
        raise SettingsError(
            describe(
                asked=f"{name} = {value!r} ({type(value).__name__})",
                allowed=wanted,
                fix="Change the value in the configuration",
            )
        )


def _unknown(what: str, name: str, known: Any) -> str:  # noqa: ANN401 - any iterable of names
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}" if near else "Remove it from the configuration"
    return describe(asked=f"{what} {name!r}", allowed=", ".join(names), fix=hint)
