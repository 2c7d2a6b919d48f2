"""MXFP4, and NVFP4 with FP16 factors, on a card: kernels and operators against float64; `nox -s gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from atom_binary import OLDER_ATOMS, atom_binary
from gpu_kernels import guarded_output
from mxfp4_oracle import every_code_and_exponent, random_mx
from nvfp4_checks import assert_within_twice, check_dense, check_one_hot, fp16_product
from nvfp4_oracle import Checkpoint, every_code_and_scale, random_checkpoint
from sm70_kernels_cuda import binary
from sm70_kernels_cuda.driver import Module
from sm70_kernels_cuda.kernel_set import MXFP4_KERNELS, NVFP4_HALF_KERNELS, KernelSet
from sm70_kernels_cuda.launch import Atom, Variant, atom_of, choose_variant
from sm70_kernels_cuda.nvfp4 import Nvfp4Kernels, kernels_for
from sm70_kernels_cuda.nvfp4_general import GeneralKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from sm70_kernels_cuda.launch_general import GeneralVariant

pytestmark = pytest.mark.gpu

SETS = {"mxfp4": MXFP4_KERNELS, "nvfp4_half": NVFP4_HALF_KERNELS}
EACH_SET = pytest.mark.parametrize("name", SETS)


def _random(name: str, rng: np.random.Generator, n: int, k: int) -> Checkpoint:
    return random_mx(rng, n, k) if name == "mxfp4" else random_checkpoint(rng, n, k)


def _resident(kernel_set: KernelSet, weight: Checkpoint, device: str = "cuda") -> tuple[Tensor, Tensor]:
    operands = (weight.codes, weight.scales, weight.row_factor)
    tensors = [torch.from_numpy(item).to(device) for item in operands]
    return kernel_set.layout(*weight.shape).resident("the layer", tensors[0], tensors[1], tensors[2])


@dataclass(frozen=True)
class GpuFormat:
    """One binary's kernels of one layout, run like the emulated ones."""

    kernel_set: KernelSet
    atom: Atom
    strip: Nvfp4Kernels
    general: GeneralKernels

    @classmethod
    def of(cls, kernel_set: KernelSet, module: Module, atom: Atom) -> GpuFormat:
        general = GeneralKernels(module, atom)

        def strip(m: int, n: int, k: int, qpn2: bool) -> Variant:
            return choose_variant(m, k, atom, kernel_set.strip)

        kernels = Nvfp4Kernels(module, atom, general, strip, kernel_set=kernel_set)
        return cls(kernel_set, atom, kernels, general)

    @property
    def variants(self) -> list[Variant | GeneralVariant]:
        """What the binary holds for its atom."""
        return [*self.kernel_set.strip, *self.kernel_set.general_for(self.atom)]

    def run(
        self,
        variant: Variant | GeneralVariant,
        weight: Checkpoint,
        x: NDArray[np.float16],
        bias: NDArray[np.float16] | None,
    ) -> NDArray[np.float16]:
        """Run one variant on a NaN-poisoned output between two guards, which must survive."""
        packed, factor = _resident(self.kernel_set, weight)
        rows = torch.from_numpy(np.ascontiguousarray(x)).cuda()
        device_bias = None if bias is None else torch.from_numpy(bias).cuda()
        with guarded_output(x.shape[0], weight.shape[0]) as y:
            if isinstance(variant, Variant):
                self.strip.run(variant, rows, packed, factor, device_bias, y)
            else:
                self.general.run(variant, rows, packed, factor, device_bias, y)
        return np.asarray(y.cpu().numpy())


@pytest.fixture(scope="module", params=["own-atom", *OLDER_ATOMS])
def binary_and_atom(request: pytest.FixtureRequest) -> tuple[Module, Atom]:
    if request.param == "own-atom":
        major, minor = torch.cuda.get_device_capability()
        return binary.module(), atom_of(10 * major + minor)
    atom = OLDER_ATOMS[request.param]
    return Module(atom_binary(request.config, atom)), atom


@EACH_SET
def test_one_hot_returns_the_decoded_weight(
    binary_and_atom: tuple[Module, Atom], name: str, rng: np.random.Generator
) -> None:
    kernels = GpuFormat.of(SETS[name], *binary_and_atom)
    every = every_code_and_exponent() if name == "mxfp4" else every_code_and_scale()
    for variant in kernels.variants:
        check_one_hot(kernels.run, variant, _random(name, rng, 75, 384))
        check_one_hot(kernels.run, variant, every)


