"""Starts a program with its output in a log file: progress is relayed, the end is shown on failure."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sm70_demo.progress import say

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 10.0
STOP_SECONDS = 10.0
TAIL_LINES = 40
CAUSE_LINES = 5
EXCEPTION = re.compile(r"\w(Error|Exception): ")


class ProcessFailedError(RuntimeError):
    """A program of the demo failed or ran out of time; the message holds the end of its log."""


class LogRelay:
    """Repeats the marked lines of a growing log file, and says now and then that the program still runs."""

    def __init__(self, log: Path, mark: str) -> None:
        """Follow `log`, which must exist; lines that begin with `mark` are printed without it."""
        self._stream = log.open(encoding="utf-8", errors="replace")
        self._mark = mark
        self._rest = ""
        self._start = self._spoken = time.monotonic()

    def poll(self) -> None:
        """Print what came since the last call."""
        *lines, self._rest = (self._rest + self._stream.read()).split("\n")
        for line in lines:
            if line.startswith(self._mark):
                self._say(line.removeprefix(self._mark))
        now = time.monotonic()
        if now - self._spoken >= HEARTBEAT_SECONDS:
            self._say(f"still running after {now - self._start:.0f} s")

    def close(self) -> None:
        """Print what is left and close the file."""
        self.poll()
        self._stream.close()

    def _say(self, text: str) -> None:
        self._spoken = time.monotonic()
        say(f"        {text}")


def failure_excerpt(log: Path) -> str:
    """Return the lines of a log that name an exception, and its last lines.

    vLLM reports the cause in a worker and the consequences after it, so the end alone often lacks the cause.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    early, late = lines[:-TAIL_LINES], lines[-TAIL_LINES:]
    causes = [line for line in early if EXCEPTION.search(line)][:CAUSE_LINES]
    return "\n".join([*causes, f"The end of {log}:", *late])


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started: first politely, then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def run_logged(
    command: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str], mark: str, limit: float
) -> None:
    """Run `command` in `cwd` with its whole output in `log`, relaying the lines that begin with `mark`.

    `env` is laid over this process's environment for the child alone. Raises ProcessFailedError where the
    command fails or takes more than `limit` seconds.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - the demo's own engine with fixed arguments
            command,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    relay = LogRelay(log, mark)
    deadline = time.monotonic() + limit
    try:
        while process.poll() is None and time.monotonic() < deadline:
            relay.poll()
            time.sleep(POLL_SECONDS)
        code = process.poll()
    finally:
        stop_group(process)  # with all that it left running
        relay.close()
    if code is None:
        raise ProcessFailedError(f"stopped after the limit of {limit:.0f} s.\n{failure_excerpt(log)}")
    if code:
        raise ProcessFailedError(f"failed with exit status {code}.\n{failure_excerpt(log)}")
