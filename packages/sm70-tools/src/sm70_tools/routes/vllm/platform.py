"""A CUDA platform for vLLM where there is no card. It must be there before the rest of vLLM is imported."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sm70_tools.routes.cards import RoutedCard
    from sm70_tools.routes.hosts import HostDouble

_RANKS = 8


def pretend(card: RoutedCard, host: HostDouble) -> None:
    """Make vLLM in this process see eight of a card, and compiled libraries that nobody calls."""
    for name in host.native_modules:
        sys.modules.setdefault(name, ModuleType(name))
    platforms = importlib.import_module("vllm.platforms")
    platforms._current_platform = _platform_class(card)()  # type: ignore[attr-defined]  # noqa: SLF001
    operators = importlib.import_module("vllm._custom_ops")
    for name, lowest in host.native_answers.items():
        setattr(operators, name, lambda asked, lowest=lowest: asked >= lowest)
    for module, owner in host.stock_preparations:
        getattr(importlib.import_module(module), owner).process_weights_after_loading = _nothing


def _nothing(kernel: Any, layer: Any) -> None:
    """In the place of vLLM's compiled preparation."""


def _platform_class(routed: RoutedCard) -> Any:
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    card = routed.card

    class PretendedCuda(CudaPlatformBase):
        """vLLM's CUDA platform with a data sheet's answers."""

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(card.sm.major, card.sm.minor)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return card.name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return card.device.memory_bytes

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return routed.multiprocessors

        @classmethod
        def device_count(cls) -> int:
            return _RANKS

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

    return PretendedCuda
