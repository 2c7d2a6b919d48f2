"""The emulator's driver: building, caching, passing arrays, and the complete example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.emulator import BuildError, DeviceBuffer, KernelError, build

EXAMPLE = Path(__file__).resolve().parent / "emulator" / "example"


def test_example(tmp_path: Path) -> None:
    """The complete example: a kernel header, its host file, and a comparison with numpy."""
    library = build(EXAMPLE / "row_sum_host.cpp", cache_dir=tmp_path)
    x = DeviceBuffer("x", np.random.default_rng(3).standard_normal((5, 1000)).astype(np.float16))
    y = DeviceBuffer("y", np.zeros(5, np.float32), writable=True)
    library.call("run_row_sum", x, y, 5, 1000, 128)
    np.testing.assert_allclose(y.array, x.array.astype(np.float64).sum(1), rtol=1e-5, atol=1e-4)
    with pytest.raises(KernelError, match=r"row_sum.*global load .* out of bounds.*row_sum\.cuh:\d+"):
        library.call("run_row_sum", x, y, 5, 1001, 128)


def test_build_is_cached_by_content(tmp_path: Path) -> None:
    """The same source and headers give the same library; another header text gives another."""
    export = 'extern "C" __attribute__((visibility("default")))'
    source = f'#include "value.h"\n{export} const char* get() {{ return VALUE; }}'
    headers, cache = tmp_path / "headers", tmp_path / "cache"
    headers.mkdir()
    (headers / "value.h").write_text('#define VALUE "first"')
    first = build(source, include_dirs=[headers], cache_dir=cache)
    made = first.path.stat().st_mtime_ns
    assert build(source, include_dirs=[headers], cache_dir=cache).path.stat().st_mtime_ns == made
    (headers / "value.h").write_text('#define VALUE "second"')
    second = build(source, include_dirs=[headers], cache_dir=cache)
    assert [path.name for path in sorted(cache.iterdir())] == sorted([first.path.name, second.path.name])
    for library, text in ((first, "first"), (second, "second")):
        with pytest.raises(KernelError, match=text):
            library.call("get")


def test_build_errors_are_clear(tmp_path: Path) -> None:
    """A missing compiler is named; a failing one is quoted with the source's own line."""
    with pytest.raises(BuildError, match="'no-such-compiler' is not on PATH"):
        build("", cache_dir=tmp_path, compiler="no-such-compiler")
    with pytest.raises(BuildError, match=r"<source text>:2:.*'not_declared'|<source text>:2:.*not_declared"):
        build("\nint value = not_declared;", cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_device_buffer_is_aligned_and_a_copy() -> None:
    """The kernel's memory is a 256-byte aligned copy of the caller's array."""
    given = np.arange(6, dtype=np.int16).reshape(2, 3)
    buffer = DeviceBuffer("x", given)
    buffer.array[0, 0] = 9
    assert buffer.address % 256 == 0
    assert buffer.array.dtype == given.dtype
    assert (buffer.array.shape, int(given[0, 0])) == ((2, 3), 0)
