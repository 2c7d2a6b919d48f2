"""A CUDA platform for vLLM on a machine without one. Must be installed before vLLM is imported."""

from __future__ import annotations

import sys
import types

from vllm_adapter.hosts_under_test import HOST

# What the wheels' libraries answer: the lowest capability that each query says yes to.
_NATIVE_ANSWERS = {
    "cutlass_scaled_mm_supports_fp8": 89,
    "cutlass_scaled_mm_supports_block_fp8": 90,
    "cutlass_scaled_mm_supports_fp4": 100,
}


def install(capability: int) -> None:
    """Make this process believe that it has one card of compute capability `capability`, such as 75."""
    for name in HOST.natives:
        sys.modules.setdefault(name, types.ModuleType(name))
    from vllm import platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class FakeCudaPlatform(CudaPlatformBase):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(*divmod(capability, 10))

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"fake card {capability}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 16 << 30

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 80

        @classmethod
        def device_count(cls) -> int:
            return 1

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

    platforms._current_platform = FakeCudaPlatform()
    from vllm import _custom_ops

    for name, lowest in _NATIVE_ANSWERS.items():
        setattr(_custom_ops, name, lambda asked, lowest=lowest: asked >= lowest)
