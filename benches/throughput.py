"""How fast this machine generates, replays and records accesses.

    python benches/throughput.py [--quick]

Replay is measured on one thread with the full model (TLBs, walks, three data caches, faults). Every rate is the best of
three runs; the generator's own rate, measured in the same process, is what a simulator that does nothing would reach. A
rate is settled if the first quarter of the accesses, when most pages are touched for the first time, is left out.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

import pagelab
from pagelab import _engine
from pagelab.cli.terminal import print_table, warn

RUNS = 3


@dataclass(frozen=True)
class Case:
    """A workload, a system, and how many accesses are enough to time it."""

    title: str
    workload: str
    system: str
    accesses: int


CASES = (
    Case("sequential, 8 bytes", "seq:size=1GiB", "radix", 100_000_000),
    Case("stride of 64 bytes, 1 GiB", "stride:size=1GiB,stride=64", "radix", 32_000_000),
    Case("one random in eight, 8 GiB", "random:size=8GiB,every=8,accesses=1G", "radix", 100_000_000),
    Case("uniformly random, 8 GiB", "random:size=8GiB,accesses=1G", "radix", 40_000_000),
    Case("GUPS, 8 GiB", "gups:size=8GiB,updates=20M", "radix", 40_000_000),
    Case("GUPS, 8 GiB, 2 MiB pages", "gups:size=8GiB,updates=20M", "radix-2m", 40_000_000),
    Case("stride of 64 bytes, a fault in 64", "stride:size=16GiB,stride=64", "radix", 60_000_000),
    Case("GUPS, 1 GiB, nested", "gups:size=1GiB", "nested-radix", 10_000_000),
    Case("pointer chase, 1 GiB", "chase:size=1GiB", "radix", 10_000_000),
)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Rates of generation, replay and recording on this machine.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the accesses, one run each")
    quick = parser.parse_args().quick
    runs, share = (1, 10) if quick else (RUNS, 1)

    columns = ("generator M/s", "replay M/s", "replay, settled M/s", "settled / generator")
    table = Table("", *columns, title="Workloads, one thread", title_justify="left")
    for case in CASES:
        count = case.accesses // share
        generated = best(runs, partial(_engine.drain, case.workload, count))
        first = best(runs, partial(replay, case.workload, case.system, count // 4))
        whole = best(runs, partial(replay, case.workload, case.system, count))
        settled = (count - count // 4) / (count / whole - count // 4 / first)
        rates = (millions(rate) for rate in (generated, whole, settled))
        table.add_row(case.title, *rates, f"{settled / generated:.3f}")
    print_table(table)

    if not shutil.which("valgrind") or not shutil.which("xz"):
        warn("recording is not measured: it needs valgrind and xz")
        return
    with tempfile.TemporaryDirectory() as folder:
        measure_trace(Path(folder), runs, 50_000_000 // share)


def measure_trace(folder: Path, runs: int, accesses: int) -> None:
    """Records xz and replays the trace."""
    trace = folder / "xz.trace"
    program = ["xz", "-9", "-c", "-k", _engine.__file__]
    before = cpu_seconds()
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pagelab", "record", "-o", trace, "--max-accesses", str(accesses), "--", *program],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall, cpu = time.perf_counter() - started, cpu_seconds() - before
    recorded = _engine.drain(str(trace), accesses)
    size = sum(part.stat().st_size for part in trace.iterdir())

    table = Table(
        "", "", title=f"Trace of {' '.join(program[:2])}, {recorded / 1e6:.1f} M accesses", title_justify="left"
    )
    table.show_header = False
    table.add_row("recording, M accesses a second", millions(recorded / wall))
    table.add_row("recording, M accesses a CPU second", millions(recorded / cpu))
    table.add_row("bytes an access", f"{size / recorded:.2f}")
    decoded = best(runs, partial(_engine.drain, str(trace), accesses))
    replayed = best(runs, partial(replay, str(trace), "radix", accesses))
    table.add_row("decoding alone, M/s", millions(decoded))
    table.add_row("replay under radix, M/s", millions(replayed))
    table.add_row("replay / decoding", f"{replayed / decoded:.2f}")
    print_table(table)


def best(runs: int, work: Callable[[], int]) -> float:
    """Accesses a second of the fastest of `runs` runs; `work` returns how many it made."""
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - started))
    return max(rates)


def replay(source: str, system: str, accesses: int) -> int:
    """Replays on one thread and returns the accesses made."""
    return pagelab.run(source, system, max_accesses=accesses, threads=1)[system].stats["accesses"]


def cpu_seconds() -> float:
    """CPU time of all children so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def millions(rate: float) -> str:
    """Millions with three digits."""
    return f"{rate / 1e6:.3g}"


if __name__ == "__main__":
    main()
