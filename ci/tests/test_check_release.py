"""Versions, changelogs, pins and tags that disagree are found."""

from pathlib import Path

import pytest

import check_release
from tree_builder import add_package, add_suite, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    add_suite(tmp_path)
    return tmp_path


def run(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = check_release.main(["--root", str(root), *arguments])
    return status, capsys.readouterr().out


def test_a_consistent_tree_passes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, capsys) == (0, "check_release: ok\n")


def test_a_changelog_that_lags_behind_is_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, "packages/sm70-moe/CHANGELOG.md", "# Changelog\n\n## 0.0.9\n")
    status, output = run(root, capsys)
    assert status == 1
    assert "sm70-moe: __about__ says 0.1.0, the changelog's head says 0.0.9" in output


def test_a_changelog_without_a_section_is_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, "packages/sm70-moe/CHANGELOG.md", "# Changelog\n")
    assert "the changelog's head says nothing" in run(root, capsys)[1]


@pytest.mark.parametrize(
    "requires",
    [(), ("sm70-policy==0.2.*",), ("sm70-policy>=0.3",), ("sm70-policy==0.3.*", "sm70-tools==0.2.*")],
)
def test_wrong_pins_are_found(
    root: Path, capsys: pytest.CaptureFixture[str], requires: tuple[str, ...]
) -> None:
    add_package(root, "sm70-moe", "0.1.0", requires)
    status, output = run(root, capsys)
    assert status == 1
    assert "sm70-moe: requires" in output
    assert "expected ['sm70-policy==0.3.*']" in output


def test_a_new_minor_of_the_policy_makes_all_pins_wrong(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(root, "sm70-policy", "0.4.0.dev0")
    assert run(root, capsys)[1].count("expected ['sm70-policy==0.4.*']") == 2


def test_extras_pin_the_minor_of_their_package(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "packages/sm70-tools/pyproject.toml"
    text = path.read_text()
    good = '[project.optional-dependencies]\nmoe = ["sm70-moe==0.1.*"]\nall = ["sm70-tools[moe]"]\n'
    path.write_text(text + good)
    assert run(root, capsys)[0] == 0
    path.write_text(text + good.replace("0.1.*", "0.9.*"))
    status, output = run(root, capsys)
    assert status == 1
    assert "sm70-tools[moe]: sm70-moe==0.9.*, expected sm70-moe==0.1.*" in output


@pytest.mark.parametrize(
    ("tag", "named"),
    [
        ("sm70-moe-v0.2.0", "__about__ says 0.1.0"),
        ("sm70-policy-v0.3.0.dev0", "is a development version"),
        ("v0.1.0", "expected <package>-v<version>"),
        ("sm70-none-v0.1.0", "expected <package>-v<version>"),
    ],
)
def test_wrong_tags_are_found(root: Path, capsys: pytest.CaptureFixture[str], tag: str, named: str) -> None:
    status, output = run(root, capsys, "--tag", tag)
    assert status == 1
    assert named in output


def test_the_right_tag_passes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, capsys, "--tag", "sm70-moe-v0.1.0")[0] == 0


def test_a_version_that_is_not_written_plainly_is_an_error(root: Path) -> None:
    write(root, "packages/sm70-moe/src/sm70_moe/__about__.py", "__version__ = '.'.join(['1', '2'])\n")
    with pytest.raises(ValueError, match="has no line"):
        check_release.main(["--root", str(root)])
