"""Discovery: good providers, broken ones, and packages that are not there."""

import pytest

from policy_fakes import FakeKernel, entry, install_module, make_provider
from sm70_policy.registry import KNOWN_PROVIDERS, Registry, discover


def _codes(registry: Registry) -> dict[str, str]:
    return {absence.distribution: absence.rejection.code for absence in registry.absences}


def test_without_any_package_each_one_of_the_suite_is_a_reason() -> None:
    registry = discover([])
    assert registry.providers == ()
    assert registry.linear_kernels() == ()
    assert [(absence.distribution, str(absence.rejection)) for absence in registry.absences] == [
        (name, f"{name} is not installed (pip install {name})")
        for name in ("sm70-kernels-cuda", "sm70-kernels-triton", "sm70-moe")
    ]
    assert set(_codes(registry).values()) == {"not-installed"}


def test_a_good_provider_is_loaded_and_is_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = make_provider("cuda", FakeKernel("A"))
    install_module(monkeypatch, "fake_cuda_package", PROVIDER=provider)
    registry = discover([entry("cuda", "fake_cuda_package:PROVIDER")])
    assert registry.providers == (provider,)
    assert _codes(registry) == {"sm70-kernels-triton": "not-installed", "sm70-moe": "not-installed"}


def test_a_provider_outside_the_suite_is_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    install_module(monkeypatch, "fake_package", PROVIDER=make_provider("third", FakeKernel("Third")))
    registry = discover([entry("third", "fake_package:PROVIDER")])
    assert [kernel.name for kernel in registry.linear_kernels()] == ["Third"]
    assert len(registry.absences) == len(KNOWN_PROVIDERS)


@pytest.mark.parametrize("contract", [0, 2])
def test_another_contract_is_a_reason_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch, contract: int
) -> None:
    install_module(monkeypatch, "fake_package", PROVIDER=make_provider("cuda", contract=contract))
    registry = discover([entry("cuda", "fake_package:PROVIDER")])
    assert registry.providers == ()
    rejection = registry.absences[0].rejection
    assert rejection.code == "contract-mismatch"
    assert rejection.message == (
        "sm70-kernels-cuda could not be loaded: ContractError: fake-cuda 1.2.3 was built for "
        f"contract {contract}, sm70-policy speaks contract 1"
    )
    assert rejection.fix.endswith("pip install --force-reinstall sm70-kernels-cuda")


@pytest.mark.parametrize("thing", [None, "text", object, lambda: None])
def test_something_else_than_a_provider_is_a_reason(monkeypatch: pytest.MonkeyPatch, thing: object) -> None:
    install_module(monkeypatch, "fake_package", PROVIDER=thing)
    registry = discover([entry("moe", "fake_package:PROVIDER")])
    assert registry.absences[0].distribution == "sm70-moe"
    assert registry.absences[0].rejection.code == "contract-mismatch"
    assert "not a sm70_policy.provider.Provider" in registry.absences[0].rejection.message


def test_an_import_that_raises_takes_no_other_package_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "sm70_broken_package.py").write_text("raise OSError('libfoo.so: cannot open')\n")
    monkeypatch.syspath_prepend(str(folder))
    install_module(monkeypatch, "fake_package", PROVIDER=make_provider("triton", FakeKernel("A")))
    registry = discover(
        [entry("cuda", "sm70_broken_package:PROVIDER"), entry("triton", "fake_package:PROVIDER")]
    )
    assert [provider.name for provider in registry.providers] == ["triton"]
    assert _codes(registry) == {"sm70-kernels-cuda": "load-failed", "sm70-moe": "not-installed"}
    assert registry.absences[0].rejection.message == (
        "sm70-kernels-cuda could not be loaded: OSError: libfoo.so: cannot open"
    )


@pytest.mark.parametrize("value", ["no_such_module_of_anyone:PROVIDER", "fake_package:MISSING"])
def test_a_missing_module_or_attribute_is_a_reason(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    install_module(monkeypatch, "fake_package")
    assert _codes(discover([entry("cuda", value)]))["sm70-kernels-cuda"] == "load-failed"


def test_the_same_object_listed_twice_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install_module(monkeypatch, "fake_package", PROVIDER=make_provider("cuda", FakeKernel("A")))
    registry = discover([entry("cuda", "fake_package:PROVIDER")] * 2)
    assert len(registry.providers) == 1
    assert "sm70-kernels-cuda" not in _codes(registry)


def test_two_objects_under_one_name_keep_the_first_and_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_provider("cuda", FakeKernel("A")), make_provider("cuda", FakeKernel("B"))
    install_module(monkeypatch, "fake_a", PROVIDER=first)
    install_module(monkeypatch, "fake_b", PROVIDER=second)
    entries = [entry("cuda", "fake_b:PROVIDER"), entry("cuda", "fake_a:PROVIDER")]
    registry = discover(entries)
    assert registry.providers == (first,)
    assert registry.absences[0].rejection.code == "duplicate-entry"
    assert registry.absences[0].rejection.message == (
        "the entry point cuda names both fake_a:PROVIDER and fake_b:PROVIDER; the first is used"
    )
    assert discover(reversed(entries)) == registry


def test_kernels_are_asked_by_priority_then_name() -> None:
    registry = Registry(
        (
            make_provider("a", FakeKernel("Zeta", 200), FakeKernel("Low", 50)),
            make_provider("b", FakeKernel("Alpha", 200), FakeKernel("Top", 299)),
        ),
        (),
    )
    assert [kernel.name for kernel in registry.linear_kernels()] == ["Top", "Alpha", "Zeta", "Low"]
