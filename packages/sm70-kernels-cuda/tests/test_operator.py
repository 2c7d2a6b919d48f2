"""The operator and the prepared modules on the CPU, and what compilers see of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nvfp4_checks import assert_within_twice, fp16_product
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.modules import DenseLinear, PackedLinear
from sm70_kernels_cuda.qpn2 import Qpn2NvFp4LinearKernel, TuringQpn2NvFp4LinearKernel
from sm70_kernels_cuda.reference import CpuReferenceNvFp4LinearKernel
from sm70_kernels_cuda.turbomind import TurboMindNvFp4LinearKernel
from sm70_policy.errors import ProblemError, WeightError
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import QuantizedWeight
from sm70_policy.settings import Nvfp4Settings, Settings

KERNELS = [
    Qpn2NvFp4LinearKernel(),
    TuringQpn2NvFp4LinearKernel(),
    TurboMindNvFp4LinearKernel(),
    CpuReferenceNvFp4LinearKernel(),
]
EACH_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def quantized(checkpoint: Checkpoint) -> QuantizedWeight:
    return QuantizedWeight(
        torch.from_numpy(checkpoint.codes),
        torch.from_numpy(checkpoint.scales).view(torch.float8_e4m3fn),
        torch.from_numpy(checkpoint.row_factor),
    )


def problem(checkpoint: Checkpoint, activation: ActivationDtype = ActivationDtype.FLOAT16) -> LinearProblem:
    n, k = checkpoint.shape
    return LinearProblem("model.layers.0.mlp.down_proj", NVFP4, n, k, activation)


@EACH_KERNEL
def test_identity_returns_the_decoded_weight(kernel: Qpn2NvFp4LinearKernel) -> None:
    checkpoint = every_code_and_scale()
    layer = kernel.prepare(problem(checkpoint), quantized(checkpoint), Settings())
    result = layer(torch.eye(128, dtype=torch.float16)).numpy()
    assert np.array_equal(result, checkpoint.rounded().T)


@EACH_KERNEL
@pytest.mark.parametrize("m", [1, 5, 32, 33])
def test_dense_rows_match_the_oracle(kernel: Qpn2NvFp4LinearKernel, m: int, rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 45, 384)
    layer = kernel.prepare(problem(checkpoint), quantized(checkpoint), Settings())
    x = rng.standard_normal((m, 384)).astype(np.float16)
    bias = rng.standard_normal(45).astype(np.float16)
    result = layer(torch.from_numpy(x), torch.from_numpy(bias)).numpy()
    oracle = x.astype(np.float64) @ checkpoint.values().T + bias.astype(np.float64)
    baseline = fp16_product(x, checkpoint.values().astype(np.float16), bias)
    assert_within_twice(result, baseline, oracle, f"{type(layer).__name__} M={m}")


@EACH_KERNEL
def test_resident_bytes_are_what_stays(kernel: Qpn2NvFp4LinearKernel, rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 45, 384)
    layer = kernel.prepare(problem(checkpoint), quantized(checkpoint), Settings())
    assert isinstance(layer, torch.nn.Module)
    resident = sum(item.numel() * item.element_size() for item in layer.parameters())
    assert resident == kernel.resident_bytes(problem(checkpoint))


@EACH_KERNEL
def test_preparing_neither_changes_nor_keeps_the_checkpoint(
    kernel: Qpn2NvFp4LinearKernel, rng: np.random.Generator
) -> None:
    checkpoint = random_checkpoint(rng, 45, 384)
    weight = quantized(checkpoint)
    before = [item.clone() for item in (weight.codes, weight.scales.view(torch.uint8), weight.row_factor)]
    layer = kernel.prepare(problem(checkpoint), weight, Settings())
    after = (weight.codes, weight.scales.view(torch.uint8), weight.row_factor)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert isinstance(layer, torch.nn.Module)
    sources = {item.untyped_storage().data_ptr() for item in after}
    assert sources.isdisjoint(item.untyped_storage().data_ptr() for item in layer.parameters())


@EACH_KERNEL
def test_a_bad_weight_is_refused_with_the_layer_named(
    kernel: Qpn2NvFp4LinearKernel, rng: np.random.Generator
) -> None:
    checkpoint = random_checkpoint(rng, 45, 384)
    checkpoint.scales[3, 4] = 0x7F
    with pytest.raises(WeightError, match=r"model\.layers\.0\.mlp\.down_proj: 1 NaN"):
        kernel.prepare(problem(checkpoint), quantized(checkpoint), Settings())


@pytest.mark.parametrize("activation", list(ActivationDtype))
def test_the_reference_serves_every_dtype(activation: ActivationDtype, rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 24, 48)
    kernel = CpuReferenceNvFp4LinearKernel()
    layer = kernel.prepare(problem(checkpoint, activation), quantized(checkpoint), Settings())
    assert isinstance(layer, DenseLinear)
    x = torch.from_numpy(rng.standard_normal((3, 48))).to(getattr(torch, activation.value))
    result = layer(x)
    assert result.dtype == x.dtype
    expected = x.double() @ torch.from_numpy(checkpoint.values()).T
    assert torch.allclose(result.double(), expected, rtol=2e-2, atol=2e-2)


def _layer(rng: np.random.Generator, n: int = 40, k: int = 256) -> PackedLinear:
    checkpoint = random_checkpoint(rng, n, k)
    layer = Qpn2NvFp4LinearKernel().prepare(problem(checkpoint), quantized(checkpoint), Settings())
    assert isinstance(layer, PackedLinear)
    return layer


def test_opcheck(rng: np.random.Generator) -> None:
    layer = _layer(rng)
    bias = torch.zeros(40, dtype=torch.float16)
    x = torch.randn(3, 256).half()
    torch.library.opcheck(torch.ops.sm70.nvfp4_linear.default, (x, layer.weight, layer.row_factor, bias, 256))


def test_the_fake_has_the_shape_of_the_result(rng: np.random.Generator) -> None:
    layer = _layer(rng)
    x = torch.randn(2, 3, 256).half()
    with FakeTensorMode() as mode:
        operands = [mode.from_tensor(item) for item in (x, layer.weight, layer.row_factor)]
        fake = torch.ops.sm70.nvfp4_linear(*operands, None, 256)
    real = layer(x)
    assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


def test_one_traced_graph_serves_all_row_counts(rng: np.random.Generator) -> None:
    layer = _layer(rng)
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    x = torch.randn(5, 256).half()
    torch._dynamo.mark_dynamic(x, 0)
    assert torch.equal(compiled(x), layer(x))
    with torch.compiler.set_stance("fail_on_recompile"):
        for m in (2, 32, 33, 70):
            rows = torch.randn(m, 256).half()
            assert torch.equal(compiled(rows), layer(rows))


@pytest.mark.parametrize(
    ("k", "qpn2", "words"), [(192, True, "multiples of 128"), (264, False, "multiples of 16")]
)
def test_a_k_that_the_kernels_cannot_take_is_refused(k: int, qpn2: bool, words: str) -> None:
    weight = torch.zeros(Nvfp4Block(32, k).storage_shape, dtype=torch.uint8)
    with pytest.raises(ProblemError, match=words):
        torch.ops.sm70.nvfp4_linear(torch.zeros(1, k).half(), weight, torch.ones(32), None, k, qpn2)


def test_a_layer_without_outputs_is_refused() -> None:
    weight = torch.zeros(Nvfp4Block(32, 256).storage_shape, dtype=torch.uint8)
    with pytest.raises(ProblemError, match="row_factor without elements"):
        torch.ops.sm70.nvfp4_linear(torch.zeros(1, 256).half(), weight, torch.ones(0), None, 256)


@pytest.mark.parametrize("what", ["dtype", "width", "weight", "factor", "bias"])
def test_wrong_operands_are_named(rng: np.random.Generator, what: str) -> None:
    layer = _layer(rng)
    operands: dict[str, torch.Tensor | None] = {
        "x": torch.randn(3, 256).half(),
        "weight": layer.weight,
        "row_factor": layer.row_factor,
        "bias": None,
    }
    wrong = {
        "dtype": ("x", torch.randn(3, 256)),
        "width": ("x", torch.randn(3, 128).half()),
        "weight": ("weight", layer.weight[:-1]),
        "factor": ("row_factor", layer.row_factor.double()),
        "bias": ("bias", torch.zeros(39, dtype=torch.float16)),
    }
    name, tensor = wrong[what]
    operands[name] = tensor
    with pytest.raises(ProblemError, match=rf"{name} of dtype .*Allowed:.*--dtype float16"):
        torch.ops.sm70.nvfp4_linear(*operands.values(), 256)


def test_the_prefill_setting_reaches_the_operator(rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 40, 256)
    for given, expected in ((None, 0), (7, 7)):
        settings = Settings(sm70_nvfp4=Nvfp4Settings(prefill_min_m=given))
        layer = Qpn2NvFp4LinearKernel().prepare(problem(checkpoint), quantized(checkpoint), settings)
        assert isinstance(layer, PackedLinear)
        assert layer.dense_rows == expected
