"""What was chosen for each layer of one engine, for the log and for programs."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sm70_policy import registry
from sm70_policy.verdict import Rejection

if TYPE_CHECKING:
    from sm70_policy.capability import Device
    from sm70_policy.route import KernelVerdict, Policy, Route

_LOG = logging.getLogger("vllm.sm70")


class Report:
    """Routes of one engine's layers.

    A layer announces itself when it is built and is recorded when its weights are loaded. The file is
    written when the last announced layer has been recorded, and before an error leaves the loader: once per
    model, and not once per layer, which would write a file of N rows N times. Announcements are weak
    references, since vLLM may build a layer and drop it (an output layer tied to the embedding).
    """

    def __init__(self, policy: Policy, device: Device, routes_file: str | None) -> None:
        self._routes_file = routes_file
        self._rows: list[dict[str, Any]] = []
        self._said: set[object] = set()
        self._pending: weakref.WeakSet[Any] = weakref.WeakSet()
        self._announce_policy(policy, device)

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One mapping per recorded layer, as written to the file."""
        return tuple(self._rows)

    def expect(self, owner: object) -> None:
        """Announce a layer: `owner` is the object that will record it."""
        self._pending.add(owner)

    def record(self, owner: object, route: Route, served_by: str | None) -> None:
        """Record one layer.

        Args:
            owner: What was passed to `expect`.
            route: All verdicts.
            served_by: Class name of the kernel that runs the layer, the host's own included; None when the
                layer cannot be served.
        """
        self._pending.discard(owner)
        self._rows.append(_row(route, served_by))
        self._log_once(route, served_by)
        if served_by is None or not self._pending:
            self.write()

    def say_once(self, message: str) -> None:
        """Log a message at INFO, once per engine."""
        if message not in self._said:
            self._said.add(message)
            _LOG.info("%s", message)

    def write(self) -> None:
        """Write the routes file, if one was asked for. A path that cannot be written is a warning."""
        if self._routes_file is None:
            return
        try:
            _write_atomically(Path(self._routes_file), json.dumps({"layers": self._rows}, indent=1) + "\n")
        except OSError as error:
            _LOG.warning(
                "sm70_report.routes_file: the routes of %d layers could not be written to %s: %s. "
                "Name a file in a folder that exists and can be written",
                len(self._rows),
                self._routes_file,
                error,
            )

    def _announce_policy(self, policy: Policy, device: Device) -> None:
        found = registry.installed()
        _LOG.info(
            "sm70 policy, runtime_guarded (chosen at load; not a claim that a kernel has run): device %s; "
            "%s; disabled by name: %s; packages: %s",
            device,
            policy.settings,
            ", ".join(sorted(policy.disabled - {""})) or "none",
            ", ".join(
                [f"{item.distribution} {item.version}" for item in found.providers]
                + [f"{item.distribution} ({item.rejection.message})" for item in found.absences]
            ),
        )

    def _log_once(self, route: Route, served_by: str | None) -> None:
        passed = [item for item in route.verdicts if isinstance(item.verdict, Rejection)]
        key = (served_by, tuple((item.kernel, _code(item)) for item in passed))
        if key in self._said:
            return
        self._said.add(key)
        problem = route.problem
        _LOG.info(
            "sm70 route: %s for layers such as %s (%s, N=%d, K=%d)%s",
            served_by or "no kernel",
            problem.layer,
            problem.weight_format.name,
            problem.n,
            problem.k,
            "".join(f"; passed over {item.kernel}: {item.verdict}" for item in passed),
        )


def _code(item: KernelVerdict) -> str | None:
    return item.verdict.code if isinstance(item.verdict, Rejection) else None


def _row(route: Route, served_by: str | None) -> dict[str, Any]:
    problem = route.problem
    return {
        "prefix": problem.layer,
        "format": problem.weight_format.name,
        "n": problem.n,
        "k": problem.k,
        "kernel": None if route.kernel is None else route.kernel.name,
        "served_by": served_by,
        "verdicts": [
            {
                "kernel": item.kernel,
                "supported": item.supported,
                "code": _code(item),
                "message": str(item.verdict) if isinstance(item.verdict, Rejection) else None,
            }
            for item in route.verdicts
        ],
    }


def _write_atomically(path: Path, text: str) -> None:
    # The temporary file is in the target's folder: a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        # mkstemp creates files for the owner alone; a report is an ordinary file.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
