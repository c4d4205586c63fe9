"""How page faults scale with threads and processes: measured natively, and simulated.

    python benches/fault_loops.py [-m MACHINE] [-k KERNEL…] [--repeat N] [--tasks N…]
    python benches/fault_loops.py --guest [-m MACHINE] [--repeat N] [--tasks N…] [--rounds N]

`fault_loops.c` says what the loops do. Native figures are the median of the repetitions, which take turns, with the
95 % interval of the sign test. A repetition in which tasks waited for their CPUs does not count; `chrt -f 50` in front
keeps other programs away from them. A host may move virtual CPUs between cores that share a cache and distant ones,
which changes how long the loop `one` waits for the line of its lock.

The columns of kernels are replays of `stride` with as many threads, in parts of one mapping (`one`) or in mappings
apart, or of as many processes. A kernel or machine of one's own comes from `pagelab calibrate` and `pagelab calibrate
--hardware`.

With `--guest`, the loops run in the kernel of `pagelab linux`, on emulated CPUs that stay on one of the host's each.
That kernel counts how often its locks are acquired during the timed parts of the loops, and how often a task had to
wait. Beside it are the counts of the simulated kernel nearest in version. docs/locks.md says what can be compared.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

import pagelab
from pagelab.cli.terminal import print_table, warn
from pagelab.confidence.sign_test import median_interval

if TYPE_CHECKING:
    from pagelab_linux import lock_counts

_PRESET = re.compile(r"linux-(\d+)\.(\d+)")
LOOPS = ("one", "apart", "anonymous", "private", "shared")
PAGES = 4096
"""Per task; of `fault_loops.c`."""
LEAST_SHARE = 0.97
"""Of its seconds that a task must have been on its CPU."""
LEAST_REPEATS = 6
"""Fewer have no interval of 95 %."""
BOOTS = 3
"""Of the guest"""
FEWEST_CONTENDED = 0.5
"""Per 1,000 faults, of a lock that the simulation does not have, so that the table shows it"""
HELD_LOCKS = '{"zone_page":{"instructions":40,"cycles":20},"lru_page":{"instructions":60,"cycles":30}}'
"""Guesses, those of docs/configuration.md: no preset has costs of these locks."""


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
    parser.add_argument(
        "--repeat",
        type=int,
        default=None,
        help=f"repetitions of each loop, at least {LEAST_REPEATS}, or boots of the guest",
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=None, help="numbers of tasks; default: 1, 2, 4… CPUs")
    parser.add_argument("--loops", nargs="+", default=LOOPS, choices=LOOPS, help="loops to run; default: all")
    parser.add_argument("--guest", action="store_true", help="count acquisitions of locks in an emulated kernel")
    parser.add_argument("--before", action="append", default=[], help="a step of the guest before the loops")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each loop in the guest")
    wanted = parser.parse_args()
    cpus = len(os.sched_getaffinity(0))
    counts = wanted.tasks or sorted({*(1 << n for n in range(cpus.bit_length()) if 1 << n <= cpus), cpus})
    least = 1 if wanted.guest else LEAST_REPEATS
    repeat = wanted.repeat if wanted.repeat is not None else BOOTS if wanted.guest else 9
    if repeat < least:
        parser.error(f"--repeat must be at least {least}")
    cases = [Case(loop, kind, tasks) for loop, kind in _kinds(wanted.loops) for tasks in counts]
    if min(counts) < 1:
        parser.error("--tasks must be at least 1")
    if wanted.guest:
        if wanted.rounds < 1:
            parser.error("--rounds must be at least 1")
        try:
            count_in_guest(cases, wanted.machine, repeat, wanted.rounds, wanted.before)
        except pagelab.PagelabError as error:
            raise SystemExit(f"fault_loops: {error}") from None
        return
    if max(counts) > cpus:
        warn(f"this process may use {cpus} CPUs: loops with more tasks are only simulated")
    native = measure([case for case in cases if case.tasks <= cpus], repeat)
    simulated = {
        (case, kernel): simulate(case, wanted.machine, kernel, max(counts))
        for kernel in wanted.kernel
        for case in cases
        if case.workloads
    }
    print_table(_table(cases, wanted.kernel, native, simulated))


def _kinds(loops: Sequence[str]) -> Iterator[tuple[str, str]]:
    for loop in loops:
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
    system = replay(case, machine, kernel, cores)
    cycles = system.stats["cycles"] / case.tasks
    return float(case.tasks * PAGES / cycles * system.config["machine"]["frequency_mhz"] * 1e6)


def replay(case: Case, machine: str, kernel: str, cores: int, *settings: str) -> pagelab.SystemResult:
    """A replay of the case's workloads."""
    results = pagelab.run(
        case.workloads or (),
        f"radix@{kernel}",
        machine=machine,
        max_accesses=PAGES * case.tasks,
        threads=1,
        set=[f"machine.cores={cores}", "machine.threads_per_core=1", *settings],
    )
    return results.systems[0]


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


