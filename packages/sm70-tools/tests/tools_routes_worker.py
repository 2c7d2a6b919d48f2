"""A worker of `sm70 routes` with one kernel's priority changed: `REQUEST ANSWER KERNEL PRIORITY`."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from sm70_policy.registry import Registry, installed
from sm70_tools.routes.request import Request
from sm70_tools.routes.vllm import worker


def with_priority(registry: Registry, name: str, priority: int) -> Registry:
    """The same kernels, one of them with another priority."""
    providers = []
    for provider in registry.providers:
        kernels = tuple(copy.copy(kernel) for kernel in provider.linear_kernels)
        for kernel in kernels:
            if kernel.name == name:
                kernel.priority = priority
        providers.append(replace(provider, linear_kernels=kernels))
    return Registry(tuple(providers), registry.absences)


def main(request_file: str, answer_file: str, name: str, priority: str) -> None:
    """Answer a request with the changed registry."""
    torch.set_num_threads(1)
    request = Request(**json.loads(Path(request_file).read_text(encoding="utf-8")))
    found = worker.answer(request, with_priority(installed(), name, int(priority)))
    Path(answer_file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
