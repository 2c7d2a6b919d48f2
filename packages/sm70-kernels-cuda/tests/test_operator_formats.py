"""MXFP4 and QPN4 above the kernels: classes, verdicts, operators, and what is resident."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mxfp4_oracle import every_code_and_exponent, random_mx
from nvfp4_checks import assert_within_twice, fp16_product
from nvfp4_oracle import every_code_and_scale, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.block_layout_kernel import BlockLayoutKernel
from sm70_kernels_cuda.layouts.mxfp4_block import Mxfp4Block
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.modules import PackedLinear, PackedMxfp4Linear
from sm70_kernels_cuda.provider import PROVIDER
from sm70_kernels_cuda.qpn2 import Qpn2MxFp4LinearKernel, Qpn2NvFp4LinearKernel
from sm70_kernels_cuda.qpn4 import Qpn4NvFp4LinearKernel
from sm70_kernels_cuda.reference import CpuReferenceMxFp4LinearKernel
from sm70_kernels_cuda.turbomind import TurboMindMxFp4LinearKernel
from sm70_policy.capability import Device, Sm, find_card
from sm70_policy.errors import ProblemError, WeightError
from sm70_policy.formats import MXFP4, NVFP4, WeightFormat
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import LinearKernel, QuantizedWeight
from sm70_policy.qualification import Workload
from sm70_policy.route import Policy, choose
from sm70_policy.settings import Settings
from sm70_policy.verdict import SUPPORTED, Rejection

if TYPE_CHECKING:
    from nvfp4_oracle import Checkpoint

V100 = find_card("v100").device
MX_KERNELS: list[LinearKernel] = [
    Qpn2MxFp4LinearKernel(),
    TurboMindMxFp4LinearKernel(),
    CpuReferenceMxFp4LinearKernel(),
]
KERNELS: list[LinearKernel] = [*MX_KERNELS, Qpn4NvFp4LinearKernel()]
EACH_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
PACKED = pytest.mark.parametrize(
    "kernel",
    [item for item in KERNELS if isinstance(item, BlockLayoutKernel)],
    ids=lambda kernel: kernel.name,
)


def _problem(n: int, k: int, weight_format: WeightFormat = MXFP4) -> LinearProblem:
    return LinearProblem("model.layers.0.mlp.down_proj", weight_format, n, k, ActivationDtype.FLOAT16)


def _random(kernel: LinearKernel, rng: np.random.Generator, n: int, k: int) -> Checkpoint:
    return random_checkpoint(rng, n, k) if kernel.name.startswith("Qpn4") else random_mx(rng, n, k)


def _prepare(
    kernel: LinearKernel, checkpoint: Checkpoint, settings: Settings | None = None
) -> torch.nn.Module:
    is_nvfp4 = checkpoint.shape[1] // checkpoint.scales.shape[1] == 16
    scales = torch.from_numpy(checkpoint.scales)
    weight = QuantizedWeight(
        torch.from_numpy(checkpoint.codes),
        scales.view(torch.float8_e4m3fn) if is_nvfp4 else scales,
        torch.from_numpy(checkpoint.row_factor),
    )
    problem = _problem(*checkpoint.shape, NVFP4 if is_nvfp4 else MXFP4)
    layer = kernel.prepare(problem, weight, settings or Settings())
    assert isinstance(layer, torch.nn.Module)
    return layer


@EACH_KERNEL
def test_identity_returns_the_decoded_weight(kernel: LinearKernel) -> None:
    checkpoint = every_code_and_scale() if kernel.name.startswith("Qpn4") else every_code_and_exponent()
    result = _prepare(kernel, checkpoint)(torch.eye(128, dtype=torch.float16)).numpy()
    assert np.array_equal(result, checkpoint.rounded().T)


@EACH_KERNEL
@pytest.mark.parametrize("m", [1, 33])
def test_dense_rows_match_the_oracle(kernel: LinearKernel, m: int, rng: np.random.Generator) -> None:
    checkpoint = _random(kernel, rng, 45, 384)
    x = rng.standard_normal((m, 384)).astype(np.float16)
    bias = rng.standard_normal(45).astype(np.float16)
    result = _prepare(kernel, checkpoint)(torch.from_numpy(x), torch.from_numpy(bias)).numpy()
    oracle = x.astype(np.float64) @ checkpoint.values().T + bias.astype(np.float64)
    baseline = fp16_product(x, checkpoint.values().astype(np.float16), bias)
    assert_within_twice(result, baseline, oracle, f"{kernel.name} M={m}")


@EACH_KERNEL
def test_resident_bytes_are_what_stays(kernel: LinearKernel, rng: np.random.Generator) -> None:
    checkpoint = _random(kernel, rng, 45, 384)
    layer = _prepare(kernel, checkpoint)
    resident = sum(item.numel() * item.element_size() for item in layer.parameters())
    weight_format = NVFP4 if kernel.name.startswith("Qpn4") else MXFP4
    assert resident == kernel.resident_bytes(_problem(45, 384, weight_format))


def test_the_sizes_are_those_of_the_formats() -> None:
    problem, nvfp4 = _problem(4096, 4096), _problem(4096, 4096, NVFP4)
    qpn4, qpn2 = Qpn4NvFp4LinearKernel(), Qpn2NvFp4LinearKernel()
    assert Qpn2MxFp4LinearKernel().resident_bytes(problem) == problem.weight_bytes + 4 * 4096
    assert qpn2.resident_bytes(nvfp4) == nvfp4.weight_bytes + 4 * 4096
    assert qpn4.resident_bytes(nvfp4) == qpn2.resident_bytes(nvfp4) + 4096 * 4096 // 16


@pytest.mark.parametrize("kernel", MX_KERNELS, ids=lambda kernel: kernel.name)
def test_a_nan_scale_is_refused_with_the_layer_named(kernel: LinearKernel, rng: np.random.Generator) -> None:
    checkpoint = random_mx(rng, 45, 384)
    checkpoint.scales[3, 4] = 255
    with pytest.raises(WeightError, match=r"model\.layers\.0\.mlp\.down_proj: 1 NaN"):
        _prepare(kernel, checkpoint)


def test_a_row_of_many_octaves_is_for_the_cpu_alone(rng: np.random.Generator) -> None:
    checkpoint = random_mx(rng, 45, 384)
    checkpoint.codes[3, :32] = 0x11
    checkpoint.scales[3, :2] = (120, 90)
    for kernel in MX_KERNELS[:2]:
        with pytest.raises(
            WeightError, match=r"down_proj: MXFP4 scales from 2\^-37 to 2\^-\d+ in output row 3"
        ):
            _prepare(kernel, checkpoint)
    result = _prepare(MX_KERNELS[2], checkpoint)(torch.eye(384, dtype=torch.float16)).numpy()
    assert np.array_equal(result, checkpoint.rounded().T)


@PACKED
def test_opcheck(kernel: LinearKernel, rng: np.random.Generator) -> None:
    layer = _prepare(kernel, _random(kernel, rng, 40, 256))
    assert isinstance(layer, PackedLinear)
    operator = (
        torch.ops.sm70.mxfp4_linear if isinstance(layer, PackedMxfp4Linear) else torch.ops.sm70.nvfp4_linear
    )
    bias = torch.zeros(40, dtype=torch.float16)
    torch.library.opcheck(
        operator.default, (torch.randn(3, 256).half(), layer.weight, layer.row_factor, bias, 256, layer.qpn2)
    )


@PACKED
def test_the_fake_has_the_shape_of_the_result(kernel: LinearKernel, rng: np.random.Generator) -> None:
    layer = _prepare(kernel, _random(kernel, rng, 40, 256))
    x = torch.randn(2, 3, 256).half()
    real = layer(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = layer(mode.from_tensor(x))
    assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


@PACKED
def test_one_traced_graph_serves_all_row_counts(kernel: LinearKernel, rng: np.random.Generator) -> None:
    layer = _prepare(kernel, _random(kernel, rng, 40, 256))
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    x = torch.randn(5, 256).half()
    torch._dynamo.mark_dynamic(x, 0)
    assert torch.equal(compiled(x), layer(x))
    with torch.compiler.set_stance("fail_on_recompile"):
        for m in (2, 32, 70):
            rows = torch.randn(m, 256).half()
            assert torch.equal(compiled(rows), layer(rows))


@PACKED
def test_the_prefill_setting_of_the_format_reaches_the_operator(
    kernel: LinearKernel, rng: np.random.Generator
) -> None:
    checkpoint = _random(kernel, rng, 40, 256)
    section, other = (
        ("sm70_nvfp4", "sm70_mxfp4") if kernel.name.startswith("Qpn4") else ("sm70_mxfp4", "sm70_nvfp4")
    )
    for mapping, expected in (({section: {"prefill_min_m": 7}}, 7), ({other: {"prefill_min_m": 7}}, 0)):
        assert _prepare(kernel, checkpoint, Settings.from_mapping(mapping)).dense_rows == expected


@pytest.mark.parametrize(
    ("k", "qpn2", "words"), [(192, True, "multiples of 128"), (272, False, "multiples of 32")]
)
def test_a_k_that_the_kernels_cannot_take_is_refused(k: int, qpn2: bool, words: str) -> None:
    weight = torch.zeros(Mxfp4Block(32, k).storage_shape, dtype=torch.uint8)
    with pytest.raises(ProblemError, match=f"mxfp4_linear.*{words}"):
        torch.ops.sm70.mxfp4_linear(torch.zeros(1, k).half(), weight, torch.ones(32), None, k, qpn2)


@pytest.mark.parametrize("operator", ["nvfp4_linear", "mxfp4_linear"])
def test_a_weight_of_the_other_format_is_refused(operator: str) -> None:
    layout = Mxfp4Block if operator == "nvfp4_linear" else Nvfp4Block
    weight = torch.zeros(layout(32, 256).storage_shape, dtype=torch.uint8)
    with pytest.raises(ProblemError, match=f"sm70::{operator} with .*weight of dtype"):
        getattr(torch.ops.sm70, operator)(torch.zeros(1, 256).half(), weight, torch.ones(32), None, 256)


def _choice(weight_format: WeightFormat, k: int, **policy: object) -> tuple[str | None, dict[str, str]]:
    nvfp4 = policy.pop("nvfp4", {})
    settings = Settings.from_mapping({"sm70_nvfp4": nvfp4, "sm70_mxfp4": policy.pop("mxfp4", {})})
    workload = policy.pop("workload", Workload())
    assert isinstance(workload, Workload)
    kernels = sorted(PROVIDER.linear_kernels, key=lambda kernel: -kernel.priority)
    route = choose(_problem(100, k, weight_format), V100, kernels, policy=Policy(settings, workload=workload))
    codes = {item.kernel: item.verdict.code for item in route.verdicts if isinstance(item.verdict, Rejection)}
    return (route.kernel.name if route.kernel else None), codes


ONE = Workload(1, speculative=False)


def test_qpn4_is_chosen_on_request_and_where_it_is_admitted() -> None:
    assert _choice(NVFP4, 256, workload=ONE)[0] == "Qpn2NvFp4LinearKernel"
    assert _choice(NVFP4, 256, workload=ONE, nvfp4={"qpn4": True})[0] == "Qpn4NvFp4LinearKernel"
    name, codes = _choice(NVFP4, 256, nvfp4={"qpn4": True})
    assert (name, codes["Qpn4NvFp4LinearKernel"]) == ("Qpn2NvFp4LinearKernel", "not-qualified")
    name, codes = _choice(NVFP4, 192, workload=ONE, nvfp4={"qpn4": True})
    assert (name, codes["Qpn4NvFp4LinearKernel"]) == ("TurboMindNvFp4LinearKernel", "k-not-multiple")


@pytest.mark.parametrize(
    ("k", "name"), [(256, "Qpn2MxFp4LinearKernel"), (96, "TurboMindMxFp4LinearKernel"), (80, None)]
)
def test_mxfp4_is_chosen_by_k(k: int, name: str | None) -> None:
    assert _choice(MXFP4, k)[0] == name


def test_qpn2_of_mxfp4_has_its_own_switch() -> None:
    assert _choice(MXFP4, 256, mxfp4={"qpn2": False})[0] == "TurboMindMxFp4LinearKernel"
    assert _choice(MXFP4, 256, nvfp4={"qpn2": False})[0] == "Qpn2MxFp4LinearKernel"


def test_priorities_are_those_that_users_know() -> None:
    names = [kernel.name for kernel in sorted(PROVIDER.linear_kernels, key=lambda kernel: -kernel.priority)]
    nvfp4 = [name for name in names if "NvFp4" in name and not name.startswith("Cpu")]
    qpn2 = ["Qpn2NvFp4LinearKernel", "TuringQpn2NvFp4LinearKernel"]
    assert nvfp4 == ["Qpn4NvFp4LinearKernel", *qpn2, "TurboMindNvFp4LinearKernel"]


@PACKED
def test_a_binary_for_other_layouts_is_a_reason(
    kernel: LinearKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _problem(100, 256, NVFP4 if kernel.name.startswith("Qpn4") else MXFP4)
    assert kernel.supports(problem, Device.cuda(Sm(7, 0))) == SUPPORTED
    monkeypatch.setattr(binary, "layout_abi", lambda: None)
    verdict = kernel.supports(problem, V100)
    assert isinstance(verdict, Rejection)
    assert verdict.code == "binary-layout"
    assert "read layout ABI None" in verdict.message
