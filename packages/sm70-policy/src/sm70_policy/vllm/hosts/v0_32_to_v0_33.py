"""Adapter for vLLM 0.32 and 0.33. References to sources are to 0.33.0."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from sm70_policy.capability import SM7X, VOLTA
from sm70_policy.formats import MXFP4, NVFP4
from sm70_policy.vllm import engine, mxfp4, nvfp4, shards
from sm70_policy.vllm.hosts.gates import Gate, gate_patch
from sm70_policy.vllm.hosts.targets import expect_parameters, read, unexpected
from sm70_policy.vllm.ledger import Patch, everywhere, rebind

if TYPE_CHECKING:
    from sm70_policy.capability import Device

_LINEAR = "vllm.model_executor.kernels.linear"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
_MODELOPT = f"{_QUANTIZATION}.modelopt"
_COMPRESSED = f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4"

_COMPRESSED_MX = f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_mxfp4"

_SELECTOR = "nvfp4-selector"
_MX_SELECTOR = "mxfp4-selector"
_KERNEL_METHODS = {"is_supported", "can_implement", "process_weights_after_loading", "apply_weights"}


class Host:
    """vLLM 0.32 and 0.33."""

    versions = "0.32.x, 0.33.x"

    def device(self) -> Device | None:
        """The device of this process' platform; None for platforms that the suite has nothing for."""
        return engine.first_device()

    def patches(self) -> tuple[Patch, ...]:
        """The ledger's patches, in the order in which they are applied."""
        return (
            _selector_patch(),
            _mx_selector_patch(),
            _shards_patch("modelopt", _MODELOPT, "ModelOptLinearMethod", "modelopt.py:2643"),
            _shards_patch(
                "compressed-tensors",
                _COMPRESSED,
                "CompressedTensorsW4A4Fp4",
                "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:95",
            ),
            *(gate_patch(gate) for gate in _GATES),
        )


HOST = Host()

_shards_patch = partial(shards.patch, attribute="kernel", requires=_SELECTOR)

_GATES = (
    Gate(
        "modelopt",
        NVFP4,
        _MODELOPT,
        "ModelOptNvFp4Config",
        75,
        VOLTA,
        _SELECTOR,
        "modelopt.py:772, config/vllm.py:930",
    ),
    Gate(
        "compressed-tensors",
        NVFP4,
        _COMPRESSED,
        "CompressedTensorsW4A4Fp4",
        75,
        VOLTA,
        _SELECTOR,
        "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:35, compressed_tensors.py:994",
    ),
    Gate(
        "compressed-tensors",
        MXFP4,
        _COMPRESSED_MX,
        "CompressedTensorsW4A4Mxfp4",
        80,
        SM7X,
        _MX_SELECTOR,
        "compressed_tensors/schemes/compressed_tensors_w4a4_mxfp4.py:46, compressed_tensors.py:994",
    ),
)


def _selector_patch() -> Patch:
    def perform() -> None:
        original = read(_LINEAR, "init_nvfp4_linear_kernel")
        rebind(original, nvfp4.wrap_selector(original, _SELECTOR), "init_nvfp4_linear_kernel")

    return Patch(
        name=_SELECTOR,
        target=f"{_LINEAR}.init_nvfp4_linear_kernel",
        why="vLLM picks a W4A16 kernel by name and never asks its registry, so it does not reach a kernel "
        "that was registered. The wrapper is for all devices, because an explicit request must work "
        "everywhere; it passes calls through unless the policy wants them",
        upstream="model_executor/kernels/linear/__init__.py:1191",
        remove_when="init_nvfp4_linear_kernel asks registered kernels for W4A16 too, with the layer's shape",
        against=everywhere,
        read=partial(read, _LINEAR, "init_nvfp4_linear_kernel"),
        check=_check_selector,
        perform=perform,
    )


def _mx_selector_patch() -> Patch:
    def perform() -> None:
        original = read(_LINEAR, "init_mxfp4_linear_kernel")
        rebind(original, mxfp4.wrap_selector(original, _MX_SELECTOR), "init_mxfp4_linear_kernel")

    return Patch(
        name=_MX_SELECTOR,
        target=f"{_LINEAR}.init_mxfp4_linear_kernel",
        why="A kernel that is registered comes last, and before a layer has a shape. The wrapper is "
        "for all devices, because an explicit request must work everywhere; it passes calls through unless "
        "the policy wants them",
        upstream="model_executor/kernels/linear/__init__.py:1046",
        remove_when="registered kernels are asked first, and with the layer's shape",
        against=everywhere,
        read=partial(read, _LINEAR, "init_mxfp4_linear_kernel"),
        check=_check_mx_selector,
        perform=perform,
    )


def _check_selector() -> None:
    linear = importlib.import_module(_LINEAR)
    expect_parameters(linear.init_nvfp4_linear_kernel, "init_nvfp4_linear_kernel", ["use_a16"])
    _check_kernel_base(linear, "NvFp4LinearKernel")


def _check_mx_selector() -> None:
    linear = importlib.import_module(_LINEAR)
    expect_parameters(linear.init_mxfp4_linear_kernel, "init_mxfp4_linear_kernel", ["activation_quant_key"])
    _check_kernel_base(linear, "MxFp4LinearKernel")


def _check_kernel_base(linear: Any, name: str) -> None:
    expect_parameters(linear._get_linear_backend, "_get_linear_backend", ["quantization"])  # noqa: SLF001
    methods = set(getattr(linear, name).__abstractmethods__)
    if methods != _KERNEL_METHODS:
        raise unexpected(
            f"{name} with the abstract methods {sorted(methods)}", ", ".join(sorted(_KERNEL_METHODS))
        )