def count_in_guest(cases: Sequence[Case], machine: str, boots: int, rounds: int, before: Sequence[str]) -> None:
    """Counts acquisitions of locks in the guest and in the simulation, and prints them."""
    # The package pagelab-linux may be missing.
    from pagelab_linux import guest, lock_counts, suite
    from pagelab_linux.build import Workshop
    from pagelab_linux.initramfs import programs
    from pagelab_linux.layout import default_work, layout

    most = max(case.tasks for case in cases)
    emulated = guest.Machine(cpus=most, at_once=True, pinned=True, bare=True, seconds=1800.0)
    emulated.check()
    suite.check_steps(before, programs(layout()))
    workshop = Workshop.from_layout(layout(), default_work(), lambda text: print(text, file=sys.stderr))
    counting = lock_counts.Guest.from_workshop(workshop, Path(__file__).with_suffix(".c"))
    arguments = [[case.loop, case.kind, str(case.tasks), str(rounds)] for case in cases]
    counted: dict[Case, list[tuple[float, lock_counts.Counted]]] = {case: [] for case in cases}
    for _ in range(boots):
        for case, result in zip(cases, counting.run(emulated, arguments, before), strict=True):
            faults = float(result.result.split()[2]) * PAGES * rounds * case.tasks
            counted[case].append((faults, result))
    kernel = nearest(counting.version, [each["name"] for each in pagelab.available("kernels")])
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("loop", "tasks", "lock", "acquired per fault", kernel, "contended per 1,000", kernel, "queued"):
        table.add_column(title, justify="left" if title in ("loop", "lock") else "right")
    for case in cases:
        system = None
        if case.workloads:
            system = replay(case, machine, kernel, most, f"kernel.held_locks={HELD_LOCKS}")
        for row in _lock_rows(counted[case], lock_counts.KINDS, system):
            table.add_row(case.label, str(case.tasks), *row)
    print(f"Linux {counting.version}, {most} emulated CPUs, {boots} boots, {rounds} rounds; contended: median (range)")
    print_table(table)
    waited = [result.waited for results in counted.values() for _, result in results]
    print(f"The emulated CPUs waited for the host's during {min(waited):.1%} to {max(waited):.1%} of their time")
    fallbacks = max(result.fallbacks for results in counted.values() for _, result in results)
    print(f"Faults without the lock of their VMA: at most {fallbacks} per run, from its start to its end")


def nearest(version: str, kernels: Iterable[str]) -> str:
    """The kernel preset without additions to its name whose version is nearest to this one."""
    wanted = tuple(map(int, version.split(".")[:2]))
    names = {match[0]: (int(match[1]), int(match[2])) for match in map(_PRESET.fullmatch, kernels) if match}
    return min(names, key=lambda name: (abs(names[name][0] - wanted[0]), abs(names[name][1] - wanted[1])))


def _lock_rows(
    counted: Sequence[tuple[float, "lock_counts.Counted"]],
    lock_kinds: Mapping[str, str],
    system: pagelab.SystemResult | None,
) -> Iterator[tuple[str, ...]]:
    """The name of a lock, its acquisitions per fault in guest and simulation, and how many of them are contended."""
    for kind in lock_kinds:
        in_guest = [(faults, each.count(lock_kinds[kind])) for faults, each in counted]
        simulated = _simulated(kind, system) if system else ("–", "–", "–")
        if any(count.acquisitions for _, count in in_guest) or any(text not in ("–", "0.00") for text in simulated[1:]):
            acquired, contended = _of_guest(in_guest)
            yield kind, acquired, simulated[0], contended, *simulated[1:]
    for name in dict.fromkeys(name for _, each in counted for name in each.others()):
        in_guest = [(faults, each.count(name)) for faults, each in counted]
        if statistics.median(1000 * count.contended / faults for faults, count in in_guest) >= FEWEST_CONTENDED:
            acquired, contended = _of_guest(in_guest)
            yield name, acquired, "–", contended, "–", "–"


def _of_guest(in_guest: Sequence[tuple[float, "lock_counts.LockCount"]]) -> tuple[str, str]:
    contended = [1000 * count.contended / faults for faults, count in in_guest]
    spread = f" ({min(contended):.2f} to {max(contended):.2f})" if len(contended) > 1 and max(contended) else ""
    acquired = statistics.median(count.acquisitions / faults for faults, count in in_guest)
    return f"{acquired:.4f}", f"{statistics.median(contended):.2f}{spread}"


def _simulated(kind: str, system: pagelab.SystemResult) -> tuple[str, str, str]:
    """Acquisitions per fault, contended and queued ones per 1,000 faults; a dash for what is not counted."""
    stats, kernel = system.stats, system.config["kernel"]
    faults = stats["layer.native.fault.count"]
    # Zone locks are counted. The others follow from what a fault does (docs/locks.md). One CPU counts no batches.
    acquired = {
        "mmap_read": float(kernel["fault_lock"] == "mm"),
        "vma": float(kernel["fault_lock"] == "vma"),
        "page_table": 1 + stats["layer.native.fault.tables"] / faults,
        "zone": stats["layer.native.frames.zone_locks"] / faults,
        "lru": 1 / kernel["lru_batch"],
        "rss": 1 / (kernel["rss_batch"] if system.config["machine"]["cores"] > 1 else 1),
    }

    def per_thousand(name: str) -> str:
        count = stats.get(f"layer.native.lock.{kind}.{name}")
        return "–" if count is None else f"{1000 * count / faults:.2f}"

    return f"{acquired.get(kind, 0.0):.4f}", per_thousand("contended"), per_thousand("queued")


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
