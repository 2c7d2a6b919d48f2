"""One process for one card: `python -m sm70_tools.routes.vllm.worker REQUEST.json ANSWER.json`."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sm70_tools.routes.cards import ROUTED_CARDS
from sm70_tools.routes.hosts import find_host
from sm70_tools.routes.request import Request
from sm70_tools.routes.vllm import platform

if TYPE_CHECKING:
    from sm70_policy.registry import Registry
    from sm70_tools.routes.hosts import HostDouble

_SUITE = ("sm70-policy", "sm70-kernels-cuda", "sm70-kernels-triton", "sm70-moe", "sm70-tools")


def answer(request: Request, registry: Registry | None = None) -> dict[str, Any]:
    """Ask vLLM for all rows of a request. To be called once in a process.

    Args:
        request: What to ask.
        registry: Kernels to choose from; those that are installed when None.
    """
    host = find_host(request.host)
    card = ROUTED_CARDS[request.card]
    platform.pretend(card, host)
    _start(request, registry)
    from sm70_tools.routes.vllm import grid, stock
    from sm70_tools.routes.vllm.engines import Engines

    ask = stock.rows_of if request.category == "stock" else grid.rows_of
    with tempfile.TemporaryDirectory() as folder:
        rows = ask(card, Engines(Path(folder)), frozenset(request.rows))
    return {"packages": _packages(host), "rows": rows}


def _start(request: Request, registry: Registry | None) -> None:
    """Groups of one rank, the kernels, and the suite's plug-in."""
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    from sm70_policy import registry as registries

    if registry is not None:
        registries.installed = lambda: registry  # type: ignore[assignment]
    alone = VllmConfig(device_config=DeviceConfig(device="cpu"))
    with set_current_vllm_config(alone), tempfile.TemporaryDirectory() as folder:
        init_distributed_environment(1, 0, f"file://{folder}/store", local_rank=0, backend="gloo")
        initialize_model_parallel(1, 1)
    if request.suite:
        from sm70_policy.vllm import plugin

        plugin.register()


def _packages(host: HostDouble) -> dict[str, str | None]:
    names = (*_SUITE, "vllm", "torch", *host.distributions)
    return {name: _version(name) for name in names}


def _version(distribution: str) -> str | None:
    try:
        # The part after the plus is the build's, such as +cpu.
        return importlib.metadata.version(distribution).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def main(request_file: str, answer_file: str) -> None:
    """Read a request and write its answer."""
    import torch

    torch.set_num_threads(1)  # there is a process for each card
    request = Request(**json.loads(Path(request_file).read_text(encoding="utf-8")))
    Path(answer_file).write_text(json.dumps(answer(request)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
