import os
import sys
import time
from pathlib import Path

import pytest

from sm70_demo.launch import ProcessFailedError, run_logged


def run_python(tmp_path: Path, code: str, limit: float = 30.0) -> Path:
    log = tmp_path / "run.log"
    run_logged(
        [sys.executable, "-c", code], log, cwd=tmp_path, env={"DEMO_X": "42"}, mark="demo: ", limit=limit
    )
    return log


def test_marked_lines_are_relayed_and_all_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import os, sys; print('demo: half'); "
        "print('noise', os.environ['DEMO_X'], os.getcwd(), file=sys.stderr)"
    )
    log = run_python(tmp_path, code).read_text(encoding="utf-8")
    assert capsys.readouterr().out.split() == ["half"]
    assert "demo: half" in log
    assert f"noise 42 {tmp_path}" in log
    assert "DEMO_X" not in os.environ


def test_failure_shows_the_cause_and_the_end_of_the_log(tmp_path: Path) -> None:
    code = (
        "import sys; print('worker: ValueError: no kernel fits'); "
        "print('\\n'.join(f'row {i}' for i in range(100))); sys.exit(3)"
    )
    with pytest.raises(ProcessFailedError, match="exit status 3") as caught:
        run_python(tmp_path, code)
    lines = str(caught.value).splitlines()
    assert lines[1] == "worker: ValueError: no kernel fits"
    assert lines[-1] == "row 99"
    assert "row 59" not in lines


def test_time_limit_ends_the_program_and_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "open('child', 'w').write(str(child.pid)); time.sleep(600)"
    )
    with pytest.raises(ProcessFailedError, match="stopped after the limit of 2 s"):
        run_python(tmp_path, code, limit=2.0)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess; open('child', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    run_python(tmp_path, code)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
