"""How fast this machine generates, replays and records accesses.

    python benches/throughput.py [--quick]

Replay is measured on one thread with the full model (TLBs, walks, three data caches, faults). Every rate is the best of
three runs, per second of CPU time. A rate is settled if the first quarter of the accesses, when most pages are touched
for the first time, is left out: the run's progress tells when that ends. Three yardsticks are measured in the same
process, so that ratios mean something on any machine:

- the generator alone, which is what a simulator that does nothing would reach;
- naive: the generator, and the simplest program that counts the same hits of TLBs and caches;
- host: this machine for the accesses themselves, in memory of the workload's size.

Naive and host are settled, too (`crates/pagelab-host/src/yardstick.rs`).

A recorded trace is replayed by the in-order core and by one with a window, alternately; so is it recorded with
dependencies and without.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

import pagelab
from pagelab import _engine
from pagelab.cli.terminal import print_table, warn
from pagelab.replay import cores

RUNS = 3
MACHINE = "kabylake-7700hq"
"""That of the naive simulator."""


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

CURVES = ("seq:size=1GiB", "gups:size=1GiB")
SAMPLES = {"exact": None, "1 % sample": 0.01}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Rates of generation, replay and recording on this machine.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the accesses, one run each")
    quick = parser.parse_args().quick
    runs, share = (1, 10) if quick else (RUNS, 1)

    columns = ("generator M/s", "naive M/s", "host M/s", "replay M/s", "replay, settled M/s")
    ratios = ("settled / generator", "settled / naive", "settled / host")
    table = Table("", *columns, *ratios, title="Workloads, one thread", title_justify="left")
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for case in CASES:
        count = case.accesses // share
        generated = best(runs, partial(_engine.drain, case.workload, count))
        naive, host = yardsticks(runs, case.workload, count, half)
        pairs = [replay_rates(case.workload, case.system, count) for _ in range(runs)]
        whole, settled = (max(rates) for rates in zip(*pairs, strict=True))
        rates = (generated, naive, host, whole, settled)
        held_against = (generated, naive, host)
        table.add_row(
            case.title,
            *(millions(rate) if rate else "–" for rate in rates),
            *(f"{settled / rate:.3f}" if rate else "–" for rate in held_against),
        )
    print_table(table)
    print(f"host –: the workload has more memory than half of this machine's ({half / 2**30:.1f} GiB)")
    measure_curves(runs, 20_000_000 // share)

    if not shutil.which("valgrind") or not shutil.which("xz"):
        warn("recording is not measured: it needs valgrind and xz")
        return
    with tempfile.TemporaryDirectory() as folder:
        measure_trace(Path(folder), runs, 50_000_000 // share)


def measure_trace(folder: Path, runs: int, accesses: int) -> None:
    """Records xz and replays the trace."""
    trace = folder / "xz.trace"
    program = ["xz", "-9", "-c", "-k", _engine.__file__]
    # The first recording after an installation compiles the tool.
    record(folder / "without.trace", ["true"], accesses, dependencies=False)
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for number in range(runs):
        for dependencies in (True, False)[:: -1 if number % 2 else 1]:
            output = trace if dependencies else folder / "without.trace"
            costs[dependencies].append(record(output, program, accesses, dependencies))
    recorded = _engine.drain(str(trace), accesses)
    with_dependencies, without_dependencies = (cheapest(taken) for taken in costs.values())

    table = Table(
        "", "", title=f"Trace of {' '.join(program[:2])}, {recorded / 1e6:.1f} M accesses", title_justify="left"
    )
    table.show_header = False
    table.add_row("recording, M accesses a second", millions(recorded / with_dependencies.wall))
    table.add_row("recording, M accesses a CPU second", millions(recorded / with_dependencies.cpu))
    table.add_row("bytes an access", f"{with_dependencies.size / recorded:.2f}")
    for what, ratio in zip(("time", "CPU time", "bytes"), with_dependencies.over(without_dependencies), strict=True):
        table.add_row(f"{what} with dependencies / without", f"{ratio:.2f}")
    decoded = best(runs, partial(_engine.drain, str(trace), accesses))
    window = json.dumps(cores.overlapping(json.loads(_engine.machine_json(MACHINE))["core"]))
    replayed, overlapping = best_by_turns(
        runs,
        partial(replay, str(trace), "radix", accesses),
        partial(replay, str(trace), "radix", accesses, f"machine.core={window}"),
    )
    table.add_row("decoding alone, M/s", millions(decoded))
    table.add_row("replay under radix, M/s", millions(replayed))
    table.add_row("replay / decoding", f"{replayed / decoded:.2f}")
    table.add_row("replay with a window core, M/s", millions(overlapping))
    table.add_row("window core, which decodes dependencies / in-order core", f"{overlapping / replayed:.2f}")
    for title, sample in SAMPLES.items():
        table.add_row(
            f"miss-ratio curves, {title}, M/s", millions(best(runs, partial(curves, str(trace), sample, accesses)))
        )
    print_table(table)


@dataclass(frozen=True)
class Cost:
    """What a recording took: seconds, CPU seconds of all processes, and bytes of its trace."""

    wall: float
    cpu: float
    size: int

    def over(self, other: "Cost") -> tuple[float, float, float]:
        """How many times as much as another."""
        return self.wall / other.wall, self.cpu / other.cpu, self.size / other.size


def cheapest(costs: list[Cost]) -> Cost:
    """The least of each."""
    return Cost(min(cost.wall for cost in costs), min(cost.cpu for cost in costs), min(cost.size for cost in costs))


def record(trace: Path, program: list[str], accesses: int, dependencies: bool) -> Cost:
    """Records a program anew."""
    shutil.rmtree(trace, ignore_errors=True)
    before, started = cpu_seconds(), time.perf_counter()
    tells = "--dependencies" if dependencies else "--no-dependencies"
    options = [tells, "-o", str(trace), "--max-accesses", str(accesses)]
    subprocess.run(
        [sys.executable, "-m", "pagelab", "record", *options, "--", *program], stdout=subprocess.DEVNULL, check=True
    )
    wall, cpu = time.perf_counter() - started, cpu_seconds() - before
    return Cost(wall, cpu, sum(part.stat().st_size for part in trace.iterdir()))


def measure_curves(runs: int, accesses: int) -> None:
    """Makes miss-ratio curves of four page sizes and of lines."""
    table = Table("", *(f"{title} M/s" for title in SAMPLES), title="Miss-ratio curves", title_justify="left")
    for workload in CURVES:
        table.add_row(
            workload,
            *(millions(best(runs, partial(curves, workload, sample, accesses))) for sample in SAMPLES.values()),
        )
    print_table(table)


def curves(source: str, sample: float | None, accesses: int) -> int:
    """Makes all miss-ratio curves of a source and returns the accesses looked at."""
    return pagelab.miss_ratio_curves(source, sample=sample, max_accesses=accesses).accesses


def best(runs: int, work: Callable[[], int]) -> float:
    """Accesses a CPU second of the fastest of `runs` runs; `work` returns how many it made."""
    return best_by_turns(runs, work)[0]


def best_by_turns(runs: int, *works: Callable[[], int]) -> list[float]:
    """The same of several, which are run alternately, in either order."""
    rates: list[list[float]] = [[] for _ in works]
    for number in range(runs):
        for work, of_work in list(zip(works, rates, strict=True))[:: -1 if number % 2 else 1]:
            started = time.process_time()
            done = work()
            of_work.append(done / (time.process_time() - started))
    return [max(of_work) for of_work in rates]


def yardsticks(runs: int, workload: str, accesses: int, most_bytes: int) -> tuple[float, float | None]:
    """Accesses a second of the naive simulator with its generator and of this machine, the best of `runs` runs.

    None for the machine if the workload has more than `most_bytes` of memory.
    """
    measured = [json.loads(_engine.yardsticks_json(workload, accesses // 4, accesses, most_bytes)) for _ in range(runs)]
    naive = min(run["generator_nanoseconds"] + run["naive_nanoseconds"] for run in measured)
    host = [run["host_nanoseconds"] for run in measured]
    return 1e9 / naive, None if None in host else 1e9 / min(host)


def replay(source: str, system: str, accesses: int, *settings: str) -> int:
    """Replays on one thread and returns the accesses made."""
    results = pagelab.run(source, system, machine=MACHINE, max_accesses=accesses, threads=1, set=settings)
    return results[system].stats["accesses"]


def replay_rates(
    workload: str, system: str, accesses: int, settings: Sequence[str] = (), machine: str | None = MACHINE
) -> tuple[float, float]:
    """Accesses per CPU second of a replay on one thread: of all, with start-up, and of those behind the first quarter.

    Errors: the run is too short to see where the quarter ends.
    """
    seen: list[tuple[int, float]] = []

    def look(_system: str, done: int, _total: int | None) -> None:
        if done >= accesses // 4:
            seen.append((done, time.process_time()))

    started = time.process_time()
    pagelab.run(workload, system, machine=machine, max_accesses=accesses, threads=1, set=list(settings), progress=look)
    seconds = time.process_time() - started
    (first, begin), (last, end) = seen[0], seen[-1]
    if last - first < accesses // 4:
        raise SystemExit(
            f"{workload} under {system}: {seconds:.2f} s is too short for a settled rate; take more accesses"
        )
    return accesses / seconds, (last - first) / (end - begin)


def cpu_seconds() -> float:
    """CPU time of all children so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ratios_text(values: Sequence[float], others: Sequence[float]) -> str:
    """Median and range of the ratios of each round."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def millions(rate: float) -> str:
    """Millions with three digits."""
    return f"{rate / 1e6:.3g}"


if __name__ == "__main__":
    main()
