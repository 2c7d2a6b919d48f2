"""The operator on a card: row counts, graphs, streams, threads, devices, compilation and memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from gpu_kernels import PackedWeight
from nvfp4_checks import assert_within_twice, fp16_product
from nvfp4_oracle import random_checkpoint
from sm70_kernels_cuda.modules import PackedLinear
from sm70_kernels_cuda.qpn2 import Qpn2NvFp4LinearKernel
from sm70_policy.errors import ProblemError
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.provider import QuantizedWeight
from sm70_policy.settings import Settings

pytestmark = pytest.mark.gpu


def _weight(rng: np.random.Generator, n: int = 160, k: int = 640) -> PackedWeight:
    return PackedWeight.of(random_checkpoint(rng, n, k))


def _rows(rng: np.random.Generator, m: int, k: int = 640) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal((m, k)).astype(np.float16)).cuda()


def test_every_row_count_and_the_dense_path(rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 161, 640)
    weight, values = PackedWeight.of(checkpoint), checkpoint.values()
    for m in (*range(1, 35), 64, 100, 513, 1024, 1500):
        x = rng.standard_normal((m, 640)).astype(np.float16)
        result = weight.linear(torch.from_numpy(x).cuda()).cpu().numpy()
        baseline = fp16_product(x, values.astype(np.float16), None)
        assert_within_twice(result, baseline, x.astype(np.float64) @ values.T, f"M={m}")


@pytest.mark.parametrize("k", [16, 576, 640])
def test_every_row_count_of_the_general_kernel(rng: np.random.Generator, k: int) -> None:
    checkpoint = random_checkpoint(rng, 161, k)
    weight, values = PackedWeight.of(checkpoint), checkpoint.values()
    layer = PackedLinear(weight.weight, weight.row_factor, k, qpn2=False)
    for m in (1, 2, 9, 31, 32, 33, 64, 65, 200, 1023, 1024, 1025):
        x = rng.standard_normal((m, k)).astype(np.float16)
        result = layer(torch.from_numpy(x).cuda()).cpu().numpy()
        baseline = fp16_product(x, values.astype(np.float16), None)
        assert_within_twice(result, baseline, x.astype(np.float64) @ values.T, f"M={m} K={k}")


def test_the_dense_threshold_is_an_argument(rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 160, 640)
    weight, values = PackedWeight.of(checkpoint), checkpoint.values()
    x = rng.standard_normal((40, 640)).astype(np.float16)
    baseline = fp16_product(x, values.astype(np.float16), None)
    results = {}
    for dense_rows in (40, 41):
        layer = PackedLinear(weight.weight, weight.row_factor, 640, qpn2=True, dense_rows=dense_rows)
        results[dense_rows] = layer(torch.from_numpy(x).cuda()).cpu().numpy()
        assert_within_twice(
            results[dense_rows], baseline, x.astype(np.float64) @ values.T, f"from {dense_rows}"
        )
    assert not np.array_equal(results[40], results[41])  # one rounds the weight to FP16 first


def test_leading_dimensions_bias_and_no_rows(rng: np.random.Generator) -> None:
    weight, x = _weight(rng), _rows(rng, 6)
    bias = torch.randn(160, dtype=torch.float16, device="cuda")
    assert torch.equal(weight.linear(x.view(2, 3, 640), bias), weight.linear(x, bias).view(2, 3, 160))
    assert weight.linear(x[:0]).shape == (0, 160)


def test_strided_and_misaligned_rows(rng: np.random.Generator) -> None:
    weight, x = _weight(rng), _rows(rng, 5)
    wide = torch.empty((5, 648), dtype=torch.float16, device="cuda")
    wide[:, :640] = x
    odd = torch.empty(5 * 640 + 1, dtype=torch.float16, device="cuda")[1:].view(5, 640)
    odd.copy_(x)
    expected = weight.linear(x)
    assert torch.equal(weight.linear(wide[:, :640]), expected)
    assert torch.equal(weight.linear(odd), expected)


@pytest.mark.parametrize("m", [1, 8, 16, 20, 32, 40, 1100])
def test_graph_replay_equals_eager(rng: np.random.Generator, m: int) -> None:
    weight, x = _weight(rng), _rows(rng, m)
    weight.linear(x)  # loads the kernel outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = weight.linear(x)
    for _ in range(2):
        x.copy_(_rows(rng, m))
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(y, weight.linear(x))


def test_two_streams_do_not_disturb_each_other(rng: np.random.Generator) -> None:
    weights = [_weight(rng, 2048, 2048) for _ in range(2)]
    rows = [_rows(rng, m, 2048) for m in (8, 300, 1100)]
    expected = [[weight.linear(x) for x in rows] for weight in weights]
    streams = [torch.cuda.Stream() for _ in weights]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(10):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[i].extend(weights[i].linear(x) for x in rows)
    torch.cuda.synchronize()
    for i, outputs in enumerate(results):
        for j, output in enumerate(outputs):
            assert torch.equal(output, expected[i][j % 3])


def test_a_thread_without_a_context_can_launch(rng: np.random.Generator) -> None:
    weight, x = _weight(rng), _rows(rng, 4)
    expected = weight.linear(x)
    results: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: results.append(weight.linear(x)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(results[0], expected)


def test_the_last_device_while_another_is_current(rng: np.random.Generator) -> None:
    device = f"cuda:{torch.cuda.device_count() - 1}"
    checkpoint = random_checkpoint(rng, 160, 640)
    x = _rows(rng, 4)
    expected = PackedWeight.of(checkpoint).linear(x)
    result = PackedWeight.of(checkpoint, device).linear(x.to(device))
    assert result.device == torch.device(device)
    assert torch.equal(result.cpu(), expected.cpu())


def test_opcheck(rng: np.random.Generator) -> None:
    weight, x = _weight(rng), _rows(rng, 4)
    bias = torch.randn(160, dtype=torch.float16, device="cuda")
    for rows in (x, _rows(rng, 40)):
        torch.library.opcheck(
            torch.ops.sm70.nvfp4_linear.default, (rows, weight.weight, weight.row_factor, bias, 640)
        )


@pytest.mark.filterwarnings("ignore")  # Inductor and its imports warn about themselves
def test_one_compiled_graph_serves_all_row_counts(rng: np.random.Generator) -> None:
    weight = _weight(rng)
    layer = PackedLinear(weight.weight, weight.row_factor, 640, qpn2=True)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    first = _rows(rng, 5)
    torch._dynamo.mark_dynamic(first, 0)
    assert torch.equal(compiled(first), layer(first))
    with torch.compiler.set_stance("fail_on_recompile"):
        for m in (2, 17, 32, 33, 200, 1100):
            x = _rows(rng, m)
            assert torch.equal(compiled(x), layer(x))


def test_packing_on_the_device_equals_packing_on_the_host(rng: np.random.Generator) -> None:
    checkpoint = random_checkpoint(rng, 100, 1152)
    assert torch.equal(PackedWeight.of(checkpoint).weight.cpu(), PackedWeight.of(checkpoint, "cpu").weight)


def test_peak_memory_of_preparing_a_layer() -> None:
    n, k = 17408, 5120
    codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.rand((n, k // 16), device="cuda").to(torch.float8_e4m3fn)
    weight = QuantizedWeight(codes, scales, torch.ones(n, device="cuda"))
    problem = LinearProblem("layer", NVFP4, n, k, ActivationDtype.FLOAT16)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    layer = Qpn2NvFp4LinearKernel().prepare(problem, weight, Settings())
    peak = torch.cuda.max_memory_allocated() - before
    assert isinstance(layer, PackedLinear)
    resident = sum(item.numel() * item.element_size() for item in layer.parameters())
    assert resident == Qpn2NvFp4LinearKernel().resident_bytes(problem)
    assert peak <= 1.15 * resident, f"peak {peak} over resident {resident}: {peak / resident:.3f}"


@pytest.mark.parametrize("what", ["dtype", "width", "device", "weight", "bias"])
def test_wrong_operands_are_named(rng: np.random.Generator, what: str) -> None:
    weight, x = _weight(rng), _rows(rng, 4)
    operands = {"x": x, "weight": weight.weight, "row_factor": weight.row_factor, "bias": None}
    if what == "dtype":
        operands["x"] = x.bfloat16()
    elif what == "width":
        operands["x"] = x[:, :512].contiguous()
    elif what == "device":
        operands["row_factor"] = weight.row_factor.cpu()
    elif what == "weight":
        operands["weight"] = weight.weight[:-1]
    else:
        operands["bias"] = torch.zeros(159, dtype=torch.float16, device="cuda")
    with pytest.raises(ProblemError, match="Allowed:"):
        torch.ops.sm70.nvfp4_linear(*operands.values(), 640)
