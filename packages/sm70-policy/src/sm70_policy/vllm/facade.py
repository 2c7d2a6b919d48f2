"""What the facades of all formats share: when the suite takes a layer from vLLM, and what happens at load.

vLLM chooses a linear kernel before the layer's sizes are known. The suite therefore hands out a facade, which
chooses once the weights are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.capability import DeviceKind, Sm
from sm70_policy.errors import HostError, RouteError, Sm70Error, describe
from sm70_policy.problem import ActivationDtype
from sm70_policy.route import Policy, Route, choose_installed
from sm70_policy.vllm import engine
from sm70_policy.vllm import layer as layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_policy.capability import Device
    from sm70_policy.formats import WeightFormat
    from sm70_policy.provider import LinearKernel, QuantizedWeight
    from sm70_policy.vllm.report import Report


@dataclass(frozen=True)
class Family:
    """A format whose layers the suite takes from vLLM.

    Attributes:
        weight_format: The format.
        facade: Class name of its facade. In `VLLM_DISABLED_KERNELS` it disables all kernels of the format.
        no_stock_on: Cards for which vLLM refuses the format, or has no kernel that runs.
        stock_needs: What vLLM's own kernels need, for messages.
    """

    weight_format: WeightFormat
    facade: str
    no_stock_on: frozenset[Sm]
    stock_needs: str

    @property
    def section(self) -> str:
        """Section of the settings."""
        return f"sm70_{self.weight_format.name}"


@dataclass(frozen=True)
class Request:
    """What the user asked of vLLM itself for a kind of layer.

    Attributes:
        overrules: Why vLLM's own choice stands; empty where the user left the choice open.
        runs_anywhere: Whether what was asked for runs on every card.
        way_out: What leads to a kernel of vLLM that runs on every card; empty where this vLLM has none.
    """

    overrules: str = ""
    runs_anywhere: bool = False
    way_out: str = ""


@dataclass(frozen=True)
class Selection:
    """What the facade of one layer needs, fixed when vLLM asks for a kernel.

    Attributes:
        family: The layer's format.
        config: vLLM's configuration of the engine; None outside of one.
        device: Where the layer will run.
        policy: The engine's policy.
        report: The engine's report.
        activation: Torch dtype of the model.
        note: What to tell the user once when a kernel of the suite serves such a layer; empty for nothing.
        stock: Returns vLLM's own choice for the layer.
    """

    family: Family
    config: Any
    device: Device
    policy: Policy
    report: Report
    activation: Any
    note: str
    stock: Callable[[], Any]


def select(
    family: Family,
    device: Device | None,
    stock: Callable[[], Any],
    *,
    request: Request,
    make: Callable[[Selection], Any],
    note: str = "",
) -> Any:
    """A facade where the suite is wanted, else vLLM's own choice.

    Args:
        family: The layer's format.
        device: Where it will run; None on platforms that the suite has nothing for.
        stock: Returns vLLM's own choice.
        request: What the user asked of vLLM itself.
        make: Returns the facade.
        note: See `Selection`.

    Raises:
        RouteError: The user ruled the suite out on a card that vLLM has no kernel for.
    """
    if device is None:
        return stock()
    config = engine.current_config()
    policy = engine.policy_of(config)
    reason = request.overrules or _why_stock(family, device, policy)
    if not reason:
        report = engine.report_of(config, policy, device)
        return make(Selection(family, config, device, policy, report, _activation(config), note, stock))
    if device.sm in family.no_stock_on and not request.runs_anywhere:
        # Behind the gate that the suite lifts, vLLM would pick kernels that have no code for these cards.
        raise RouteError(
            describe(
                asked=f"a stock {family.weight_format.name.upper()} kernel on {device}, because {reason}",
                allowed=f"the suite's kernels{request.way_out and f', or {request.way_out}'}: vLLM's "
                f"{'other' if request.way_out else 'own'} kernels need {family.stock_needs}",
                fix="Remove that setting",
            )
        )
    return stock()


def _why_stock(family: Family, device: Device, policy: Policy) -> str:
    """Why vLLM's own choice stands; empty when the suite's kernels are to be asked."""
    if family.facade in policy.disabled:
        return f"{family.facade} is listed in VLLM_DISABLED_KERNELS"
    enabled = policy.settings.lookup(f"{family.section}.enabled")
    if enabled is False:
        return f"{family.section}.enabled is false"
    if enabled is None and not device.is_sm7x and device.kind is not DeviceKind.CPU:
        return (
            f"compute capability {device.sm} keeps vLLM's own kernel unless {family.section}.enabled is true"
        )
    return ""


def _activation(config: Any | None) -> Any:
    import torch

    model = getattr(config, "model_config", None)
    return torch.get_default_dtype() if model is None else model.dtype


class Facade:
    """The methods that vLLM calls of a linear kernel. A facade derives from this, and from vLLM's base class.

    Attributes:
        selection: What was fixed when vLLM asked.
        stock: vLLM's own choice, where it serves the layer after all.
    """

    selection: Selection
    stock: Any

    def begin(self, selection: Selection) -> None:
        """Set the attributes, and announce the layer to the report."""
        self.selection = selection
        self.stock = None
        selection.report.expect(self)

    @classmethod
    def is_supported(
        cls,
        compute_capability: int | None = None,
    ) -> tuple[bool, str | None]:
        """Whether the card is supported: decided before a facade is made."""
        return True, None

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        """Whether the layer is: decided when its weights are loaded."""
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Choose a kernel and give it the weight."""
        self.stock = _load(self, self.selection, layer)

    def apply_weights(self, layer: Any, x: Any, bias: Any = None) -> Any:
        """Run the layer."""
        if self.stock is not None:
            return self.apply_stock(layer, x, bias)
        return layer.sm70_linear(x, bias)

    def load_stock(self, stock: Any, layer: Any) -> None:
        """Give the weight to vLLM's own kernel."""
        stock.process_weights_after_loading(layer)

    def apply_stock(self, layer: Any, x: Any, bias: Any) -> Any:
        """Run the layer with vLLM's own kernel."""
        return self.stock.apply_weights(layer=layer, x=x, bias=bias)

    def name_of_stock(self, stock: Any) -> str:
        """What the report calls vLLM's own kernel."""
        return type(stock).__name__


