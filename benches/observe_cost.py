"""What `pagelab observe` costs programs: pairs of runs without and with it, alternately.

    python benches/observe_cost.py [PAIRS [PROGRAM…]]

A row per program and method of observing: its median CPU time without, the median of the pairs' differences with their
range, what pagelab states as its cost, and the CPU time of its process, start and page included. Memory is touched and
freed before each run, as hosts of virtual machines take free memory back. Every second pair begins with the observed
run.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_SQL = """
create table t(a integer primary key, b integer, c text);
insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500000)
    select i, (i * 7919) % 1000003, 'row ' || i from n;
create index byb on t(b);
select count(*), sum(length(x.c)) from t x join t y on y.b = (x.a * 31) % 1000003;
"""
_PYTHON = """
words = {number * 7919 % 1000003: str(number) for number in range(1_000_000)}
print(sum(len(words.get(number, "")) for _ in range(12) for number in range(1_000_003)))
"""


_TOUCH = "bytearray(b'x') * (1500 << 20)"


@dataclass(frozen=True)
class Run:
    """A run of a program."""

    cpu_seconds: float
    estimated: float = 0.0
    """What pagelab measured of itself, and estimated in the program"""
    own_seconds: float = 0.0
    """CPU time of pagelab's process, its start and its page included"""


def run(command: Sequence[str], options: Sequence[str] | None, folder: Path) -> Run:
    """Runs a program, observed with these options unless there are none."""
    subprocess.run([sys.executable, "-c", _TOUCH], check=True)
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    observing = None
    if options is not None:
        line = [sys.executable, "-m", "pagelab", "observe", "-t", "3600", *options]
        line += ["--json", str(folder / "seen.json"), str(program.pid)]
        observing = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(program.pid, 0)
    assert status == 0
    cpu = usage.ru_utime + usage.ru_stime
    if observing is None:
        return Run(cpu)
    _, status, own = os.wait4(observing.pid, 0)
    assert status == 0
    cost = json.loads((folder / "seen.json").read_text())["cost"]
    spent = cost["own_seconds"] + cost["in_program_seconds_estimated"]
    return Run(cpu, spent, own.ru_utime + own.ru_stime)


def pair(command: Sequence[str], options: Sequence[str], folder: Path, *, swapped: bool) -> tuple[Run, Run]:
    """A run without and one with an observation; in the other order if `swapped`."""
    if swapped:
        seen = run(command, options, folder)
        return run(command, None, folder), seen
    return run(command, None, folder), run(command, options, folder)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["gcc", "-O2", "-o", folder / "chase", ROOT / "tests/python/chase.c"], check=True)
        programs = {
            "chase": [str(folder / "chase"), "1024", "20000000"],
            "sqlite3": ["sqlite3", ":memory:", _SQL],
            "python": [sys.executable, "-c", _PYTHON],
        }
        ways: dict[str, list[str]] = {"default": [], "--no-referenced": ["--no-referenced"]}
        for title in sys.argv[2:] or programs:
            command = programs[title]
            for method, options in ways.items():
                runs = [pair(command, options, folder, swapped=bool(number % 2)) for number in range(pairs)]
                without = statistics.median(plain.cpu_seconds for plain, _ in runs)
                changes = sorted(seen.cpu_seconds / plain.cpu_seconds - 1 for plain, seen in runs)
                stated = statistics.median(seen.estimated / seen.cpu_seconds for _, seen in runs)
                own = statistics.median(seen.own_seconds for _, seen in runs)
                print(
                    f"| {title} | {method} | {without:.2f} s | {statistics.median(changes):+.1%} "
                    f"({changes[0]:+.1%} to {changes[-1]:+.1%}) | {stated:.1%} | {own:.2f} s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
