"""Times the NVFP4 linear against torch's FP16 linear on a CUDA device and writes rows of measured numbers.

Every shape is checked against float64 before it is timed. One CUDA graph runs a kernel over as many
independent weights as overflow the L2 cache; the variants' graphs are replayed in turn, so that a change of
clocks meets all of them. Times are per call and include everything between the caller's input and output.

    python benchmarks/nvfp4_linear.py --commit HASH --output benchmarks/results/h200/linear.csv
"""

from __future__ import annotations

import argparse
import csv
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from sm70_kernels_cuda import launch
from sm70_kernels_cuda.layouts.nvfp4_block import Nvfp4Block
from sm70_kernels_cuda.nvfp4 import kernels_for
from sm70_kernels_cuda.reference import decode_nvfp4

SHAPES = (
    *((5120, 1536), (8704, 5120), (5120, 4352), (4096, 5120)),
    *((17408, 5120), (5120, 8704), (4096, 4096), (14336, 4096)),
)
COLUMNS = (
    *("date", "commit", "gpu", "driver", "cuda", "torch", "op", "format", "shape", "m", "variant"),
    *("us_median", "us_p20", "us_p80", "bytes", "roof_gbps", "flops", "checked"),
)
CACHE_BYTES = 200_000_000
"""Independent weights of one graph together exceed this, four times an H200's L2."""

ROUNDS = 30


@dataclass(frozen=True)
class Weight:
    """One packed weight."""

    packed: Tensor
    row_factor: Tensor
    codes: Tensor
    scales: Tensor

    @classmethod
    def random(cls, n: int, k: int) -> Weight:
        """Draw codes over all values and scales around one."""
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        scales = (torch.rand((n, k // 16), device="cuda") * 2 + 0.5).to(torch.float8_e4m3fn)
        factor = torch.full((n,), 0.01, device="cuda")
        return cls(Nvfp4Block(n, k).pack(codes, scales), factor, codes, scales)


def capture(calls: list[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """Capture all calls in one graph, after running each once."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Microseconds a call of one replay."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / calls


def time_interleaved(candidates: dict[str, list[Callable[[], object]]]) -> dict[str, list[float]]:
    """Time the candidates in turn, ROUNDS times after three rounds of warm-up; sorted microseconds a call."""
    graphs = {name: capture(calls) for name, calls in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for i in range(ROUNDS + 3):
        for name, graph in graphs.items():
            elapsed = replay_us(graph, len(candidates[name]))
            if i >= 3:
                times[name].append(elapsed)
    return {name: sorted(values) for name, values in times.items()}


def read_roof_gbps() -> float:
    """Bandwidth of reading 4 GiB once, by torch's sum of int64, in GB/s."""
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_().view(torch.int64)
    times = time_interleaved({"read": [lambda: torch.sum(source)]})["read"]
    return float(source.numel() * 8 / times[len(times) // 2] / 1e3)


def is_correct(weight: Weight, x: Tensor, y: Tensor) -> bool:
    """Whether y is x times the decoded weight within the rounding of its FP16 output."""
    exact = x.double() @ decode_nvfp4(weight.codes, weight.scales, weight.row_factor).double().t()
    return bool((y.double() - exact).norm() / exact.norm() < 4e-4)


def candidates_for(
    m: int, weights: list[Weight], x: Tensor, *, every_variant: bool
) -> dict[str, list[Callable[[], object]]]:
    """The calls to time: the operator, torch's FP16 linear, and each fitting variant when asked."""
    n = weights[0].row_factor.shape[0]
    dense = [
        torch.randn(n, x.shape[1], dtype=torch.float16, device="cuda")
        for _ in range(_copies(2 * n * x.shape[1]))
    ]
    candidates: dict[str, list[Callable[[], object]]] = {
        "ours": [
            partial(torch.ops.sm70.nvfp4_linear, x, weight.packed, weight.row_factor, None, x.shape[1])
            for weight in weights
        ],
        "torch": [partial(torch.nn.functional.linear, x, matrix) for matrix in dense],
    }
    if every_variant and m <= launch.NATIVE_ROWS:
        kernels, y = kernels_for(0), torch.empty((m, n), dtype=torch.float16, device="cuda")
        for variant in launch.VARIANTS:
            if 8 * variant.token_tiles >= m > 4 * variant.token_tiles - 4:
                candidates[variant.kernel] = [
                    partial(kernels.run, variant, x, weight.packed, weight.row_factor, None, y)
                    for weight in weights
                ]
    return candidates


def _copies(weight_bytes: int) -> int:
    return max(2, min(48, CACHE_BYTES // weight_bytes + 1))


def provenance(commit: str) -> dict[str, str]:
    """The columns that all rows of one run share."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]  # noqa: S603
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
    }


def measure(n: int, k: int, m: int, roof: float, *, every_variant: bool) -> list[dict[str, object]]:
    """Check and time one shape; one row a variant."""
    problem_bytes = n * k // 2 + n * k // 16
    weights = [Weight.random(n, k) for _ in range(_copies(problem_bytes))]
    x = torch.randn(m, k, dtype=torch.float16, device="cuda")
    first = weights[0]
    y = torch.ops.sm70.nvfp4_linear(x, first.packed, first.row_factor, None, k)
    checked = is_correct(first, x, y)
    if not checked:
        message = f"N={n} K={k} M={m}: the result is wrong, so it is not timed"
        raise RuntimeError(message)
    rows = []
    for name, times in time_interleaved(candidates_for(m, weights, x, every_variant=every_variant)).items():
        quantized = name != "torch"
        row: dict[str, object] = {
            "op": "linear",
            "format": "nvfp4" if quantized else "fp16",
            "shape": f"{n}x{k}",
        }
        row |= {"m": m, "variant": name, "us_median": round(times[len(times) // 2], 2)}
        row |= {"us_p20": round(times[len(times) // 5], 2), "us_p80": round(times[len(times) * 4 // 5], 2)}
        row |= {"bytes": problem_bytes if quantized else 2 * n * k, "roof_gbps": round(roof)}
        row |= {"flops": 2 * m * n * k, "checked": "yes" if name == "ours" else "no"}
        rows.append(row)
    return rows


def main() -> None:
    """Measure all shapes and append the rows to the output file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="CSV file to append to")
    parser.add_argument("--commit", required=True, help="commit that is measured")
    parser.add_argument("--m", default="1", help="row counts, comma-separated")
    parser.add_argument(
        "--every-variant", action="store_true", help="also time each fitting kernel by itself"
    )
    arguments = parser.parse_args()
    from sm70_kernels_cuda import ops  # noqa: F401 - registers the operator

    shared = provenance(arguments.commit)
    roof = read_roof_gbps()
    print(f"{shared['gpu']}: reads {roof:.0f} GB/s", flush=True)
    is_new = not arguments.output.exists()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for n, k in SHAPES:
            for m in map(int, arguments.m.split(",")):
                for row in measure(n, k, m, roof, every_variant=arguments.every_variant):
                    writer.writerow(shared | row)
                    report(row, roof)


def report(row: dict[str, object], roof: float) -> None:
    """Print one row for people."""
    us, size = float(str(row["us_median"])), float(str(row["bytes"]))
    bandwidth = size / us / 1e3
    print(
        f"{row['shape']:>12} M={row['m']:<4} {row['variant']:<18} {us:8.2f} us  "
        f"[{row['us_p20']}, {row['us_p80']}]  {bandwidth:6.0f} GB/s = {bandwidth / roof:5.1%} of read",
        flush=True,
    )


if __name__ == "__main__":
    main()
