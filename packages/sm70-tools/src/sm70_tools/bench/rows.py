"""Rows of measured numbers: their columns, a file that they are appended to, and reading them back."""

from __future__ import annotations

import csv
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from sm70_policy.errors import describe
from sm70_tools.bench.errors import RowFileError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from sm70_tools.bench.cases import Shape
    from sm70_tools.bench.timing import Timing

COLUMNS = (
    *("date", "commit", "gpu", "driver", "cuda", "torch", "op", "format", "shape", "m", "variant"),
    *("us_median", "us_p20", "us_p80", "bytes", "roof_gbps", "flops", "checked"),
)
LINEAR = "linear"
"""In the column `op`: the plain product."""

_HEADER = ",".join(COLUMNS)


@dataclass(frozen=True)
class Provenance:
    """What all rows of one run share.

    Attributes:
        date: Start of the run, ISO 8601 with seconds.
        commit: Commit that is measured.
        gpu: Product name of the card.
        driver: Version of NVIDIA's driver.
        cuda: CUDA release of torch.
        torch: Version of torch.
    """

    date: str
    commit: str
    gpu: str
    driver: str
    cuda: str
    torch: str


@dataclass(frozen=True)
class Measurement:
    """Times of one variant on one shape with M rows, whose result was right in this run.

    Attributes:
        shape: The layer.
        m: Rows of the activations.
        variant: Who computed it.
        format: Format of the weight.
        nbytes: Bytes of the weight.
        timing: Microseconds a call.
        error: Relative error of the result.
        op: What was computed.
    """

    shape: Shape
    m: int
    variant: str
    format: str
    nbytes: int
    timing: Timing
    error: float
    op: str = LINEAR

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return self.shape.flops(self.m)

    def row(self, provenance: Provenance, read_gbps: float) -> dict[str, str]:
        """The columns of a CSV row."""
        return {
            **asdict(provenance),
            "op": self.op,
            "format": self.format,
            "shape": str(self.shape),
            "m": str(self.m),
            "variant": self.variant,
            "us_median": str(round(self.timing.median, 2)),
            "us_p20": str(round(self.timing.p20, 2)),
            "us_p80": str(round(self.timing.p80, 2)),
            "bytes": str(self.nbytes),
            "roof_gbps": str(round(read_gbps)),
            "flops": str(self.flops),
            "checked": "yes",
        }


class RowFile:
    """A CSV file that rows are appended to. Each row is on disk before the next is measured."""

    def __init__(self, path: Path) -> None:
        """Open it, and write the header into a new one.

        Raises:
            RowFileError: The file exists with another header, or ends in the middle of a row.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists() or not path.stat().st_size
        if not is_new:
            _check_appendable(path)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, COLUMNS, lineterminator="\n")
        if is_new:
            self._writer.writeheader()
            self._file.flush()

    def write(self, row: dict[str, str]) -> None:
        """Append one row."""
        self._writer.writerow(row)
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _check_appendable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    header = text.partition("\n")[0]
    if header != _HEADER:
        raise RowFileError(
            describe(
                asked=f"{path.name}, whose first line is {header[:80]!r}",
                allowed=f"a new file, or one with the header {_HEADER}",
                fix="Name another file",
            )
        )
    if not text.endswith("\n"):
        raise RowFileError(
            describe(
                asked=f"{path.name}, which ends in the middle of a row",
                allowed="whole rows",
                fix="Delete its last line, or name another file",
            )
        )


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a file of rows.

    Raises:
        RowFileError: There is no such file, it has another header, a row is incomplete, or it holds none.
    """
    if not path.is_file():
        raise RowFileError(
            describe(asked=f"{path}, which does not exist", allowed="a CSV file", fix="Check the name")
        )
    _check_appendable(path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise RowFileError(
                describe(
                    asked=f"{path.name}, line {number}, with another number of columns",
                    allowed=f"{len(COLUMNS)} columns",
                    fix="Delete that line",
                )
            )
    if not rows:
        raise RowFileError(
            describe(asked=f"{path.name}, which holds no row", allowed="at least one", fix="Measure first")
        )
    return rows