def _load(owner: Facade, selection: Selection, layer: Any) -> Any:
    """Choose a kernel and give it the weight. Returns the stock kernel where no kernel of the suite fits."""
    problem = layers.problem_of(layer, selection.activation, selection.family.weight_format)
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
        settings = getattr(selection.policy.settings, selection.family.section)
        served_by = f"{_with_version(route.kernel)} with {settings}"
        engine.fingerprint(selection.config, problem.layer, served_by)
        selection.report.record(owner, route, route.kernel.name)
    return None


def _with_version(kernel: LinearKernel) -> str:
    for provider in registry.installed().providers:
        if kernel in provider.linear_kernels:
            return f"{kernel.name} of {provider.distribution} {provider.version}"
    return kernel.name


def _tell(selection: Selection, weight: QuantizedWeight) -> None:
    if selection.note:
        selection.report.say_once(selection.note)
    if bool((weight.row_factor != weight.row_factor[0]).any()):
        selection.report.say_once(
            "sm70: fused projections whose global scales differ are served exactly; vLLM's warning of "
            "reduced accuracy does not concern layers that the suite serves"
        )


def _without_kernel(owner: Facade, selection: Selection, route: Route, layer: Any) -> Any:
    if selection.device.kind is DeviceKind.CPU or selection.device.sm in selection.family.no_stock_on:
        selection.report.record(owner, route, None)
        raise RouteError(_no_kernel(route))
    from vllm.config import set_current_vllm_config

    # vLLM's selector reads the engine's configuration, which is no longer current while weights are loaded.
    with set_current_vllm_config(selection.config):
        stock = selection.stock()
    owner.load_stock(stock, layer)
    engine.fingerprint(selection.config, route.problem.layer, owner.name_of_stock(stock))
    selection.report.record(owner, route, owner.name_of_stock(stock))
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
