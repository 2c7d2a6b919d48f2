"""The operators that return silu(gate) * up, on the CPU, and what compilers see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gated_checks import assert_gated, check_gated_range
from mxfp4_oracle import random_mx
from nvfp4_oracle import Checkpoint, random_checkpoint
from sm70_kernels_cuda.kernel_set import KERNEL_SETS, MXFP4_KERNELS, NVFP4_KERNELS, KernelSet
from sm70_kernels_cuda.launch import Variant
from sm70_kernels_cuda.modules import PackedLinear, PackedMxfp4Linear
from sm70_policy.errors import ProblemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

EACH_SET = pytest.mark.parametrize("kernel_set", KERNEL_SETS, ids=lambda item: item.layout.name)


def _layer(
    checkpoint: Checkpoint, kernel_set: KernelSet = NVFP4_KERNELS, *, qpn2: bool = True
) -> PackedLinear:
    n, k = checkpoint.shape
    operands = (checkpoint.codes, checkpoint.scales, checkpoint.row_factor)
    codes, scales, factor = (torch.from_numpy(item) for item in operands)
    module = PackedMxfp4Linear if kernel_set is MXFP4_KERNELS else PackedLinear
    return module(*kernel_set.layout(n, k).resident("the layer", codes, scales, factor), k, qpn2=qpn2)


def _random(kernel_set: KernelSet, rng: np.random.Generator, n: int, k: int) -> Checkpoint:
    return random_mx(rng, n, k) if kernel_set is MXFP4_KERNELS else random_checkpoint(rng, n, k)


@EACH_SET
@pytest.mark.parametrize(("n", "k"), [(64, 128), (192, 384)])
def test_dense_rows_match_the_oracle(kernel_set: KernelSet, n: int, k: int, rng: np.random.Generator) -> None:
    checkpoint = _random(kernel_set, rng, n, k)
    x = rng.standard_normal((2, 3, k)).astype(np.float16)
    bias = rng.standard_normal(n).astype(np.float16)
    layer = _layer(checkpoint, kernel_set)
    result = layer.gated(torch.from_numpy(x), torch.from_numpy(bias)).numpy()
    assert_gated(result, checkpoint, x, bias, f"{kernel_set.layout.name} N={n} K={k}")
    assert layer.gated(torch.zeros(0, k).half()).shape == (0, n // 2)


def test_the_whole_range_of_the_gate() -> None:
    def run(
        _: Variant, weight: Checkpoint, x: NDArray[np.float16], bias: NDArray[np.float16] | None
    ) -> NDArray[np.float16]:
        assert bias is not None
        return np.asarray(_layer(weight).gated(torch.from_numpy(x), torch.from_numpy(bias)).numpy())

    check_gated_range(run, Variant(1, 8))


def test_the_same_copy_serves_the_plain_product(rng: np.random.Generator) -> None:
    layer = _layer(random_checkpoint(rng, 64, 128))
    x = torch.from_numpy(rng.standard_normal((5, 128)).astype(np.float16))
    gate, up = layer(x).float().chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    assert torch.allclose(layer.gated(x).float(), expected, rtol=5e-3, atol=1e-3)


@EACH_SET
def test_opcheck(kernel_set: KernelSet, rng: np.random.Generator) -> None:
    layer = _layer(_random(kernel_set, rng, 64, 256), kernel_set)
    operators = torch.ops.sm70
    operator = operators.mxfp4_gated_linear if kernel_set is MXFP4_KERNELS else operators.nvfp4_gated_linear
    bias = torch.zeros(64, dtype=torch.float16)
    x = torch.randn(3, 256).half()
    torch.library.opcheck(operator.default, (x, layer.weight, layer.row_factor, bias, 256))


def test_the_fake_has_the_shape_of_the_result(rng: np.random.Generator) -> None:
    layer = _layer(random_checkpoint(rng, 128, 256))
    x = torch.randn(2, 3, 256).half()
    with FakeTensorMode() as mode:
        operands = [mode.from_tensor(item) for item in (x, layer.weight, layer.row_factor)]
        fake = torch.ops.sm70.nvfp4_gated_linear(*operands, None, 256)
    real = layer.gated(x)
    assert real.shape == (2, 3, 64)
    assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


def test_one_traced_graph_serves_all_row_counts(rng: np.random.Generator) -> None:
    layer = _layer(random_checkpoint(rng, 64, 256))
    compiled = torch.compile(layer.gated, backend="eager", fullgraph=True, dynamic=True)
    x = torch.randn(5, 256).half()
    torch._dynamo.mark_dynamic(x, 0)
    assert torch.equal(compiled(x), layer.gated(x))
    with torch.compiler.set_stance("fail_on_recompile"):
        for m in (2, 32, 33, 70):
            rows = torch.randn(m, 256).half()
            assert torch.equal(compiled(rows), layer.gated(rows))


@pytest.mark.parametrize("n", [32, 96, 100])
def test_an_n_without_whole_pairs_of_strips_is_refused(n: int, rng: np.random.Generator) -> None:
    layer = _layer(random_checkpoint(rng, n, 128))
    with pytest.raises(ProblemError, match=rf"nvfp4_gated_linear.*N={n} of gate and up .* multiples of 64"):
        layer.gated(torch.zeros(1, 128).half())
    assert layer(torch.zeros(1, 128).half()).shape == (1, n)


def test_other_wrong_operands_are_named(rng: np.random.Generator) -> None:
    layer = _layer(random_checkpoint(rng, 64, 128))
    with pytest.raises(ProblemError, match=r"sm70::nvfp4_gated_linear .*bias of dtype .* float16 \[64\]"):
        layer.gated(torch.zeros(1, 128).half(), torch.zeros(32, dtype=torch.float16))
