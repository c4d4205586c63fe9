"""Memory that is touched before timed runs, so that the host of a virtual machine has it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pagelab.run_time import frames, host, measuring

HUGE = 2 << 20


def test_a_little_more_than_a_program_needs_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "pool_bytes", lambda: 1 << 40)
    monkeypatch.setattr(host, "available_bytes", lambda: 8 << 30)
    assert frames.enough(0) == 0
    assert frames.enough(80 * HUGE + 5) == 90 * HUGE
    assert frames.enough(7 << 30) == 4 << 30, "half of what is free"
    monkeypatch.setattr(host, "pool_bytes", lambda: 3 * HUGE)
    assert frames.enough(7 << 30) == 3 * HUGE, "what a process may have"


def test_all_of_it_is_touched_and_none_kept() -> None:
    script = """
import resource
from pathlib import Path
from pagelab.run_time import frames
def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
before = resident()
frames.touch(0)
frames.touch(256 << 20)
print(before, resident(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after, most = map(int, run.stdout.split())
    assert most - before > 255 << 20
    assert after - before < 32 << 20


@pytest.mark.parametrize("virtualised", [False, True])
def test_memory_is_touched_before_each_timed_run_in_a_virtual_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, virtualised: bool
) -> None:
    machine = replace(host.machine(), virtualised=virtualised)
    monkeypatch.setattr(host, "machine", lambda: machine)
    log: list[int | str] = []
    monkeypatch.setattr(frames, "touch", log.append)
    script = f"s = bytearray({64 << 20})\nfor i in range(300000): s[i] = 1"
    plan = measuring.Plan(layouts=("4k", "host"), repeat=2)
    measured = measuring.measure([sys.executable, "-c", script], plan, log.append)
    runs = [line for line in log if not isinstance(line, int) and line.startswith("run ")]
    assert len(runs) == 4
    touched = [log[log.index(line) + 1] for line in runs]
    assert touched == [measured.touched_bytes] * 4
    if virtualised:
        assert 64 << 20 < measured.touched_bytes < 128 << 20
    else:
        assert measured.touched_bytes == 0
    (tmp_path / "out.json").write_text(measured.to_json())
    assert measuring.load(tmp_path / "out.json").touched_bytes == measured.touched_bytes
