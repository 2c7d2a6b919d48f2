"""Snapshots from processes: vLLM's platform belongs to a process, so there is one for each card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from sm70_policy.errors import describe
from sm70_tools.errors import WorkerError
from sm70_tools.routes.categories import Category, row_ids
from sm70_tools.routes.configurations import grid
from sm70_tools.routes.edges import NVFP4_EDGES
from sm70_tools.routes.hosts import HOSTS, find_host
from sm70_tools.routes.request import Request
from sm70_tools.routes.scopes import SCOPES, find_scope, why_not
from sm70_tools.routes.snapshot import Snapshot

_AT_ONCE = 2
_SHOWN_LINES = 12
_OWN_VARIABLES = ("VLLM_", "SM70_")
_CACHE_FOLDER = "VLLM_CACHE_ROOT"


def take(category: Category, version: str, folders: tuple[Path, ...] = ()) -> Snapshot:
    """Ask vLLM for every row of a category.

    Args:
        category: One with rows.
        version: Version of vLLM, which must be the installed one.
        folders: Where packages are looked for before the installed ones.

    Raises:
        ArgumentError: Nothing is known of this version.
        WorkerError: vLLM is missing, is of another version, or a process failed.
    """
    find_host(version)
    _check_installed(version)
    ids = row_ids(category)
    requests = _requests(category, version, ids)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        answers = list(pool.map(lambda request: ask(request, folders), requests))
    rows = _stock_rows(requests, answers) if category.name == "stock" else _grid_rows(requests, answers)
    return Snapshot(
        category=category.name,
        host=version,
        packages=answers[0]["packages"],
        notes=category.notes,
        rows={row_id: rows[row_id] for row_id in ids},
    )


def _requests(category: Category, version: str, ids: tuple[str, ...]) -> list[Request]:
    modes = (False, True) if category.name == "stock" else (True,)
    return [Request(category.name, version, card, ids, suite) for card in category.cards for suite in modes]


def ask(request: Request, folders: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Answer one request in a process of its own, and return what `vllm.worker.answer` returned there.

    Raises:
        WorkerError: The process failed; the message has the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch, "request.json"), Path(scratch, "answer.json")
        question.write_text(json.dumps(asdict(request)), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "sm70_tools.routes.vllm.worker", str(question), str(answer)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(folders),
        )
        if done.returncode or not answer.exists():
            raise WorkerError(_failure(request, done))
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def _environment(folders: tuple[Path, ...]) -> dict[str, str]:
    """This process' environment without what would change vLLM's choices.

    No plug-in comes through entry points: the worker registers the suite, or leaves it out.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == _CACHE_FOLDER or not name.startswith(_OWN_VARIABLES)
    }
    path = [*map(str, folders), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        **({"PYTHONPATH": os.pathsep.join(path)} if path else {}),
        "VLLM_PLUGINS": "",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }


def _failure(request: Request, done: subprocess.CompletedProcess[str]) -> str:
    last = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-_SHOWN_LINES:])
    return (
        f"the process for {request.category} on {request.card} ended with status {done.returncode} and no "
        f"answer. The end of what it printed:\n{last}"
    )


def _check_installed(version: str) -> None:
    """Look for vLLM in this version, without importing it."""
    try:
        installed = metadata.version("vllm")
    except metadata.PackageNotFoundError as error:
        raise WorkerError(_wrong_host(version, "which is not installed")) from error
    if installed.partition("+")[0] != version:
        raise WorkerError(_wrong_host(version, f"but {installed} is installed"))


def _wrong_host(version: str, what: str) -> str:
    return describe(
        asked=f"routes in vLLM {version}, {what}",
        allowed=f"an environment with vLLM {version}; its Python code alone will do. Routes are known for "
        + ", ".join(host.version for host in HOSTS),
        fix=f"pip install vllm=={version}, or run `nox -s routes` in a checkout",
    )


def _grid_rows(requests: list[Request], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of a category with scopes, all cards together."""
    category = requests[0].category

    def cards(row_id: str) -> dict[str, Any]:
        return {
            request.card: answer["rows"][row_id] for request, answer in zip(requests, answers, strict=True)
        }

    rows: dict[str, Any] = {}
    for configuration in grid(tuple(scope.name for scope in SCOPES)):
        row_id = configuration.row_id(category)
        reason = why_not(find_scope(configuration.scope), category)
        rows[row_id] = (
            {"not_applicable": reason}
            if reason
            else {
                "decode_m": configuration.decode_rows,
                "prefill_m": configuration.prefill_rows,
                "cards": cards(row_id),
            }
        )
    for edge in NVFP4_EDGES:
        row_id = edge.row_id(category)
        rows[row_id] = {"about": edge.about, "cards": cards(row_id)}
    return rows


def _stock_rows(requests: list[Request], answers: list[dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, dict[str, str]] = {}
    for request, answer in zip(requests, answers, strict=True):
        for row_id, route in answer["rows"].items():
            rows.setdefault(row_id, {})["suite" if request.suite else "stock"] = route
    return rows
