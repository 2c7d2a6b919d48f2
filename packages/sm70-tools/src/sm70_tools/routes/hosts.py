"""What a version of vLLM needs to run without its compiled libraries. Another version is another entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError


@dataclass(frozen=True)
class HostDouble:
    """What stands in for the compiled parts of one version.

    Attributes:
        version: Version of vLLM, exactly.
        native_modules: Compiled modules that its Python code imports; an empty module takes their place.
        native_answers: Queries in `vllm._custom_ops`, with the lowest capability that the wheel's
            library says yes to.
        stock_preparations: Classes (module, name) whose `process_weights_after_loading` calls compiled code.
        distributions: Packages whose presence changes vLLM's own choice, for the snapshot's list of versions.
    """

    version: str
    native_modules: tuple[str, ...]
    native_answers: Mapping[str, int]
    stock_preparations: tuple[tuple[str, str], ...]
    distributions: tuple[str, ...]


HOSTS: tuple[HostDouble, ...] = (
    HostDouble(
        version="0.33.0",
        native_modules=(
            "vllm._C_stable_libtorch",
            "vllm._moe_C_stable_libtorch",
            "vllm._qutlass_C",
            "vllm.vllm_flash_attn._vllm_fa2_C",
        ),
        native_answers={
            "cutlass_scaled_mm_supports_fp8": 89,
            "cutlass_scaled_mm_supports_block_fp8": 90,
            "cutlass_scaled_mm_supports_fp4": 100,
        },
        stock_preparations=(("vllm.model_executor.kernels.linear", "MarlinNvFp4LinearKernel"),),
        distributions=("compressed-tensors", "flashinfer-python", "humming-kernels", "triton"),
    ),
    HostDouble(
        version="0.19.1",
        native_modules=(
            "vllm._C",
            "vllm._moe_C",
            "vllm._C_stable_libtorch",
            "vllm.vllm_flash_attn._vllm_fa2_C",
        ),
        native_answers={
            "cutlass_scaled_mm_supports_fp8": 89,
            "cutlass_scaled_mm_supports_block_fp8": 90,
            "cutlass_scaled_mm_supports_fp4": 100,
        },
        stock_preparations=(),
        distributions=("compressed-tensors", "flashinfer-python", "triton"),
    ),
)

DEFAULT_HOST = HOSTS[0].version


def find_host(version: str) -> HostDouble:
    """The entry for a version of vLLM.

    Raises:
        ArgumentError: There is none; the message lists those that there are.
    """
    for host in HOSTS:
        if host.version == version:
            return host
    raise ArgumentError(
        describe(
            asked=f"routes in vLLM {version}",
            allowed=", ".join(host.version for host in HOSTS),
            fix="Pass one of these to --host, and install that version of vLLM",
        )
    )
