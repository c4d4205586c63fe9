"""How page faults scale with threads and processes: measured natively, and simulated.

    python benches/fault_loops.py [-m MACHINE] [-k KERNEL…] [--repeat N] [--tasks N…]

`fault_loops.c` says what the loops do. Native figures are the median of the repetitions, which take turns, with the
95 % interval of the sign test. A repetition in which tasks waited for their CPUs does not count; `chrt -f 50` in front
keeps other programs away from them. A host may move virtual CPUs between cores that share a cache and distant ones,
which changes how long the loop `one` waits for the line of its lock.

The columns of kernels are replays of `stride` with as many threads, in parts of one mapping (`one`) or in mappings
apart, or of as many processes. A kernel or machine of one's own comes from `pagelab calibrate` and `pagelab calibrate
--hardware`.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

import pagelab
from pagelab.cli.terminal import print_table, warn
from pagelab.confidence.sign_test import median_interval

LOOPS = ("one", "apart", "anonymous", "private", "shared")
PAGES = 4096
"""Per task; of `fault_loops.c`."""
LEAST_SHARE = 0.97
"""Of its seconds that a task must have been on its CPU."""
LEAST_REPEATS = 6
"""Fewer have no interval of 95 %."""


@dataclass(frozen=True)
class Case:
    """A loop with so many tasks."""

    loop: str
    kind: str
    tasks: int

    @property
    def label(self) -> str:
        return f"{self.loop}, {self.kind}"

    @property
    def workloads(self) -> list[str] | None:
        """What is replayed; none if the case has no such workload."""
        stride = f"stride:size={PAGES * 4}KiB,stride=4KiB,write=1"
        if self.kind == "processes" and self.loop == "apart":
            return [f"{stride}@{cpu}" for cpu in range(self.tasks)]
        if self.kind == "threads" and self.loop in ("one", "apart"):
            regions = "own" if self.loop == "one" else "apart"
            return [f"{stride},threads={self.tasks},regions={regions}@0-{self.tasks - 1}"]
        return None


def main() -> None:
    """Measures, replays and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--machine", default="xeon-silver-4114", help="machine preset or file of the replays")
    parser.add_argument("-k", "--kernel", nargs="+", default=["linux-4.9", "linux-6.12"], help="kernels of the replays")
    parser.add_argument("--repeat", type=int, default=9, help=f"repetitions of each loop, at least {LEAST_REPEATS}")
    parser.add_argument("--tasks", type=int, nargs="+", default=None, help="numbers of tasks; default: 1, 2, 4… CPUs")
    wanted = parser.parse_args()
    cpus = len(os.sched_getaffinity(0))
    counts = wanted.tasks or sorted({*(1 << n for n in range(cpus.bit_length()) if 1 << n <= cpus), cpus})
    if wanted.repeat < LEAST_REPEATS:
        parser.error(f"--repeat must be at least {LEAST_REPEATS}")
    cases = [Case(loop, kind, tasks) for loop, kind in _kinds() for tasks in counts]
    if min(counts) < 1:
        parser.error("--tasks must be at least 1")
    if max(counts) > cpus:
        warn(f"this process may use {cpus} CPUs: loops with more tasks are only simulated")
    native = measure([case for case in cases if case.tasks <= cpus], wanted.repeat)
    simulated = {
        (case, kernel): simulate(case, wanted.machine, kernel, max(counts))
        for kernel in wanted.kernel
        for case in cases
        if case.workloads
    }
    print_table(_table(cases, wanted.kernel, native, simulated))


def _kinds() -> Iterator[tuple[str, str]]:
    for loop in LOOPS:
        for kind in ("threads", "processes"):
            if (loop, kind) != ("one", "processes"):
                yield loop, kind


def measure(cases: Sequence[Case], repeats: int) -> dict[Case, list[float]]:
    """Faults per second of each repetition in which no task waited for its CPU."""
    source = Path(__file__).with_suffix(".c")
    rates: dict[Case, list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="pagelab-fault-loops-") as folder:
        program = Path(folder) / "fault_loops"
        subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), str(source)], check=True)
        for _ in range(repeats):
            for case in cases:
                command = [str(program), case.loop, case.kind, str(case.tasks)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                rate, share, faults = map(float, done.stdout.split())
                if abs(faults - 1) > 0.01:
                    raise SystemExit(f"{case}: the kernel counted {faults:.3f} faults per page, not 1")
                if share >= LEAST_SHARE:
                    rates[case].append(rate)
    return rates


def simulate(case: Case, machine: str, kernel: str, cores: int) -> float:
    """Faults per second of simulated time."""
    settings = [f"machine.cores={cores}", "machine.threads_per_core=1"]
    results = pagelab.run(
        case.workloads or (),
        f"radix@{kernel}",
        machine=machine,
        max_accesses=PAGES * case.tasks,
        threads=1,
        set=settings,
    )
    (system,) = results.systems
    cycles = system.stats["cycles"] / case.tasks
    return float(case.tasks * PAGES / cycles * system.config["machine"]["frequency_mhz"] * 1e6)


def _table(
    cases: Iterable[Case],
    kernels: Sequence[str],
    native: dict[Case, list[float]],
    simulated: dict[tuple[Case, str], float],
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in (
        "loop",
        "tasks",
        "native, K faults/s",
        "times one task",
        *kernels,
        *(f"times ({k})" for k in kernels),
    ):
        table.add_column(title, justify="left" if title == "loop" else "right")
    for case in cases:
        one = Case(case.loop, case.kind, 1)
        table.add_row(
            case.label,
            str(case.tasks),
            *_native(native.get(case, []), native.get(one, [])),
            *(f"{simulated[case, k] / 1e3:,.0f}" if (case, k) in simulated else "–" for k in kernels),
            *(f"{simulated[case, k] / simulated[one, k]:.2f}" if (one, k) in simulated else "–" for k in kernels),
        )
    return table


def _native(rates: Sequence[float], of_one: Sequence[float]) -> tuple[str, str]:
    """The rate, and how many times that of one task it is."""
    if len(rates) < LEAST_REPEATS:
        return "disturbed", "–"
    low, high = median_interval(rates)
    text = f"{statistics.median(rates) / 1e3:,.0f} ({low / 1e3:,.0f} to {high / 1e3:,.0f})"
    if len(of_one) < LEAST_REPEATS:
        return text, "–"
    return text, f"{statistics.median(rates) / statistics.median(of_one):.2f}"


if __name__ == "__main__":
    main()
