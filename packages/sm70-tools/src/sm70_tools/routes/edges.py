"""Edge cases of the category nvfp4: one layer each, under a condition that the grid does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sm70_tools.routes.configurations import Configuration
from sm70_tools.routes.scopes import DENSE_27B, Role

_ONE_REQUEST = Configuration(DENSE_27B.name, "auto", 4, "none", 1, 4096)
_FOUR_REQUESTS = Configuration(DENSE_27B.name, "auto", 4, "none", 4, 4096)
_DRAFTED = Configuration(DENSE_27B.name, "auto", 4, "mtp", 1, 4096)

_ROLES = {role.name: role for role in DENSE_27B.roles}
_DOWN = _ROLES["down_proj"]


@dataclass(frozen=True)
class Edge:
    """One layer under one condition.

    Attributes:
        name: Last part of the row's name.
        about: What the row shows.
        role: The layer.
        configuration: How the engine serves it.
        settings: Section `sm70_nvfp4` of `--additional-config`.
        environment: Variables that the policy's reader of deprecated names sees.
        fault: What is broken: `weight`, `memory`, `operators`, `layout-abi`, or nothing.
        global_scales: The checkpoint's factor of each projection.
    """

    name: str
    about: str
    role: Role = _DOWN
    configuration: Configuration = _ONE_REQUEST
    settings: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    global_scales: tuple[float, ...] = ()

    def row_id(self, category: str) -> str:
        """The row's name."""
        return f"{category}/edge/{self.name}"


def _deprecated(variable: str, value: str) -> Edge:
    name = "deprecated-" + variable.removeprefix("VLLM_SM70_NVFP4_").lower().replace("_", "-")
    return Edge(name, f"{variable}={value}", environment={variable: value})


NVFP4_EDGES: tuple[Edge, ...] = (
    Edge("qpn4-prepared", "QPN4 is asked for and within its limits", settings={"qpn4": True}),
    Edge(
        "qpn4-preparation-fails",
        "QPN4 is chosen and the weight is invalid: an error that names the layer, and no other kernel",
        settings={"qpn4": True},
        fault="weight",
    ),
    Edge(
        "qpn4-workspace-fails",
        "QPN4 is chosen and memory runs out while it prepares: that error leaves the loader",
        settings={"qpn4": True},
        fault="memory",
    ),
    Edge(
        "qpn4-several-requests",
        "QPN4 is asked for in an engine of four requests",
        configuration=_FOUR_REQUESTS,
        settings={"qpn4": True},
    ),
    Edge(
        "qpn4-speculation",
        "QPN4 is asked for in an engine that drafts tokens",
        configuration=_DRAFTED,
        settings={"qpn4": True},
    ),
    Edge("operators-missing", "the installation holds no compiled kernels", fault="operators"),
    Edge("layout-abi-old", "the compiled kernels read an older layout", fault="layout-abi"),
    Edge(
        "codes-independent",
        "the projections of one layer were quantized apart, with global scales of their own",
        role=_ROLES["gate_up_proj"],
        global_scales=(0.5, 0.03125),
    ),
    Edge(
        "batch-before-compact",
        "many rows decode the weight into scratch earlier than a strip kernel's last row",
        configuration=_FOUR_REQUESTS,
        settings={"prefill_min_m": 4},
    ),
    Edge(
        "n-padded",
        "N = 24 on each rank, less than one strip",
        role=Role("in_proj_ba", "linear_attn", 5120, (48, 48), ("in_proj_b", "in_proj_a")),
    ),
    Edge(
        "k-of-general",
        "K = 4336 on each rank, a multiple of 16 but not of 128",
        role=Role("down_proj", "mlp", 4 * 4336, (5120,), ("down_proj",), splits_inputs=True),
    ),
    Edge(
        "k-unsupported",
        "K = 4328 on each rank, no multiple of 16",
        role=Role("down_proj", "mlp", 4 * 4328, (5120,), ("down_proj",), splits_inputs=True),
    ),
    Edge(
        "projection-renamed",
        "a projection under a name that no table lists",
        role=Role("w2_renamed", "mlp", 17408, (5120,), ("w2_renamed",), splits_inputs=True),
    ),
    _deprecated("VLLM_SM70_NVFP4_QPN2", "0"),
    _deprecated("VLLM_SM70_NVFP4_QPN2_PREFILL", "0"),
    _deprecated("VLLM_SM70_NVFP4_QPN2_SHARED_WEIGHT", "0"),
    _deprecated("VLLM_SM70_NVFP4_QPN2_SHARED_SCALES", "0"),
    _deprecated("VLLM_SM70_NVFP4_QPN2_PREFILL_MIN_M", "64"),
)
