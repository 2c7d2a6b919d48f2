"""Launches in a snapshot are those of the operator: it runs here with a driver that only takes notes."""

from __future__ import annotations

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
    """What was launched, instead of a driver."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def kernel(self, name: str) -> str:
        return name

    def prepared(self, kernel: str, launch: Any, *rest: object) -> Any:
        """In the place of a `PreparedLaunch`."""
        x, y = launch.grid
        assert launch.kernel == kernel
        text = f"{kernel} grid={x}x{y} threads={launch.threads} shared={launch.shared_bytes}"
        return SimpleNamespace(enqueue=lambda *addresses: self.launched.append(text))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Put the notes in the place of the binary, and the CPU in that of torch's device."""
    from sm70_kernels_cuda import binary, nvfp4, nvfp4_general, prepared

    found = Notes()

    def dense(self: Any, x: torch.Tensor, *operands: object) -> torch.Tensor:
        self._decode(0, 0, 0, 0)
        found.launched.append(DENSE_PRODUCT)
        return x

    monkeypatch.setattr(binary, "module", lambda: found)
    for module in (nvfp4, nvfp4_general):
        monkeypatch.setattr(module, "PreparedLaunch", found.prepared)
    monkeypatch.setattr(prepared, "current_stream", lambda device: 0)
    monkeypatch.setattr(
        prepared, "empty_strided", lambda shape, strides, dtype: torch.empty(shape, dtype=dtype)
    )
    monkeypatch.setattr(prepared.PreparedDense, "call", dense)
    for name in ("exchange_device", "restore_device"):
        monkeypatch.setattr(prepared, name, lambda device: device)
    for name in ("_exchange_device", "_maybe_exchange_device"):
        monkeypatch.setattr(torch.cuda, name, lambda device: device)
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
