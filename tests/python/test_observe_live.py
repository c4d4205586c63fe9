"""`pagelab observe --live`: what the terminal shows while an observation goes on."""

import io
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, assert_fails, read_terminal
from rich.console import Console

from pagelab import UsageError
from pagelab.observe.budget import Budget
from pagelab.observe.live import faults_by_second, live_view, recent, view
from pagelab.observe.looks import Looks
from pagelab.observe.observation import Observation, Settings, observe
from pagelab.observe.sampling import Totals
from pagelab.observe.targets import Processes

# Reads 8 MiB of 64 MiB again and again.
READER = """
import mmap, sys
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if hasattr(mmap, "MADV_NOHUGEPAGE"):
    memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 64 << 20, 4096):
    memory[at] = 1
print("ready", flush=True)
while True:
    for at in range(0, 8 << 20, 4096):
        memory[at]
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "reader.py").write_text(READER)
    process = subprocess.Popen(["python3", tmp_path / "reader.py"], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def _text(observation: Observation) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as captured:
        console.print(view(observation))
    return captured.get()


def test_faults_by_second_are_even_between_two_samples() -> None:
    assert faults_by_second([]) == []
    assert faults_by_second([(0.5, 10, 0.1), (1.5, 30, 0.2), (3.5, 50, 0.3)]) == [20, 15, 10]
    assert faults_by_second([(0.2, 5, 0.0), (0.9, 9, 0.0)]) == [], "no second is over"
    assert sum(faults_by_second([(0.3, 7, 0.0), (2.0, 100, 0.0)])) == 100


def test_the_rate_now_is_that_of_the_last_two_seconds() -> None:
    assert recent([]) == 0
    assert recent([(1.0, 50, 0.0)]) == 0
    assert recent([(0.0, 0, 0.0), (1.0, 1000, 0.0), (2.0, 1010, 0.0), (3.0, 1020, 0.0)]) == 10


def test_the_view_has_what_the_last_look_has_shown(reader: int) -> None:
    texts: list[str] = []
    settings = Settings(2.0, 0.2, 1.0, referenced=True)
    observe(Processes([reader]), settings, watch=lambda seen: texts.append(_text(seen)))
    assert len(texts) > 3
    first, last = texts[0], texts[-1]
    assert re.search(r"0\.\d of 2 s observed", first), first
    assert f"process {reader}" in last
    row = re.search(r"^anonymous memory +0x\w+ +6\d MiB +6\d MiB +0 B +([\d.]+) MiB", last, re.MULTILINE)
    assert row, last
    assert 7 < float(row[1]) < 12, last
    assert re.search(r"^resident +\d+\.?\d* MiB  [▁▂▃▄▅▆▇█]{2,}$", last, re.MULTILINE), last
    assert max(map(len, last.splitlines())) <= 100


def test_an_observation_that_has_seen_nothing_has_a_view() -> None:
    seen = Observation("nothing", Settings(None, 1.0, 0.02, referenced=False), Looks(None), Budget(0.02), None)
    assert "nothing: 0.0 s observed" in _text(seen)


def test_the_view_takes_its_part_of_the_bound_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observation("one", Settings(None, 1.0, 0.02, referenced=False), Looks(None), Budget(0.02), None)
    console = Console(file=io.StringIO(), force_terminal=True)
    clock, spent, drawn = [100.0], [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.process_time", lambda: spent[0])

    def draw(*_: object, **__: object) -> None:
        drawn.append(clock[0])
        spent[0] += 0.01

    with live_view(console) as shown:
        monkeypatch.setattr(shown._live, "update", draw)
        # It runs on a CPU of its own, and then not at all.
        for cpu_seconds, times in ((1000.0, 80), (0.0, 200)):
            seen.totals = Totals(cpu_seconds, 0, 0, 0)
            for _ in range(times):
                shown.show(seen)
                clock[0] += 0.25
    assert drawn[:3] == [100.0, 100.5, 101.0]
    assert len([at for at in drawn if at >= 120]) == 4, "ten seconds late, within fifty"
    drawn.clear()
    spent[0], begin = 0.0, clock[0]
    with live_view(console) as shown:
        monkeypatch.setattr(shown._live, "update", draw)
        while clock[0] < begin + 100:
            seen.totals = Totals(clock[0] - begin, 0, 0, 0)
            shown.show(seen)
            clock[0] += 0.25
    assert 0.4 < spent[0] < 0.6, "a quarter of 2 % of 100 s"


def test_without_a_terminal_live_is_refused(pagelab: Pagelab, reader: int) -> None:
    with pytest.raises(UsageError, match="--live needs a terminal"), live_view(Console(file=io.StringIO())):
        pass
    assert_fails(pagelab("observe", str(reader), "--live", "--seconds", "1"), 2, "--live needs a terminal")
    assert_fails(pagelab("observe", "--live", "--", "true"), 2, "--live is for running processes")
    together = ("--rotate", "1", "--live", "--json", "a.json")
    assert_fails(pagelab("observe", str(reader), *together), 2, "--live and --rotate do not go together")


def test_a_terminal_shows_the_view_and_then_the_page(reader: int) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    command = subprocess.Popen(
        [*COMMAND, "observe", str(reader), "--live", "--seconds", "2"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = read_terminal(ours)
    page = command.communicate(timeout=60)[0].decode()
    assert command.returncode == 0, shown
    assert shown.count("s observed") >= 2, shown
    assert "Ctrl-C ends it" in shown
    assert "Verdict" in page
    assert "\x1b" not in page


def test_a_part_that_was_observed_is_written_whole(reader: int, tmp_path: Path) -> None:
    """Ctrl-C comes as soon as the first of its files is there."""
    files = [f"seen-0001.{ending}" for ending in ("json", "html", "parquet")]
    outputs = ("--json", "seen.json", "--report", "seen.html", "--samples", "seen.parquet")
    command = subprocess.Popen(
        [*COMMAND, "observe", str(reader), "--rotate", "1", "--seconds", "60", *outputs],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        # Tests may run where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    until = time.monotonic() + 60
    while not (tmp_path / files[0]).exists() and time.monotonic() < until:
        time.sleep(0.001)
    command.send_signal(signal.SIGINT)
    lines = command.communicate(timeout=60)[0].decode().splitlines()
    assert command.returncode == 0
    assert [(tmp_path / file).exists() for file in files] == [True] * 3
    assert len(lines) == 1
    assert "part 1: " in lines[0]
