"""What stands between vLLM and a row, without vLLM: shared preparation, noted calls, errors as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sm70_policy.capability import Device, Sm
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import Provider, QuantizedWeight
from sm70_policy.registry import Absence, Registry
from sm70_policy.settings import Nvfp4Settings, Settings
from sm70_policy.verdict import Rejection, Verdict
from sm70_tools.routes.vllm.grid import refusal
from sm70_tools.routes.vllm.layers import Calls
from sm70_tools.routes.vllm.sharing import SharedPreparation, with_shared_preparation

if TYPE_CHECKING:
    from sm70_policy.provider import PreparedLinear

REFUSAL = Rejection("k", "odd", "even")


@dataclass
class CountingKernel:
    """Counts how often it prepares, and keeps the codes as they are."""

    name: str = "CountingKernel"
    priority: int = 123
    setting: str | None = "sm70_nvfp4.qpn2"
    prepared: list[LinearProblem] = field(default_factory=list)

    def supports(self, problem: LinearProblem, device: Device) -> Verdict:
        return REFUSAL

    def resident_bytes(self, problem: LinearProblem) -> int:
        return 7

    def prepare(self, problem: LinearProblem, weight: QuantizedWeight, settings: Settings) -> PreparedLinear:
        self.prepared.append(problem)
        module: Any = torch.nn.Module()
        module.codes = torch.nn.Parameter(weight.codes.clone(), requires_grad=False)
        result: PreparedLinear = module
        return result


def problem(layer: str, n: int = 32, k: int = 128) -> LinearProblem:
    return LinearProblem(layer, NVFP4, n, k, ActivationDtype.FLOAT16)


def weight(n: int = 32, k: int = 128) -> QuantizedWeight:
    return QuantizedWeight(
        torch.zeros((n, k // 2), dtype=torch.uint8), torch.ones((n, k // 16)), torch.ones(n)
    )


def test_equal_sizes_are_prepared_once_and_copied() -> None:
    kernel = CountingKernel()
    shared = SharedPreparation(kernel)
    first: Any = shared.prepare(problem("a"), weight(), Settings())
    second: Any = shared.prepare(problem("b"), weight(), Settings())
    assert len(kernel.prepared) == 1
    assert first is not second
    assert first.codes.device.type == second.codes.device.type == "meta"
    assert first.codes.shape == (32, 64)


@pytest.mark.parametrize(
    "other",
    [
        (problem("a", n=64), Settings()),
        (problem("a", k=256), Settings()),
        (problem("a"), Settings(sm70_nvfp4=Nvfp4Settings(prefill_min_m=5))),
    ],
)
def test_what_a_preparation_depends_on_is_prepared_anew(other: tuple[LinearProblem, Settings]) -> None:
    kernel = CountingKernel()
    shared = SharedPreparation(kernel)
    shared.prepare(problem("a"), weight(), Settings())
    asked, settings = other
    prepared: Any = shared.prepare(asked, weight(asked.n, asked.k), settings)
    assert len(kernel.prepared) == 2
    assert prepared.codes.shape == (asked.n, asked.k // 2)


def test_verdicts_and_names_are_the_kernels_own() -> None:
    absence = Absence("sm70-moe", REFUSAL)
    provider = Provider("counting", "counting-kernels", "1", 1, (CountingKernel(),))
    shared = with_shared_preparation(Registry((provider,), (absence,)))
    (kernel,) = shared.linear_kernels()
    assert (kernel.name, kernel.priority, kernel.setting) == ("CountingKernel", 123, "sm70_nvfp4.qpn2")
    assert kernel.supports(problem("a"), Device.cuda(Sm(7, 0))) is REFUSAL
    assert kernel.resident_bytes(problem("a")) == 7
    assert shared.absences == (absence,)


def test_the_operator_is_noted_with_its_scalars_in_their_order() -> None:
    from sm70_kernels_cuda import ops  # noqa: F401 - registers the operator

    x = torch.empty((3, 128), dtype=torch.float16, device="meta")
    packed = torch.empty((2, 1, 2304), dtype=torch.uint8, device="meta")
    with Calls() as calls:
        y = torch.ops.sm70.nvfp4_linear(
            x + 1, packed, torch.empty(32, device="meta"), None, 128, dense_rows=7
        )
    (call,) = calls.found
    assert call.text == "sm70::nvfp4_linear(k=128, qpn2=True, dense_rows=7)"
    assert call.tensors["weight"] == (torch.uint8, (2, 1, 2304))
    assert y.shape == (3, 32)


class ValidationError(Exception):
    """Named as pydantic's."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("first\n  second: reason"), "RuntimeError: first"),
        (MemoryError(), "MemoryError: "),
        (ValueError("<object at 0x7f12ab34cd>"), "ValueError: <object at 0x...>"),
        (
            ValidationError(
                "1 validation error for Config\n  Value error, not on 7.0. [type=value_error]\n"
                "    For further information visit a page"
            ),
            "ValidationError: not on 7.0.",
        ),
        (
            ValidationError(
                "1 validation error for Config\nmethod\n  Input should be 'a' [type=literal_error]"
            ),
            "ValidationError: method Input should be 'a'",
        ),
    ],
)
def test_an_error_is_the_same_text_everywhere(error: Exception, text: str) -> None:
    assert refusal(error) == text


def test_a_long_error_is_cut() -> None:
    assert refusal(ValueError("x" * 1000)) == "ValueError: " + "x" * 400 + " ..."
