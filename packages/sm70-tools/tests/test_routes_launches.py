"""Launches in a snapshot are those of the operator: it runs here with a driver that only takes notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sm70_tools.errors import ArgumentError
from sm70_tools.routes.cards import ROUTED_CARDS, RoutedCard
from sm70_tools.routes.launches import OPERATORS, launches_of

ROWS = (1, 4, 5, 8, 9, 16, 17, 20, 32, 33, 36, 64, 72, 127, 128, 511, 1023, 1024, 4096)
SIZES = ((24, 5120), (3584, 5120), (5120, 4352), (2560, 160), (5120, 1536))
DENSE_PRODUCT = "aten::mm"


class Notes:
    """A loaded binary whose kernels note that they were launched."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def kernel(self, name: str) -> Any:
        def launch(plan: Any, *rest: object) -> None:
            x, y = plan.grid
            assert plan.kernel == name
            self.launched.append(f"{name} grid={x}x{y} threads={plan.threads} shared={plan.shared_bytes}")

        return SimpleNamespace(launch=launch)


@contextlib.contextmanager
def _no_guard(index: int | None) -> Iterator[None]:
    yield


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Put the notes in the place of the binary, and a stream in the place of torch's."""
    from sm70_kernels_cuda import binary, nvfp4, nvfp4_general, ops

    found = Notes()
    monkeypatch.setattr(binary, "module", lambda: found)
    for module in (nvfp4, nvfp4_general):
        monkeypatch.setattr(module, "current_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "_DeviceGuard", _no_guard)
    monkeypatch.setattr(ops, "_dense_product", lambda *tensors: found.launched.append(DENSE_PRODUCT))
    return found


def _pretend(card: RoutedCard, monkeypatch: pytest.MonkeyPatch) -> None:
    from sm70_kernels_cuda import nvfp4

    properties = SimpleNamespace(
        multi_processor_count=card.multiprocessors,
        shared_memory_per_block_optin=card.shared_bytes,
        major=card.card.sm.major,
        minor=card.card.sm.minor,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    nvfp4.kernels_for.cache_clear()


def _of(operator: str) -> Any:
    from sm70_kernels_cuda import kernel_set, ops

    name = operator.partition("::")[2]
    sets = {
        "nvfp4_linear": (kernel_set.NVFP4_KERNELS, kernel_set.NVFP4_HALF_KERNELS),
        "mxfp4_linear": (kernel_set.MXFP4_KERNELS,),
    }
    return ops._Linear.of(name, *sets[name])


@pytest.mark.parametrize("key", ["v100", "rtx8000", "a100"])
@pytest.mark.parametrize("qpn2", [True, False])
@pytest.mark.parametrize("dense_rows", [0, 5])
def test_launches_are_those_of_the_operators(
    key: str, qpn2: bool, dense_rows: int, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = ROUTED_CARDS[key]
    _pretend(card, monkeypatch)
    for operator in OPERATORS:
        linear = _of(operator)
        for n, k in SIZES:
            if qpn2 and k % 128:
                continue
            scalars = {"k": k, "qpn2": qpn2, "dense_rows": dense_rows}
            for block_bytes, kernels in linear.kernel_sets.items():
                weight = torch.empty(kernels.layout(n, k).storage_shape, dtype=torch.uint8)
                factor = torch.empty(n)
                launches = launches_of(operator, scalars, block_bytes, n, card)
                for m in ROWS:
                    notes.launched.clear()
                    x = torch.empty((m, k), dtype=torch.float16)
                    linear.cuda(x, weight, factor, None, k, qpn2, dense_rows)
                    assert launches(m) == "; ".join(notes.launched), (operator, n, k, m)


def test_an_unknown_operator_has_no_launches() -> None:
    assert launches_of("sm70::other", {}, 2304, 32, ROUTED_CARDS["v100"]) is None


def test_newer_cards_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"7\.x and 8\.x"):
        launches_of("sm70::nvfp4_linear", {"k": 128}, 2304, 32, ROUTED_CARDS["h100"])
