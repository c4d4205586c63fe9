"""What hardware demand paging would gain, from runs of a real kernel that emulates its unit.

Models: time of the hardware = time of the run with the emulated unit - misses × Δ, with Δ = what the unit's software
    takes for a miss - what the simulated unit takes. The run has what the hardware has as well: the kernel's threads
    kpted and kpoold, and what all of them displace.
Source: Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, slides "Experimental Setup". Their
    formula is garbled in our text; this is how we read it.
Parameters: figures of `pagelab linux bench` under the three settings, and results of `pagelab run` under a kernel and
    under a unit (`osdp`, `hwdp`).
Deviations: the drive of the guest (null_blk) takes no time, so the simulated drive's is added to both sides. Under
    emulation an instruction counts as a cycle, and nothing is displaced. A cycle of the host counts as one of the
    simulated machine. Memory is free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.major_faults import beside
from pagelab.results.results import Results
from pagelab_linux import LinuxError
from pagelab_linux.bench import Figure
from pagelab_linux.rounds import Median

KERNEL, SOFTWARE, THREADS = "off", "block-mapping", "block-mapping-threads"
SETTINGS = (KERNEL, SOFTWARE, THREADS)
"""The kernel's own page faults; the unit's software without kpted and kpoold; the same with both at their periods"""
IN_PASS, ALL_WORK, FROM_KERNEL = "threads as in the run", "all work of the threads", "from the kernel's run"
METHODS = {
    IN_PASS: "the run with the emulated unit, with as much of kpted and kpoold as ran during it",
    ALL_WORK: "the same with all that both did for its misses, on the program's CPU",
    FROM_KERNEL: "the run without the unit, less the simulated difference (as `pagelab major-faults`)",
}


@dataclass(frozen=True)
class Miss:
    """A simulated miss, in cycles of its machine."""

    unit: float
    """Of the unit, without the drive"""
    kernel: float
    """Of the kernel, without the drive"""
    drive: float


@dataclass(frozen=True)
class Estimate:
    """Cycles of an operation, a load of a page that is not in memory, and what the hardware gains."""

    workload: str
    levels: int
    method: str
    """One of `METHODS`"""
    delta: Median
    """Δ"""
    kernel: Median
    """By the kernel, drive included"""
    hardware: Median
    """By the hardware, drive included"""
    gain_percent: Median
    """More operations per time"""


def simulated_miss(path: Path) -> Miss:
    """A miss from results of the same program under a kernel and under a unit.

    Raises:
        OSError: the file cannot be read.
        UsageError: it has not one system of either kind with misses.
    """
    systems = Results.load(path).systems
    latencies: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for system, miss in zip(systems, beside.simulated([path]), strict=True):
        cycles, reads = (_sum_of(system.stats, f".storage.reads{what}") for what in (".cycles", ""))
        if miss.latency_ns is not None and reads:
            megahertz = system.config["machine"]["frequency_mhz"]
            drive = cycles / reads
            latencies[miss.has_unit].append((miss.latency_ns * megahertz / 1000 - drive, drive))
    if any(len(of_kind) != 1 for of_kind in latencies.values()):
        raise UsageError(
            f"{path}: misses of {len(latencies[False])} kernels and {len(latencies[True])} units; it must have one of "
            "each: `pagelab run SPEC -s osdp -s hwdp --json FILE`"
        )
    (kernel, drive), (unit, _) = latencies[False][0], latencies[True][0]
    return Miss(unit, kernel, drive)


def _sum_of(stats: Mapping[str, int], ending: str) -> int:
    return sum(value for name, value in stats.items() if name.startswith("layer.") and name.endswith(ending))


def ensure_settings(names: Sequence[str]) -> None:
    """Refuses a bench without the three settings.

    Raises:
        UsageError: it names those that are missing.
    """
    missing = [name for name in SETTINGS if name not in names]
    if missing:
        raise UsageError(f"--against needs {' '.join(f'-s {name}' for name in missing)} as well")


def estimates(figures: Sequence[Figure], miss: Miss) -> list[Estimate]:
    """Estimates of each workload and number of levels that was measured under all three settings.

    A method is left out if it leaves no time for anything but the drive: the simulated costs are not this kernel's.

    Raises:
        LinuxError: a run with the unit does not say how many misses it served.
    """
    by_run: dict[tuple[str, int], dict[int, dict[str, Figure]]] = {}
    for figure in figures:
        by_run.setdefault((figure.workload, figure.levels), {}).setdefault(figure.round, {})[figure.setting] = figure
    made = []
    for (workload, levels), rounds in by_run.items():
        whole = [of_round for of_round in rounds.values() if all(name in of_round for name in SETTINGS)]
        for method in METHODS if whole else ():
            each = [_of_round(of_round, miss, method) for of_round in whole]
            if any(after <= miss.drive for _, _, after in each):
                # The simulated kernel takes longer for a miss than this one does.
                continue
            delta, kernel, hardware = (Median.from_values([one[n] for one in each]) for n in range(3))
            gains = Median.from_values([100 * (before / after - 1) for _, before, after in each])
            made.append(Estimate(workload, levels, method, delta, kernel, hardware, gains))
    return made


def _of_round(of_round: Mapping[str, Figure], miss: Miss, method: str) -> tuple[float, float, float]:
    """Δ, and the time of an operation by the kernel and by the hardware."""
    kernel, software, threads = (of_round[name] for name in SETTINGS)
    if _counter(software, "mapped") != software.faults:
        raise LinuxError(
            f"{software.setting}, {software.workload}: the unit served {_counter(software, 'mapped'):,} of "
            f"{software.faults:,} misses; Δ needs a run in which it serves all: enlarge the queue (queue_pages)"
        )
    before = _time(kernel) / kernel.faults
    if method == FROM_KERNEL:
        delta = miss.kernel - miss.unit
        return delta, before + miss.drive, before - delta + miss.drive
    delta = software.per_fault - miss.unit
    run, more = threads, 0
    if method == ALL_WORK:
        run, more = software, sum(_counter(software, f"{thread}_ticks") for thread in ("kpted", "kpoold"))
    after = (_time(run) + more - _counter(run, "mapped") * delta) / run.faults
    return delta, before + miss.drive, after + miss.drive


def _time(figure: Figure) -> int:
    """Of the pass that faults."""
    return figure.ticks + figure.loop_ticks


def _counter(figure: Figure, name: str) -> int:
    value = figure.counters.get(name, "")
    if not value.isdecimal():
        raise LinuxError(f"{figure.setting}, {figure.workload}: does not say {name}, so it maps no drive: use storage")
    return int(value)


def to_dict(miss: Miss, made: Sequence[Estimate]) -> dict[str, Any]:
    """For JSON."""
    return {"miss_cycles": asdict(miss), "estimates": [asdict(one) for one in made]}
