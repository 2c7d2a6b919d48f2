"""Fixtures of the kernels' tests: a generator that prints its seed, and a cache for compiled kernels."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

FIXED_SEED = 70


@pytest.fixture(params=["fixed", "fresh"])
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator with a fixed seed and one with a fresh seed, which `--sm70-seed` replays."""
    if request.param == "fixed":
        return np.random.default_rng(FIXED_SEED)
    given = request.config.getoption("--sm70-seed")
    seed = secrets.randbits(32) if given is None else int(given)
    print(f"replay with --sm70-seed={seed}")  # noqa: T201 - pytest shows it when the test fails
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Folder for compiled test kernels, shared by the test processes of one run."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "kernels"
