"""Progress lines of the demo: numbered, timed and flushed, so that a log shows where the time went."""

import sys
import time


def say(text: str) -> None:
    """Print one line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Steps:
    """Numbers the steps of a run and says how long each took."""

    def __init__(self, total: int) -> None:
        """Prepare for `total` steps; the clock starts now."""
        self._total = total
        self._done = 0
        self._start = time.monotonic()

    def begin(self, title: str) -> None:
        """Announce the next step with the seconds since the start of the run."""
        self._done += 1
        say(f"[{self._done}/{self._total}] {self.elapsed():5.1f} s  {title}")

    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return time.monotonic() - self._start
