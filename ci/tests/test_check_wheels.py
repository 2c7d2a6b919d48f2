"""The parts of the wheels check that need no build."""

from pathlib import Path

import check_wheels
from repository import ROOT, packages

FIVE = [package.distribution for package in packages(ROOT)]


def test_there_are_thirty_one_subsets_of_the_five_packages() -> None:
    chosen = check_wheels.subsets(FIVE)
    assert len(FIVE) == 5
    assert len(chosen) == len(set(chosen)) == 31
    assert chosen[-1] == frozenset(FIVE)


def test_every_provider_is_a_package_of_the_repository() -> None:
    assert set(check_wheels.PROVIDERS.values()) <= set(FIVE)


def test_what_is_not_installed_is_expected_as_an_absence() -> None:
    assert check_wheels.expected_discovery(frozenset({"sm70-policy", "sm70-moe"})) == {
        "providers": ["moe"],
        "absences": {"sm70-kernels-cuda": "not-installed", "sm70-kernels-triton": "not-installed"},
        "heavy": [],
    }


def test_a_platform_tag_is_found() -> None:
    assert check_wheels.check_tag(Path("a-1.0-py3-none-any.whl")) == []
    assert len(check_wheels.check_tag(Path("a-1.0-cp311-cp311-linux_x86_64.whl"))) == 1


def test_other_bytes_and_missing_wheels_are_found(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a.whl").write_bytes(b"same")
    assert check_wheels.compare_bytes(first, second) == []
    (second / "a.whl").write_bytes(b"other")
    (first / "b.whl").write_bytes(b"alone")
    assert check_wheels.compare_bytes(first, second) == [
        "b.whl: built once only",
        "a.whl: the wheel built from the sdist has other bytes",
    ]
