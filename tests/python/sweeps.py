"""What the tests of sweeps share."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from conftest import COMMAND

# 24 runs of about a hundredth of a second each, beside what their processes take to begin.
GRID = """
[grid]
sources = ["gups:size=4MiB,updates=20K", "seq:size=1MiB"]
systems = ["radix", "radix-2m"]
seeds = [1, 2]
[grid.set]
"machine.tlb.l2_latency_cycles" = [7, 9, 14]
"""
RUNS = 24


def write(folder: Path, text: str = GRID, name: str = "grid.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Begins `pagelab sweep ARGUMENTS…` in a folder."""
    return subprocess.Popen(
        [*COMMAND, "sweep", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def data(folder: Path) -> dict[str, bytes]:
    """The files of a sweep's data set: all but the log and the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("log.jsonl", "lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def results(folder: Path) -> list[Path]:
    return list((folder / "results").glob("[!.]*.parquet"))


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def children(process: int) -> list[int]:
    """The processes that simulate for a process, or below it."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = path.joinpath("stat").read_text().rpartition(")")[2].split()
            command = path.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if int(state[1]) == process and b"pagelab.sweep.child" in command:
            pids.append(int(path.name))
    return pids
