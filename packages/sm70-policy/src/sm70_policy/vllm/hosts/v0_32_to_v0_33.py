"""Adapter for vLLM 0.32 and 0.33. References to sources are to 0.33.0."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.capability import SM7X, VOLTA
from sm70_policy.errors import HostError, describe
from sm70_policy.formats import MXFP4, NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.route import Policy, choose_installed
from sm70_policy.vllm import engine, mxfp4, nvfp4, shards
from sm70_policy.vllm.ledger import MARKER, Patch, rebind

if TYPE_CHECKING:
    from sm70_policy.capability import Device, Sm
    from sm70_policy.formats import WeightFormat

_LINEAR = "vllm.model_executor.kernels.linear"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
_MODELOPT = f"{_QUANTIZATION}.modelopt"
_COMPRESSED = f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4"

_COMPRESSED_MX = f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_mxfp4"

_SELECTOR = "nvfp4-selector"
_MX_SELECTOR = "mxfp4-selector"
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
            _mx_selector_patch(),
            _shards_patch("modelopt", _MODELOPT, "ModelOptLinearMethod", "modelopt.py:2643"),
            _shards_patch(
                "compressed-tensors",
                _COMPRESSED,
                "CompressedTensorsW4A4Fp4",
                "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:95",
            ),
            *(_gate_patch(gate) for gate in _GATES),
        )


HOST = Host()


@dataclass(frozen=True)
class _Gate:
    """A minimum capability of vLLM that stops a format before any kernel is asked.

    Attributes:
        source: Which checkpoints it concerns, for the patch's name.
        weight_format: The format.
        module: Where the class is.
        owner: The class with `get_min_capability`.
        minimum: What that returns.
        stops: Cards below it for which the suite has kernels.
        selector: Patch without which an open gate would lead to kernels that cannot run.
        upstream: Where it is in vLLM's sources.
    """

    source: str
    weight_format: WeightFormat
    module: str
    owner: str
    minimum: int
    stops: frozenset[Sm]
    selector: str
    upstream: str

    @property
    def name(self) -> str:
        """The patch's name."""
        return f"{self.weight_format.name}-minimum-capability-{self.source}"


_GATES = (
    _Gate(
        "modelopt",
        NVFP4,
        _MODELOPT,
        "ModelOptNvFp4Config",
        75,
        VOLTA,
        _SELECTOR,
        "modelopt.py:772, config/vllm.py:930",
    ),
    _Gate(
        "compressed-tensors",
        NVFP4,
        _COMPRESSED,
        "CompressedTensorsW4A4Fp4",
        75,
        VOLTA,
        _SELECTOR,
        "compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:35, compressed_tensors.py:994",
    ),
    _Gate(
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


def _mx_selector_patch() -> Patch:
    def perform() -> None:
        original = _read(_LINEAR, "init_mxfp4_linear_kernel")
        rebind(original, mxfp4.wrap_selector(original, _device, _MX_SELECTOR), "init_mxfp4_linear_kernel")

    return Patch(
        name=_MX_SELECTOR,
        target=f"{_LINEAR}.init_mxfp4_linear_kernel",
        why="A kernel that is registered comes last, and before a layer has a shape. The wrapper is "
        "for all devices, because an explicit request must work everywhere; it passes calls through unless "
        "the policy wants them",
        upstream="model_executor/kernels/linear/__init__.py:1046",
        remove_when="registered kernels are asked first, and with the layer's shape",
        against=_everywhere,
        read=partial(_read, _LINEAR, "init_mxfp4_linear_kernel"),
        check=_check_mx_selector,
        perform=perform,
    )


def _check_selector() -> None:
    linear = importlib.import_module(_LINEAR)
    _expect_parameters(linear.init_nvfp4_linear_kernel, "init_nvfp4_linear_kernel", ["use_a16"])
    _check_kernel_base(linear, "NvFp4LinearKernel")


def _check_mx_selector() -> None:
    linear = importlib.import_module(_LINEAR)
    _expect_parameters(linear.init_mxfp4_linear_kernel, "init_mxfp4_linear_kernel", ["activation_quant_key"])
    _check_kernel_base(linear, "MxFp4LinearKernel")


def _check_kernel_base(linear: Any, name: str) -> None:
    _expect_parameters(linear._get_linear_backend, "_get_linear_backend", ["quantization"])  # noqa: SLF001
    methods = set(getattr(linear, name).__abstractmethods__)
    if methods != _KERNEL_METHODS:
        raise HostError(
            describe(
                asked=f"{name} with the abstract methods {sorted(methods)}",
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


def _gate_patch(gate: _Gate) -> Patch:
    read = partial(_read_function, gate.module, gate.owner, "get_min_capability")

    def check() -> None:
        minimum = _read(gate.module, gate.owner).get_min_capability()
        if minimum != gate.minimum:
            raise HostError(
                describe(
                    asked=f"{gate.owner}.get_min_capability() == {minimum}",
                    allowed=f"{gate.minimum}, which the patch was written for",
                    fix="Install a supported vLLM version, or a newer sm70-policy",
                )
            )

    def perform() -> None:
        def get_min_capability(cls: type) -> int:
            return _LIFTED_MINIMUM

        setattr(get_min_capability, MARKER, gate.name)
        _read(gate.module, gate.owner).get_min_capability = classmethod(get_min_capability)

    return Patch(
        name=gate.name,
        target=f"{gate.module}.{gate.owner}.get_min_capability",
        why=f"vLLM refuses {gate.weight_format.name.upper()} below compute capability {gate.minimum / 10} "
        "before any kernel is asked",
        upstream=gate.upstream,
        remove_when="vLLM asks its kernels instead of a constant, or the suite drops compute capability "
        f"{min(gate.stops)}",
        against=partial(_why_gate_stays, gate),
        read=read,
        check=check,
        perform=perform,
        requires=(gate.selector,),
    )


def _why_gate_stays(gate: _Gate, device: Device) -> str | None:
    """A gate is lifted only where it stands in the way, and only with a kernel behind it."""
    if device.sm not in gate.stops:
        return f"the gate does not stop {device}"
    probe = LinearProblem("the probe", gate.weight_format, n=128, k=128, activation=ActivationDtype.FLOAT16)
    # The default policy: a kernel that the user disabled must lead to the list of reasons at load, and a
    # closed gate would hide it.
    route = choose_installed(probe, device, registry.installed(), Policy())
    if route.kernel is None:
        reasons = "; ".join(f"{item.kernel}: {item.verdict}" for item in route.verdicts)
        return f"no installed kernel of the suite runs {gate.weight_format.name} there ({reasons})"
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
