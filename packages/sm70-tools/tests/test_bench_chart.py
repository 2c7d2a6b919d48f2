"""Charts from rows, without a display and without CUDA."""

from __future__ import annotations

import importlib.util
import struct
import zlib
from pathlib import Path

import pytest

from sm70_tools.bench import chart
from sm70_tools.bench.errors import RowFileError, UnavailableError
from sm70_tools.bench.rows import COLUMNS
from sm70_tools.cli import main


def _row(**changes: str) -> dict[str, str]:
    base = {
        "date": "2026-11-30T02:31:35+00:00",
        "commit": "b0d2dcc",
        "gpu": "NVIDIA H200",
        "driver": "580.1",
        "cuda": "13.0",
        "torch": "2.11.0",
        "op": "linear",
        "format": "nvfp4",
        "shape": "4096x4096",
        "m": "1",
        "variant": "ours",
        "us_median": "7.0",
        "us_p20": "6.9",
        "us_p80": "7.2",
        "bytes": "9437184",
        "roof_gbps": "4463",
        "flops": "33554432",
        "checked": "yes",
    }
    return base | changes


ROWS = [
    _row(),
    _row(variant="torch", us_median="14.1", us_p20="14.0", us_p80="14.4", bytes="33554432", format="fp16"),
    _row(shape="5120x1536", us_median="5.6", us_p20="5.6", us_p80="5.6", bytes="4423680"),
    _row(m="8", us_median="7.5"),
    _row(variant="qpn2_nvfp4_t1_w8"),
]


def _pixels(path: Path) -> tuple[int, int, set[bytes]]:
    """Width, height and the distinct lines of a PNG, read without a library."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, color = struct.unpack(">IIBB", data[16:26])
    assert (depth, color) == (8, 6)
    position, packed = 8, b""
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            packed += data[position + 8 : position + 8 + length]
        position += length + 12
    raw = zlib.decompress(packed)
    stride = 4 * width + 1
    assert len(raw) == stride * height
    return width, height, {raw[i : i + stride] for i in range(0, len(raw), stride)}


def test_a_chart_holds_a_line_of_panels_for_each_row_count(tmp_path: Path) -> None:
    sizes = []
    for name, counts in (("one", [1]), ("two", [])):
        chart.draw(chart.select(ROWS, row_counts=counts), tmp_path / "charts" / name)
        width, height, lines = _pixels(tmp_path / "charts" / name)
        assert len(lines) > 100
        sizes.append((width, height))
    assert sizes[0][0] == sizes[1][0] > 1000
    assert sizes[1][1] - sizes[0][1] > 200


def test_the_bars_show_times_and_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn: list[tuple[str, list[float]]] = []
    original = Axes.bar

    def bar(self: Axes, x: list[float], height: list[float], *arguments: object, **options: object) -> object:
        drawn.append((str(options["label"]), height))
        return original(self, x, height, *arguments, **options)

    monkeypatch.setattr(Axes, "bar", bar)
    chart.draw(chart.select(ROWS, row_counts=[1]), tmp_path / "chart.png")
    ours, torch = "ours (nvfp4)", "torch (fp16)"
    assert [label for label, _ in drawn] == [ours, torch, ours, torch]
    assert drawn[0][1] == [7.0, 5.6]
    assert drawn[1][1] == [14.1]
    assert drawn[2][1] == pytest.approx([100 * 9437184 / 7.0 / 4463e3, 100 * 4423680 / 5.6 / 4463e3])
    assert drawn[3][1] == pytest.approx([100 * 33554432 / 14.1 / 4463e3])


def test_the_newest_row_of_the_last_commit_is_drawn() -> None:
    rows = [
        _row(commit="old", us_median="9.0"),
        _row(us_median="8.0"),
        _row(date="2026-12-01T00:00:00+00:00"),
        _row(shape="5120x1536"),
        _row(gpu="Tesla V100", us_median="50.0"),
        _row(date="2026-12-01T00:00:00+00:00", m="8"),
    ]
    selection = chart.select(rows)
    assert selection.title == "linear on NVIDIA H200, commit b0d2dcc, 2026-11-30 and 2026-12-01"
    assert {key: row["us_median"] for key, row in selection.rows.items()} == {
        ("4096x4096", 1, "ours"): "7.0",
        ("5120x1536", 1, "ours"): "7.0",
        ("4096x4096", 8, "ours"): "7.0",
    }
    assert chart.select(rows, "old").rows["4096x4096", 1, "ours"]["us_median"] == "9.0"


def test_variants_come_in_a_fixed_order_and_kernels_are_left_out() -> None:
    names = ("torch", "qpn2_nvfp4_t1_w8", "marlin", "ours", "humming")
    selection = chart.select([_row(variant=name) for name in names])
    assert selection.variants == ["ours", "humming", "marlin", "torch"]


def test_a_variant_may_lack_row_counts(tmp_path: Path) -> None:
    rows = [_row(m="1"), _row(m="8"), _row(m="8", variant="torch")]
    chart.draw(chart.select(rows), tmp_path / "chart.png")
    assert len(_pixels(tmp_path / "chart.png")[2]) > 100


@pytest.mark.parametrize(("us", "text"), [(7.04, "7.0"), (99.94, "99.9"), (1052.9, "1053")])
def test_labels_stay_short(us: float, text: str) -> None:
    assert chart._short(us) == text


@pytest.mark.parametrize(
    ("rows", "commit", "counts"), [([], None, []), (ROWS, "abc", []), (ROWS, None, [3]), (ROWS[4:], None, [])]
)
def test_nothing_to_draw(rows: list[dict[str, str]], commit: str | None, counts: list[int]) -> None:
    with pytest.raises(RowFileError, match="for which there is no row"):
        chart.select(rows, commit, counts)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install sm70-tools\[bench\]"):
        chart.draw(chart.select(ROWS), Path("never.png"))


def test_the_command_draws_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "linear.csv", tmp_path / "linear.png"
    source.write_text("\n".join([",".join(COLUMNS), *(",".join(row.values()) for row in ROWS)]) + "\n")
    assert main(["bench", "chart", str(source), "--output", str(target), "--m", "1"]) == 0
    assert capsys.readouterr().out.endswith("linear on NVIDIA H200, commit b0d2dcc, 2026-11-30, 3 rows\n")
    assert _pixels(target)[0] > 1000
    assert main(["bench", "chart", str(tmp_path / "no.csv"), "--output", str(target)]) == 2
