"""Other implementations to stand beside. A peer that is absent or fails is reported, and the rest goes on."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.bench.cases import copies
from sm70_tools.bench.contenders import Contender
from sm70_tools.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

    from sm70_tools.bench.cases import Shape
    from sm70_tools.bench.weights import Nvfp4Weight

PEER_TOLERANCE = 2e-3
"""Largest relative error of a peer: libraries may add the partial sums of a split K in FP16."""


@dataclass(frozen=True)
class Peer:
    """An implementation of others.

    Attributes:
        name: Name in the column `variant`.
        module: Module that it comes with.
        package: What to install for that module.
        load: Loads weights of a shape; the first argument holds one weight or more, on the device.
    """

    name: str
    module: str
    package: str
    load: Callable[[Sequence[Nvfp4Weight], Shape], Contender]

    def absence(self) -> str:
        """Why it cannot take part; empty when it can."""
        top_level = self.module.partition(".")[0]
        if importlib.util.find_spec(top_level) is None:
            return f"{self.package} is not installed"
        try:
            importlib.import_module(self.module)
        except Exception as error:  # noqa: BLE001 - a broken installation raises anything
            return f"{self.module} cannot be imported: {one_line(error)}"
        return ""


def one_line(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _peer_tolerance(m: int) -> float:  # noqa: ARG001 - the same for any number of rows
    return PEER_TOLERANCE


def load_torch(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
    """Load torch's FP16 linear with random dense weights, as many as overflow the cache."""
    import torch

    device = weights[0].codes.device
    matrices = [
        torch.randn(shape.n, shape.k, dtype=torch.float16, device=device)
        for _ in range(copies(shape.fp16_bytes))
    ]

    def call(matrix: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.nn.functional.linear(x, matrix)
        return result

    def decode_rows(rows: slice) -> Tensor:
        return matrices[0][rows].double()

    calls = tuple(partial(call, matrix) for matrix in matrices)
    return Contender("torch", "fp16", shape.fp16_bytes, calls, decode_rows, tolerance=_peer_tolerance)


def load_humming(weights: Sequence[Nvfp4Weight], shape: Shape) -> Contender:
    """Load Humming's NVFP4 linear, which takes FP16 activations, with the same weights as the suite's."""
    import torch
    from humming.layer import HummingLayer

    layers = []
    for weight in weights:
        layer = HummingLayer(
            shape_n=shape.n,
            shape_k=shape.k,
            torch_dtype=torch.float16,
            weight_config={"quant_method": "modelopt", "quant_algo": "nvfp4"},
        ).cuda()
        tensors = {"weight": weight.codes, "weight_scale": weight.scales}
        tensors["weight_scale_2"] = torch.tensor([weight.factor])
        layer.load_from_tensors({name: tensor.cpu() for name, tensor in tensors.items()})
        layer.transform()
        layers.append(layer)
    return Contender(
        "humming",
        "nvfp4",
        shape.nvfp4_bytes,
        tuple(layers),
        weights[0].decode_rows,
        tolerance=_peer_tolerance,
    )


PEERS = {
    peer.name: peer
    for peer in (
        Peer("humming", "humming.layer", "humming-kernels", load_humming),
        Peer("torch", "torch", "torch", load_torch),
    )
}


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Read `humming,torch`; an empty text names none.

    Raises:
        ArgumentError: A name that is not known.
    """
    names = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in PEERS:
            raise ArgumentError(
                describe(
                    asked=f"--peers with {name!r}",
                    allowed=", ".join(PEERS),
                    fix="Write it as in --peers humming,torch",
                )
            )
    return tuple(PEERS[name] for name in names)