@EACH_SET
@pytest.mark.parametrize(("n", "k"), [(1, 128), (97, 640), (1000, 1536), (200, 17408)])
def test_dense_rows_match_the_oracle(
    binary_and_atom: tuple[Module, Atom], name: str, n: int, k: int, rng: np.random.Generator
) -> None:
    kernels = GpuFormat.of(SETS[name], *binary_and_atom)
    weight = _random(name, rng, n, k)
    for variant in kernels.variants:
        rows = 8 * variant.token_tiles
        for m in (1, rows - 3, rows):
            check_dense(kernels.run, variant, weight, m, rng, with_bias=m != 1)


@EACH_SET
def test_dequantize_rounds_once(name: str, rng: np.random.Generator) -> None:
    weight = _random(name, rng, 75, 640)
    dense = kernels_for(0, SETS[name]).dequantize(*_resident(SETS[name], weight), 640)
    assert np.array_equal(dense.cpu().numpy().view(np.uint16), weight.rounded().view(np.uint16))


@EACH_SET
def test_packing_on_the_device_equals_packing_on_the_host(name: str, rng: np.random.Generator) -> None:
    weight = _random(name, rng, 300, 1152)
    here, there = _resident(SETS[name], weight, "cpu"), _resident(SETS[name], weight)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


def _call(name: str, x: Tensor, resident: tuple[Tensor, Tensor], k: int, *, qpn2: bool) -> Tensor:
    operator = torch.ops.sm70.mxfp4_linear if name == "mxfp4" else torch.ops.sm70.nvfp4_linear
    result: Tensor = operator(x, *resident, None, k, qpn2)
    return result


@EACH_SET
@pytest.mark.parametrize(("k", "qpn2"), [(640, True), (640, False), (608, False)])
def test_every_row_count_of_the_operator(name: str, k: int, qpn2: bool, rng: np.random.Generator) -> None:
    import sm70_kernels_cuda.ops  # noqa: F401 - registers the operators

    checkpoint = _random(name, rng, 161, k)
    resident, values = _resident(SETS[name], checkpoint), checkpoint.values()
    for m in (*range(1, 35), 64, 100, 513, 1024, 1100):
        x = rng.standard_normal((m, k)).astype(np.float16)
        result = _call(name, torch.from_numpy(x).cuda(), resident, k, qpn2=qpn2).cpu().numpy()
        baseline = fp16_product(x, values.astype(np.float16), None)
        assert_within_twice(result, baseline, x.astype(np.float64) @ values.T, f"M={m}")


@EACH_SET
@pytest.mark.parametrize("m", [1, 8, 20, 40, 1100])
def test_graph_replay_equals_eager(name: str, m: int, rng: np.random.Generator) -> None:
    resident = _resident(SETS[name], _random(name, rng, 160, 640))
    x = torch.randn(m, 640, device="cuda").half()
    _call(name, x, resident, 640, qpn2=True)  # loads the kernel outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = _call(name, x, resident, 640, qpn2=True)
    x.copy_(torch.randn(m, 640, device="cuda").half())
    y.fill_(float("nan"))
    graph.replay()
    assert torch.equal(y, _call(name, x, resident, 640, qpn2=True))


@EACH_SET
def test_opcheck(name: str, rng: np.random.Generator) -> None:
    import sm70_kernels_cuda.ops  # noqa: F401 - registers the operators

    resident = _resident(SETS[name], _random(name, rng, 160, 640))
    operator = torch.ops.sm70.mxfp4_linear if name == "mxfp4" else torch.ops.sm70.nvfp4_linear
    for m in (4, 40):
        torch.library.opcheck(
            operator.default, (torch.randn(m, 640, device="cuda").half(), *resident, None, 640)
        )


@EACH_SET
def test_peak_memory_of_preparing_a_layer(name: str) -> None:
    n, k = 17408, 5120
    layout = SETS[name].layout(n, k)
    codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
    shape = (n, k // layout.group_columns)
    scales = torch.randint(100, 110, shape, dtype=torch.uint8, device="cuda")
    factor = torch.ones(n, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    packed, factors = layout.resident("the layer", codes, scales, factor)
    peak = torch.cuda.max_memory_allocated() - before
    resident = packed.numel() + 4 * factors.numel()
    assert peak <= 1.15 * resident, f"peak {peak} over resident {resident}: {peak / resident:.3f}"
