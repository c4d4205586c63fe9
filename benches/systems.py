"""How fast systems other than plain radix replay, and what a simulated page fault takes beside a real one.

    python benches/systems.py [--quick]

Rates are accesses per CPU second of a replay on one thread, settled: start-up and the first quarter of the accesses,
with almost all first touches, are left out. Systems and the naive program take turns in each round. A ratio is of one
round; the table has the median of the rounds and the range. The columns:

- of naive: beside the simplest program that counts the same hits of TLBs and caches (`crates/pagelab-host`);
- of radix: beside `radix` on the same workload, or for a window core beside the core in order.

A fault's CPU time is that of `stride`, which writes one word in each page, without the first quarter.
The real one is that of `fault_loops.c`, with a mapping per task. It includes the host's work for a virtual machine.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import fault_loops
import throughput
from rich.table import Table

from pagelab import _engine
from pagelab.cli.terminal import print_table, warn
from pagelab.replay import cores

ROUNDS = 5
FAULTS = 240_000
NATIVE_ROUNDS = 9


@dataclass(frozen=True)
class Row:
    """A system on a workload, and keys set for it."""

    title: str
    system: str
    workload: str = "gups:size=256MiB"
    settings: tuple[str, ...] = ()
    beside: str = "radix"
    """Title of the row that its rate is compared with."""


def _window() -> str:
    core = json.loads(_engine.machine_json(throughput.MACHINE))["core"]
    return f"machine.core={json.dumps(cores.overlapping(core))}"


def rows() -> tuple[Row, ...]:
    """All systems that are compared. A design of each kind: tables, layers, what stands behind the TLBs, cores."""
    return (
        Row("radix", "radix"),
        Row("radix, random", "radix", "random:size=256MiB", beside="radix, random"),
        Row("hashed-open", "hashed-open"),
        Row("hashed-compact", "hashed-compact"),
        Row("elastic-cuckoo", "elastic-cuckoo"),
        Row("nested-radix", "nested-radix"),
        Row("nested-radix, random", "nested-radix", "random:size=256MiB", beside="radix, random"),
        Row("nested-hashed-compact", "nested-hashed-compact"),
        Row("nested-elastic-cuckoo", "nested-elastic-cuckoo"),
        Row(
            "data prefetchers", "radix", settings=("machine.prefetch.l1.ip_stride=on", "machine.prefetch.l2.stream=on")
        ),
        Row("memory bandwidth", "radix", settings=("machine.memory.bytes_per_cycle=4",)),
        Row("kernel references off", "radix", settings=("engine.kernel_refs=off",)),
        Row("window core", "radix", settings=(_window(),)),
    )


def measure_rates(
    compared: Sequence[Row], rounds: int, accesses: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Settled rates by title, and those of the naive program by workload, one of each round."""
    rates: dict[str, list[float]] = {row.title: [] for row in compared}
    naive: dict[str, list[float]] = {row.workload: [] for row in compared}
    for number in range(rounds):
        for workload, of_naive in naive.items():
            of_naive.append(throughput.yardsticks(1, workload, accesses, 0)[0])
        for row in list(compared)[:: -1 if number % 2 else 1]:
            settled = throughput.replay_rates(row.workload, row.system, accesses, row.settings)[1]
            rates[row.title].append(settled)
    return rates, naive


def print_rates(compared: Sequence[Row], rates: Mapping[str, list[float]], naive: Mapping[str, list[float]]) -> None:
    """The table of rates."""
    table = Table("", "M/s", "of naive", "of radix", title="Systems, GUPS or random over 256 MiB", title_justify="left")
    for row in compared:
        ours = rates[row.title]
        table.add_row(
            row.title,
            throughput.millions(statistics.median(ours)),
            throughput.ratios_text(ours, naive[row.workload]),
            "" if row.beside == row.title else throughput.ratios_text(ours, rates[row.beside]),
        )
    print_table(table)


FAULT_SYSTEMS = ("radix", "hashed-compact", "mfoe", "nested-radix", "nested-hashed-compact")


def fault_seconds(system: str) -> float:
    """CPU seconds per fault of a replay on the default machine."""
    workload = f"stride:size={4 * FAULTS}KiB,stride=4KiB,write=1,accesses={FAULTS}"
    return 1 / throughput.replay_rates(workload, system, FAULTS, machine=None)[1]


def print_faults(rounds: int) -> None:
    """The table of faults, beside the host's own."""
    case = fault_loops.Case("apart", "threads", 1)
    native = fault_loops.measure([case], NATIVE_ROUNDS)[case]
    taken: dict[str, list[float]] = {system: [] for system in FAULT_SYSTEMS}
    for number in range(rounds):
        for system in FAULT_SYSTEMS[:: -1 if number % 2 else 1]:
            taken[system].append(fault_seconds(system))
    table = Table("", "µs", "of the host's", title="A page fault, CPU time", title_justify="left")
    if native:
        host = 1 / statistics.median(native)
        table.add_row("this host", f"{host * 1e6:.2f}", "")
    else:
        warn("this host's own faults are not measured: other programs took the CPU in each repetition")
    for system, seconds in taken.items():
        middle = statistics.median(seconds)
        table.add_row(system, f"{middle * 1e6:.2f}", f"{middle / host:.2f}" if native else "–")
    print_table(table)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer accesses, one round")
    quick = parser.parse_args().quick
    rounds, accesses = (1, 8_000_000) if quick else (ROUNDS, 16_000_000)
    compared = rows()
    print_rates(compared, *measure_rates(compared, rounds, accesses))
    print_faults(rounds)


if __name__ == "__main__":
    main()
