"""Skips for the whole repository: one fixed reason for each thing that a leg can lack."""

from __future__ import annotations

import functools
import importlib.util

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that replay a seed and bring a test build."""
    parser.addoption("--sm70-seed", type=int, default=None, help="seed of the tests that draw a fresh one")
    for card, capability in (("volta", "7.0"), ("turing", "7.5")):
        parser.addoption(
            f"--sm70-{card}-fatbin",
            default=None,
            help=f"the kernels of {capability} compiled for this card, for a machine without NVRTC 12.9",
        )


@functools.cache
def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this leg cannot run; ci/check_skips.py reads the reasons."""
    if item.get_closest_marker("gpu") and not _has_cuda():
        pytest.skip("needs a CUDA device")
    if item.get_closest_marker("vllm") and importlib.util.find_spec("vllm") is None:
        pytest.skip("needs vLLM")
