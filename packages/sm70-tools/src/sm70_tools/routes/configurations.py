"""The grid of configurations that a category's snapshot holds, and the names of its rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KV_TYPES = ("auto", "fp8", "fp8_e5m2")
"""Values of vLLM's `--kv-cache-dtype`; `auto` is the model's float16."""

TP_SIZES = (2, 4)
CONCURRENCIES = (1, 4, 8)
"""Values of `--max-num-seqs`."""

BUDGETS = (4096, 8192)
"""Values of `--max-num-batched-tokens`."""

DRAFT_TOKENS = {"none": 0, "mtp": 4, "dflash": 8}
"""Tokens that a request drafts for each step, by kind of speculation."""


@dataclass(frozen=True)
class Configuration:
    """One way to serve one model.

    Attributes:
        scope: Name of the model's scope.
        kv: Type of the KV cache.
        tp: Tensor-parallel ranks.
        speculation: A key of DRAFT_TOKENS.
        concurrency: Most requests at a time.
        budget: Most tokens of one step.
    """

    scope: str
    kv: str
    tp: int
    speculation: str
    concurrency: int
    budget: int

    def row_id(self, category: str) -> str:
        """The row's name, such as `nvfp4/27b-nvfp4/kv=fp8/tp=4/spec=mtp/conc=4/budget=8192`."""
        return (
            f"{category}/{self.scope}/kv={self.kv}/tp={self.tp}/spec={self.speculation}"
            f"/conc={self.concurrency}/budget={self.budget}"
        )

    @property
    def decode_rows(self) -> int:
        """Rows of x in a step of decoding: one for each request, and one for each token to verify."""
        return self.concurrency * (1 + DRAFT_TOKENS[self.speculation])

    @property
    def prefill_rows(self) -> int:
        """Rows of x in a full step of prompts."""
        return self.budget


def grid(scopes: tuple[str, ...]) -> Iterator[Configuration]:
    """Every combination: 108 for each scope."""
    for values in itertools.product(scopes, KV_TYPES, TP_SIZES, DRAFT_TOKENS, CONCURRENCIES, BUDGETS):
        yield Configuration(*values)
