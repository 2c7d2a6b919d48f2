"""What of the vLLM side holds where vLLM is not installed."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from sm70_policy.capability import Device, Sm
from sm70_policy.errors import HostError
from sm70_policy.vllm import hosts, ledger, plugin
from sm70_policy.vllm.ledger import MARKER, Entry, Patch, Status

HEAVY = ("torch", "vllm", "triton", "sm70_kernels_cuda", "sm70_kernels_triton", "sm70_moe")


def test_importing_the_entry_point_is_free() -> None:
    code = f"import sm70_policy.vllm.plugin, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_entry_point_leads_to_register() -> None:
    found = [entry for entry in entry_points(group="vllm.general_plugins") if entry.name == "sm70"]
    assert [entry.value for entry in found] == ["sm70_policy.vllm.plugin:register"]
    assert found[0].load() is plugin.register


UNKNOWN = ["0.99.0", "0.18.1", "0.20.0", "0.31.4", "0.330.0", "1.33.0", "unknown", "0.1.dev1+g12345"]


@pytest.mark.parametrize("version", UNKNOWN)
def test_unknown_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(HostError) as caught:
        hosts.find_host(version)
    assert f"vLLM {version}" in str(caught.value)
    assert "0.19.x, 0.32.x, 0.33.x" in str(caught.value)


KNOWN = {
    "0.19.x": ["0.19.0", "0.19.1", "0.19.1+cu128", "0.19.2.dev3"],
    "0.32.x, 0.33.x": ["0.32.0", "0.33.0", "0.33.1.dev7+gabcdef", "v0.33", "0.32.0+cpu", "0.33.0rc1"],
}


@pytest.mark.parametrize(
    ("line", "version"), [(line, version) for line, versions in KNOWN.items() for version in versions]
)
def test_known_versions_have_an_adapter(line: str, version: str) -> None:
    assert hosts.find_host(version).versions == line


@pytest.mark.parametrize("line", hosts.HOST_LINES, ids=lambda line: line.module.rpartition(".")[2])
def test_every_entry_of_a_ledger_says_what_it_is(line: hosts.HostLine) -> None:
    found = importlib.import_module(line.module).HOST.patches()
    names = [patch.name for patch in found]
    assert len(set(names)) == len(names)
    for index, patch in enumerate(found):
        assert patch.target.startswith("vllm.")
        assert all((patch.why, patch.upstream, patch.remove_when))
        # The ledger walks them in order.
        assert set(patch.requires) <= set(names[:index])


def test_register_on_an_unknown_vllm_logs_one_error_and_lets_it_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = types.ModuleType("vllm")
    stranger.__version__ = "0.99.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", stranger)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    plugin.register()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "vLLM 0.99.0" in errors[0]
    assert "0.33.x" in errors[0]


def test_defect_of_the_suite_does_not_stop_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> str:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(hosts, "installed_version", fail)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    plugin.register()
    assert "inactive" in caplog.text
    assert "ZeroDivisionError: a defect" in caplog.text


def test_missing_vllm_is_a_host_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(HostError, match=r"vLLM 0\.19\.x, 0\.32\.x"):
        hosts.installed_version()


class Target:
    """Something to patch."""

    def __init__(self) -> None:
        self.function: Callable[[], str] = lambda: "stock"
        self.expected = True

    def check(self) -> None:
        if not self.expected:
            raise HostError("the signature differs")

    def perform(self) -> None:
        def function() -> str:
            return "ours"

        setattr(function, MARKER, "a")
        self.function = function


def patch_of(target: Target, name: str = "a", requires: tuple[str, ...] = ()) -> Patch:
    return Patch(
        name=name,
        target="vllm.function",
        why="a test",
        upstream="function.py:1",
        remove_when="never",
        against=lambda device: None if device.sm == Sm(7, 0) else "only for 7.0",
        read=lambda: target.function,
        check=target.check,
        perform=target.perform,
        requires=requires,
    )


class FakeHost:
    versions = "a test"

    def __init__(self, device: Device | None, *patches: Patch) -> None:
        self._device = device
        self._patches = patches

    def device(self) -> Device | None:
        return self._device

    def patches(self) -> tuple[Patch, ...]:
        return self._patches


VOLTA = Device.cuda(Sm(7, 0))


def states(found: tuple[Entry, ...]) -> list[Status]:
    return [entry.status for entry in found]


def test_ledger_applies_once() -> None:
    target = Target()
    host = FakeHost(VOLTA, patch_of(target))
    assert states(ledger.entries(host)) == [Status.PENDING]
    assert target.function() == "stock"
    assert states(ledger.apply_all(host)) == [Status.APPLIED]
    first = target.function
    assert first() == "ours"
    assert states(ledger.apply_all(host)) == [Status.APPLIED]
    assert target.function is first


def test_patch_applied_twice_is_applied_once() -> None:
    target = Target()
    patch = patch_of(target)
    patch.apply()
    first = target.function
    patch.apply()
    assert target.function is first


@pytest.mark.parametrize("device", [Device.cuda(Sm(8, 0)), Device.cpu(), None])
def test_ledger_leaves_other_devices_alone(device: Device | None) -> None:
    target = Target()
    found = ledger.apply_all(FakeHost(device, patch_of(target)))
    assert states(found) == [Status.NOT_FOR_DEVICE]
    assert found[0].reason
    assert target.function() == "stock"


def test_ledger_refuses_what_it_does_not_know_and_what_depends_on_it() -> None:
    target, dependent = Target(), Target()
    target.expected = False
    host = FakeHost(VOLTA, patch_of(target), patch_of(dependent, "b", requires=("a",)))
    for found in (ledger.entries(host), ledger.apply_all(host)):
        assert states(found) == [Status.REFUSED, Status.REFUSED]
        assert found[0].reason == "the signature differs"
        assert "requires a" in found[1].reason
    assert target.function() == dependent.function() == "stock"


def test_ledger_refuses_a_target_that_is_gone() -> None:
    def missing() -> None:
        raise AttributeError("module has no attribute 'function'")

    found = ledger.apply_all(FakeHost(VOLTA, replace(patch_of(Target()), read=missing, check=missing)))
    assert states(found) == [Status.REFUSED]
    assert "has no attribute 'function'" in found[0].reason


def test_rebind_reaches_modules_that_imported_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def original() -> None: ...
    def replacement() -> None: ...
    def other() -> None: ...

    modules = {name: types.ModuleType(name) for name in ("sm70_a", "sm70_b", "sm70_c")}
    for name, module in modules.items():
        module.function = other if name == "sm70_c" else original  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    assert ledger.rebind(original, replacement, "function") == 2
    assert [module.function for module in modules.values()] == [replacement, replacement, other]
