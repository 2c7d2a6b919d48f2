"""NVFP4 linear layers: when the suite takes a layer from vLLM, and the kernel object that vLLM then sees.

vLLM chooses an NVFP4 kernel before the layer's sizes are known. The suite therefore hands out a facade, which
chooses once the weights are loaded.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.capability import VOLTA, DeviceKind
from sm70_policy.errors import HostError, RouteError, Sm70Error, describe
from sm70_policy.problem import ActivationDtype
from sm70_policy.route import Policy, Route, choose_installed
from sm70_policy.vllm import engine
from sm70_policy.vllm import layer as layers
from sm70_policy.vllm.ledger import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_policy.capability import Device
    from sm70_policy.provider import LinearKernel, QuantizedWeight
    from sm70_policy.vllm.report import Report

FACADE = "Sm70NvFp4LinearKernel"
"""Class name of the facade. In `VLLM_DISABLED_KERNELS` it disables all NVFP4 kernels of the suite."""


@dataclass(frozen=True)
class Selection:
    """What the facade of one layer needs, fixed when vLLM asks for a kernel.

    Attributes:
        config: vLLM's configuration of the engine; None outside of one.
        device: Where the layer will run.
        policy: The engine's policy.
        report: The engine's report.
        activation: Torch dtype of the model.
        use_a16: Whether the checkpoint itself is weight-only.
        stock: vLLM's own selector.
    """

    config: Any
    device: Device
    policy: Policy
    report: Report
    activation: Any
    use_a16: bool
    stock: Callable[..., Any]


def wrap_selector(original: Callable[..., Any], device: Callable[[], Device | None], name: str) -> Any:
    """Wrap `init_nvfp4_linear_kernel`: the suite's facade where it is wanted, else vLLM's own choice.

    Args:
        original: vLLM's selector.
        device: Returns the device of this process' platform.
        name: Name of the patch, as the mark of the wrapper.
    """

    @functools.wraps(original)
    def init_nvfp4_linear_kernel(use_a16: bool = False) -> Any:
        where = device()
        if where is None:
            return original(use_a16=use_a16)
        config = engine.current_config()
        policy = engine.policy_of(config)
        backend = _linear_backend(use_a16)
        reason = _why_stock(where, policy, backend)
        if reason is None:
            report = engine.report_of(config, policy, where)
            selection = Selection(config, where, policy, report, _activation(config), use_a16, original)
            return facade_class()(selection)
        if where.sm in VOLTA and not _stock_serves_volta(backend):
            raise RouteError(
                describe(
                    asked=f"a stock NVFP4 kernel on {where}, because {reason}",
                    allowed="the suite's kernels, or --linear-backend emulation: vLLM's other kernels need "
                    "compute capability 7.5",
                    fix="Remove that setting",
                )
            )
        return original(use_a16=use_a16)

    setattr(init_nvfp4_linear_kernel, MARKER, name)
    return init_nvfp4_linear_kernel


def _why_stock(device: Device, policy: Policy, backend: str) -> str | None:
    """Why vLLM's own choice stands; None when the suite's kernels are to be asked."""
    from vllm import envs

    if backend != "auto":
        return f"--linear-backend is {backend}"
    if envs.VLLM_BATCH_INVARIANT:
        return "VLLM_BATCH_INVARIANT is set"
    if FACADE in policy.disabled:
        return f"{FACADE} is listed in VLLM_DISABLED_KERNELS"
    enabled = policy.settings.sm70_nvfp4.enabled
    if enabled is False:
        return "sm70_nvfp4.enabled is false"
    if enabled is None and not device.is_sm7x and device.kind is not DeviceKind.CPU:
        return f"compute capability {device.sm} keeps vLLM's own kernel unless sm70_nvfp4.enabled is true"
    return None


def _stock_serves_volta(backend: str) -> bool:
    # Behind the gate that the suite lifts, vLLM would pick kernels that have no code for these cards.
    from vllm import envs

    return bool(envs.VLLM_BATCH_INVARIANT) or backend == "emulation"


def _linear_backend(use_a16: bool) -> str:
    from vllm.model_executor.kernels import linear

    return str(linear._get_linear_backend(quantization="nvfp4_w4a16" if use_a16 else "nvfp4_w4a4"))  # noqa: SLF001


def _activation(config: Any | None) -> Any:
    import torch

    model = getattr(config, "model_config", None)
    return torch.get_default_dtype() if model is None else model.dtype


def is_facade(kernel: object) -> bool:
    """Whether a layer's kernel object is the suite's."""
    return isinstance(kernel, facade_class())


@functools.cache
def facade_class() -> type[Any]:
    """The facade's class, derived from vLLM's base class when vLLM is there to derive from."""
    from vllm.model_executor.kernels.linear import NvFp4LinearKernel, NvFp4LinearLayerConfig

    class Sm70NvFp4LinearKernel(NvFp4LinearKernel):
        """NVFP4 kernel of the sm70 suite; which one runs is decided when the weights are loaded."""

        def __init__(self, selection: Selection) -> None:
            super().__init__(NvFp4LinearLayerConfig())
            self.selection = selection
            self.stock: Any = None
            selection.report.expect(self)

        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            return True, None

        @classmethod
        def can_implement(cls, config: Any) -> tuple[bool, str | None]:
            return True, None

        def process_weights_after_loading(self, layer: Any) -> None:
            self.stock = _load(self, self.selection, layer)

        def apply_weights(self, layer: Any, x: Any, bias: Any = None) -> Any:
            if self.stock is not None:
                return self.stock.apply_weights(layer=layer, x=x, bias=bias)
            return layer.sm70_linear(x, bias)

    return Sm70NvFp4LinearKernel


def _load(owner: object, selection: Selection, layer: Any) -> Any:
    """Choose a kernel and give it the weight. Returns the stock kernel where no kernel of the suite fits."""
    problem = layers.problem_of(layer, selection.activation)
    route = choose_installed(problem, selection.device, registry.installed(), selection.policy)
    if route.kernel is None:
        return _without_kernel(owner, selection, route, layer)
    weight = layers.weight_of(layer, problem)
    try:
        prepared = route.kernel.prepare(problem, weight, selection.policy.settings)
    except Sm70Error:
        raise
    except Exception as error:
        raise RouteError(
            f"{problem.layer}: {route.kernel.name} failed to prepare the weight (N={problem.n}, "
            f"K={problem.k}): {type(error).__name__}: {error}. Add {route.kernel.name} to "
            "VLLM_DISABLED_KERNELS to try the next kernel."
        ) from error
    reloaded = layers.install(layer, prepared)
    if not reloaded:
        _tell(selection, weight)
        engine.fingerprint(selection.config, problem.layer, _with_version(route.kernel))
        selection.report.record(owner, route, route.kernel.name)
    return None


def _with_version(kernel: LinearKernel) -> str:
    for provider in registry.installed().providers:
        if kernel in provider.linear_kernels:
            return f"{kernel.name} of {provider.distribution} {provider.version}"
    return kernel.name


def _tell(selection: Selection, weight: QuantizedWeight) -> None:
    if not selection.use_a16:
        selection.report.say_once(
            "sm70: the checkpoint quantizes activations as well (W4A4); the suite's kernels use its weights "
            "only and keep activations in 16 bits"
        )
    if bool((weight.row_factor != weight.row_factor[0]).any()):
        selection.report.say_once(
            "sm70: fused projections whose global scales differ are served exactly; vLLM's warning of "
            "reduced accuracy does not concern layers that the suite serves"
        )


def _without_kernel(owner: object, selection: Selection, route: Route, layer: Any) -> Any:
    if selection.device.kind is DeviceKind.CPU or selection.device.sm in VOLTA:
        selection.report.record(owner, route, None)
        raise RouteError(_no_kernel(route))
    from vllm.config import set_current_vllm_config

    # vLLM's selector reads the engine's configuration, which is no longer current while weights are loaded.
    with set_current_vllm_config(selection.config):
        stock = selection.stock(use_a16=selection.use_a16)
    stock.process_weights_after_loading(layer)
    engine.fingerprint(selection.config, route.problem.layer, type(stock).__name__)
    selection.report.record(owner, route, type(stock).__name__)
    return stock


def _no_kernel(route: Route) -> str:
    try:
        route.require()
    except RouteError as error:
        dtype = route.problem.activation
        if dtype is ActivationDtype.FLOAT16:
            return str(error)
        return f"{error}\nThe model runs in {dtype}: try --dtype float16."
    raise HostError(f"{route.problem.layer} has a kernel after all; this is a defect of the suite")
