"""The contract between the policy and the packages that bring kernels.

A package exposes one `Provider` object through the entry-point group `sm70.providers`. Loading that
object must import neither torch nor a compiled library: `supports` works from descriptors alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_policy.capability import Device
    from sm70_policy.problem import LinearProblem
    from sm70_policy.settings import Settings
    from sm70_policy.verdict import Verdict

ENTRY_POINT_GROUP = "sm70.providers"


@dataclass(frozen=True)
class QuantizedWeight:
    """A linear layer's quantized weight as the checkpoint holds it.

    Attributes:
        codes: uint8 [N, K/2]; the low nibble is the even column.
        scales: Of NVFP4 float8_e4m3fn [N, K/16]; of MXFP4 uint8 [N, K/32], E8M0 bytes.
        row_factor: float32 [N]; multiplies every row after the block scales. It carries the checkpoint's
            global scale, one value per fused shard spread over the shard's rows; ones where there is none.
    """

    codes: Tensor
    scales: Tensor
    row_factor: Tensor


@runtime_checkable
class PreparedLinear(Protocol):
    """A layer's weight, prepared for one kernel. In practice a `torch.nn.Module`."""

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ w^T + bias: x [..., K] to [..., N], in the problem's activation dtype."""
        ...


@runtime_checkable
class LinearKernel(Protocol):
    """One way to run a quantized linear layer.

    Attributes:
        name: Class name, as users write it into `VLLM_DISABLED_KERNELS`.
        priority: Kernels are asked in falling priority. Specialized native kernels use 200 to 299, general
            native kernels 100 to 199, portable fallbacks 50 to 99, references below 50.
        setting: Dotted name of the switch that turns it off, such as `sm70_nvfp4.qpn2`; None without one.
    """

    name: str
    priority: int
    setting: str | None

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        """Judge shapes, dtypes and capability. Pure: no device query, no import of torch."""
        ...

    def resident_bytes(self, problem: LinearProblem) -> int:
        """Bytes that stay on the device for this layer after `prepare`."""
        ...

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        """Build the resident form. Leaves `weight` untouched; the caller drops it afterwards.

        Args:
            problem: The layer.
            weight: Its checkpoint's tensors.
            settings: Those of the engine that the layer belongs to.

        Raises:
            WeightError: The tensors do not form a valid weight for `problem`.
        """
        ...


@dataclass(frozen=True)
class Provider:
    """What one package brings.

    Attributes:
        name: Name of the entry point.
        distribution: Name for `pip install`.
        version: Version of the distribution.
        contract: `CONTRACT_VERSION` that the package was written for.
        linear_kernels: Kernels for linear layers.
    """

    name: str
    distribution: str
    version: str
    contract: int
    linear_kernels: tuple[LinearKernel, ...] = ()
