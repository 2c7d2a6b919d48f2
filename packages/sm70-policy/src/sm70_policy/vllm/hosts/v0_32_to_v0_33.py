"""Adapter for vLLM 0.32 and 0.33. References to sources are to 0.33.0."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.capability import VOLTA
from sm70_policy.errors import HostError, describe
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.route import Policy, choose_installed
from sm70_policy.vllm import engine, nvfp4, shards
from sm70_policy.vllm.ledger import MARKER, Patch, rebind

if TYPE_CHECKING:
    from sm70_policy.capability import Device

_LINEAR = "vllm.model_executor.kernels.linear"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
_MODELOPT = f"{_QUANTIZATION}.modelopt"
_COMPRESSED = f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4"

_SELECTOR = "nvfp4-selector"
_STOCK_MINIMUM = 75
_LIFTED_MINIMUM = 70
_KERNEL_METHODS = {"is_supported", "can_implement", "process_weights_after_loading", "apply_weights"}


class Host:
    """vLLM 0.32 and 0.33."""

    versions = "0.32.x, 0.33.x"

    def device(self) -> Device | None:
        """The device of this process' platform; None for platforms that the suite has nothing for."""
        return _device()

    def patches(self) -> tuple[Patch, ...]:
        """The ledger's patches, in the order in which they are applied."""
        return (
            _selector_patch(),
            _shards_patch("modelopt", _MODELOPT, "ModelOptLinearMethod", "modelopt.py:2643"),
            _shards_patch(
                "compressed-tensors",
                _COMPRESSED,
                "CompressedTensorsW4A4Fp4",
                "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:95",
            ),
            _gate_patch("modelopt", _MODELOPT, "ModelOptNvFp4Config", "modelopt.py:772, config/vllm.py:930"),
            _gate_patch(
                "compressed-tensors",
                _COMPRESSED,
                "CompressedTensorsW4A4Fp4",
                "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:35, compressed_tensors.py:994",
            ),
        )


HOST = Host()


def _device() -> Device | None:
    from vllm.platforms import current_platform

    return engine.platform_device(current_platform)


def _everywhere(device: Device) -> str | None:
    return None


def _selector_patch() -> Patch:
    def perform() -> None:
        original = _read(_LINEAR, "init_nvfp4_linear_kernel")
        rebind(original, nvfp4.wrap_selector(original, _device, _SELECTOR), "init_nvfp4_linear_kernel")

    return Patch(
        name=_SELECTOR,
        target=f"{_LINEAR}.init_nvfp4_linear_kernel",
        why="vLLM picks a W4A16 kernel by name and never asks its registry, so it does not reach a kernel "
        "that was registered. The wrapper is for all devices, because an explicit request must work "
        "everywhere; it passes calls through unless the policy wants them",
        upstream="model_executor/kernels/linear/__init__.py:1191",
        remove_when="init_nvfp4_linear_kernel asks registered kernels for W4A16 too, with the layer's shape",
        against=_everywhere,
        read=partial(_read, _LINEAR, "init_nvfp4_linear_kernel"),
        check=_check_selector,
        perform=perform,
    )


def _check_selector() -> None:
    linear = importlib.import_module(_LINEAR)
    _expect_parameters(linear.init_nvfp4_linear_kernel, "init_nvfp4_linear_kernel", ["use_a16"])
    _expect_parameters(linear._get_linear_backend, "_get_linear_backend", ["quantization"])  # noqa: SLF001
    methods = set(linear.NvFp4LinearKernel.__abstractmethods__)
    if methods != _KERNEL_METHODS:
        raise HostError(
            describe(
                asked=f"NvFp4LinearKernel with the abstract methods {sorted(methods)}",
                allowed=", ".join(sorted(_KERNEL_METHODS)),
                fix="Install a supported vLLM version, or a newer sm70-policy",
            )
        )


def _shards_patch(source: str, module: str, owner: str, upstream: str) -> Patch:
    name = f"nvfp4-shard-scales-{source}"
    read = partial(_read, module, owner, "process_weights_after_loading")

    def check() -> None:
        _expect_parameters(read(), f"{owner}.process_weights_after_loading", ["self", "layer"])

    def perform() -> None:
        wrapped = shards.keep_shard_factors(read(), name)
        _read(module, owner).process_weights_after_loading = wrapped

    return Patch(
        name=name,
        target=f"{module}.{owner}.process_weights_after_loading",
        why="vLLM reduces the global scales of fused projections to one and warns of reduced accuracy; the "
        "suite's kernels take one factor per row, so the wrapper keeps all of them. Layers of other kernels "
        "pass through",
        upstream=upstream,
        remove_when="vLLM hands a kernel the global scale of every shard",
        against=_everywhere,
        read=read,
        check=check,
        perform=perform,
        requires=(_SELECTOR,),
    )


def _gate_patch(source: str, module: str, owner: str, upstream: str) -> Patch:
    name = f"nvfp4-minimum-capability-{source}"
    read = partial(_read_function, module, owner, "get_min_capability")

    def check() -> None:
        minimum = _read(module, owner).get_min_capability()
        if minimum != _STOCK_MINIMUM:
            raise HostError(
                describe(
                    asked=f"{owner}.get_min_capability() == {minimum}",
                    allowed=f"{_STOCK_MINIMUM}, which the patch was written for",
                    fix="Install a supported vLLM version, or a newer sm70-policy",
                )
            )

    def perform() -> None:
        def get_min_capability(cls: type) -> int:
            return _LIFTED_MINIMUM

        setattr(get_min_capability, MARKER, name)
        _read(module, owner).get_min_capability = classmethod(get_min_capability)

    return Patch(
        name=name,
        target=f"{module}.{owner}.get_min_capability",
        why=f"vLLM refuses NVFP4 below compute capability {_STOCK_MINIMUM / 10} before any kernel is asked",
        upstream=upstream,
        remove_when="vLLM asks its kernels instead of a constant, or the suite drops compute capability 7.0",
        against=_why_gate_stays,
        read=read,
        check=check,
        perform=perform,
        requires=(_SELECTOR,),
    )


def _why_gate_stays(device: Device) -> str | None:
    """A gate is lifted only where it stands in the way, and only with a kernel behind it."""
    if device.sm not in VOLTA:
        return f"the gate does not stop {device}"
    probe = LinearProblem("the probe", NVFP4, n=128, k=128, activation=ActivationDtype.FLOAT16)
    # The default policy: a kernel that the user disabled must lead to the list of reasons at load, and a
    # closed gate would hide it.
    route = choose_installed(probe, device, registry.installed(), Policy())
    if route.kernel is None:
        reasons = "; ".join(f"{item.kernel}: {item.verdict}" for item in route.verdicts)
        return f"no installed kernel of the suite runs {NVFP4.name} there ({reasons})"
    return None


def _read(module: str, *names: str) -> Any:
    found: Any = importlib.import_module(module)
    for name in names:
        found = getattr(found, name)
    return found


def _read_function(module: str, owner: str, name: str) -> Any:
    # A class method's bound object is made anew on each access; the mark is on the function below it.
    return _read(module, owner, name).__func__


def _expect_parameters(function: Any, name: str, expected: list[str]) -> None:
    found = list(inspect.signature(function).parameters)
    if found != expected:
        raise HostError(
            describe(
                asked=f"{name} with the parameters {found}",
                allowed=f"{expected}",
                fix="Install a supported vLLM version, or a newer sm70-policy",
            )
        )
