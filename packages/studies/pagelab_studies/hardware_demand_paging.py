"""Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, as far as its slides tell it.

The slides measure single misses on gem5 with a model of a drive, and programs on a real machine whose kernel emulates
the unit. Here both ways are simulated, on that machine and with that drive. What the kernel's requests cost beside the
drive decides the result, so each figure is a band: with those costs as measured, and a quarter of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from pagelab_studies import hardware_demand_paging_events as events
from pagelab_studies import hardware_demand_paging_lsm as lsm
from pagelab_studies import hardware_demand_paging_misses as misses
from pagelab_studies import hardware_demand_paging_refills as refills
from pagelab_studies import hardware_demand_paging_tables as tables
from pagelab_studies.hardware_demand_paging_runs import (
    BRACKETS,
    CPUS,
    DRIVE,
    DRIVES,
    FACTORS,
    INTRODUCTION,
    INTRODUCTION_FACTOR,
    LINES,
    LSM,
    MISSES,
    OTHER_STORE,
    PAPER_PART,
    RATIOS,
    READS,
    STORE,
    STORES,
    SYSTEMS,
    check,
    cost,
    of_drive,
    of_ratio,
    runs,
)
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import (
    Claim,
    Comparison,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Series,
    by_sections,
)

PAPER_LESS, PAPER_READS = 37.0, 57.1
INTRODUCTION_TITLE = "What the unit gains, by the kernel's cost of a request"
GHZ = 2.6
"""Clock of the slides' Xeon E5-2640 v3."""
STAGES = (
    *("entry", "lookup", "walk", "allocation", "zeroing", "submit", "completion", "wakeup", "charge", "rmap", "lru"),
    *("install", "return"),
)
UNIT_STEPS = ("lookup", "free_page", "submit", "complete", "map", "marks")
_UNIT_COUNTS = (
    *("mapped", "joined", "full", "empty", "failed", "gone", "latency.cycles", "accounted_by_calls"),
    *("free_pages.by_kpoold", "free_pages.by_faults", "free_pages.no_memory"),
    *("kpoold.passes", "kpoold.cycles", "kpted.passes", "kpted.pages", "kpted.cycles"),
)
COUNTS = (
    *("accesses", "elapsed_cycles", "fault.major.count", "fault.minor.count", "kthread.runs", "kthread.cycles"),
    *("reclaim.scanned", "reclaim.files.dropped", "reclaim.files.written", "cycles.idle", "cycles.blocked"),
    *("layer.native.storage.reads.blocks", "layer.native.storage.writes.blocks"),
    *(f"layer.native.fault_engine.{name}" for name in _UNIT_COUNTS),
)
"""What `results.json` says of each run, so that a reader can check misses, reclaim and the kernel's threads."""

_COSTS = (
    "the kernel's cost of a request, measured on a virtual machine with a newer kernel, and down to a quarter of it; "
    "the drive's times are its maker's"
)
_UNIT = "what the slides do not say about the unit: registers, sizes of queues, periods"
_PLACES = {
    14: ", both hardware threads of seven cores",
    16: ", the kernel's threads on their CPUs",
}
"""More threads than cores. The slides do not say where the kernel's threads then run, nor how many threads there are:
so what is said of these is a question of our own."""
_PLACED = {
    14: "; the eighth core is left to the kernel's threads",
    16: (
        "; kpted stays on one CPU, and all threads wait for the one that it interrupts there; with 14 threads it "
        "has a core of its own"
    ),
}


def _unit(measurement: Measurement, name: str) -> int:
    return measurement.stats[f"layer.native.fault_engine.{name}"]


def _microseconds(cycles: float) -> float:
    return cycles / GHZ / 1000


def _kernel_miss(measurement: Measurement) -> float:
    """Mean latency of a major fault, in microseconds."""
    return _microseconds(measurement.stats["fault.major.latency.cycles"] / measurement.stats["fault.major.count"])


def _unit_miss(measurement: Measurement) -> float:
    return _microseconds(_unit(measurement, "latency.cycles") / _unit(measurement, "mapped"))


def _band(figure: Callable[[str], float]) -> Interval:
    """A figure at all factors, and at the measured costs."""
    return Interval.from_values([figure(word) for word in FACTORS], figure("measured"))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say of the slides' figures."""
    sections = (
        section_miss,
        section_reads,
        _section_stores,
        lsm.section,
        _section_drives,
        _section_ratios,
        refills.section,
        misses.section,
        misses.served,
        events.section,
        _section_introduction,
        _section_reclaim,
    )
    findings = by_sections(measured, sections)
    for run in measured.all():
        for name in COUNTS:
            run.stats.get(name)
    findings.notes += [
        "Arithmetic with the paper's own figures: the kernel's part is 76.29 % of the drive's time, and the latency "
        "falls by 37 %. So a miss takes 11 % more than the drive's time (1.7629 × 0.63 is 1.11). Reads that take 63 "
        "% of the time give 58.7 % more reads per second; the abstract has up to 57.1 %.",
        f"{BRACKETS} Those of refills are intervals of counts, at the measured costs. No bracket includes anything "
        "else: there is one seed, and one choice of the unit's sizes, except for refills. The kernel's stages alone, "
        "without any of these costs, take longer than the unit's steps. So the sign of one thread's gain at equal "
        "misses follows from the models; its size was measured.",
        "The slides do not say how many threads read. Up to 8 threads have a core each, and each number has its own "
        "verdict. More are questions of our own, since where the kernel's threads run is our choice. With 14, both "
        "hardware threads of all cores but one are busy. With 16, kpted and kswapd run on the CPU of one thread, and "
        "the others wait for it at the end; a kernel's scheduler could avoid that placement. Hardware threads share "
        "caches and TLBs here, but no execution units.",
        "Memory is full in every window except those of single misses, and reclaim keeps pace; other runs are "
        "refused. Sizes are a 64th or less of the slides'. So the unit's queue of 16 MiB is 3 to 6 % of memory.",
        "The slides' table has six patterns for seven columns. Here uniform is read as that of both FIO and DBBench, "
        "and the others as those of YCSB A to E. What its 64/16 and 64/128 GB refer to is not known; data over "
        "memory is a series.",
        "The processor's events are those of the program alone. The lines that kernels touch include kpted's, on "
        "another core. User IPC is an estimate: no branch predictor, no out-of-order core that hides misses, and a "
        f"footprint of the kernel that was measured on a virtual machine ({LINES:,} lines per request, down to a "
        "quarter). The paper's +7.0 % is of a real core, so only the sign has a verdict.",
        "A log-structured tree stands for RocksDB: its major faults per operation are within 15 % of those of RocksDB "
        "7.8.3 under the same limit (docs/major-faults.md), and it executes as many instructions. The B+tree is beside "
        "it, and what is said of it alone is a question of our own.",
        "Not measured here: branch predictions and instruction caches, which hardware-demand-paging-indirect measures. "
        "The slides' estimate on natively run stores is in docs/major-faults.md.",
    ]
    return findings


def section_miss(measured: Measurements, findings: Findings) -> None:
    """Single misses, and where their time goes."""

    kernel = _band(lambda word: _kernel_miss(_single(measured, word, "kernel")))
    unit = _band(lambda word: _unit_miss(_single(measured, word, "unit")))
    less = _less(measured, DRIVE)
    share = _band(partial(_kernels_part, measured))
    for quantity, unit_of, paper, ours, reason in (
        ("latency less by", "%", PAPER_LESS, less, "means; the kernel's measured costs, from a quarter up"),
        ("kernel's part, of the drive's time", "%", PAPER_PART, share, "the paper's is from its own drive and kernel"),
        ("page miss by the kernel", "µs", None, kernel, ""),
        ("page miss by the unit", "µs", None, unit, ""),
    ):
        findings.comparisons.append(
            Comparison(
                "Page miss",
                "one thread",
                quantity,
                unit_of,
                paper,
                ours.value,
                reason,
                ours,
                neutral=0.0 if quantity == "latency less by" else None,
            )
        )
    findings.claims.append(
        Claim(
            "Page miss",
            "a page miss that hardware handles takes less time",
            less.above(0),
            f"{less.value:.1f} % less ({less.low:.1f} to {less.high:.1f})",
            f"{_COSTS}; {_UNIT}",
        )
    )
    kernels, units = (_single(measured, "measured", system) for system in SYSTEMS)
    _breakdown(kernels, units, _device(measured), findings)


def _single(measured: Measurements, word: str, system: str, drive: str = DRIVE) -> Measurement:
    """The run of single misses at one factor of the kernel's costs."""
    return measured[MISSES, system, of_drive(f"{word}, one thread", drive)]


def _device(measured: Measurements) -> float:
    """What the drive takes of a miss, in microseconds."""
    stats = _single(measured, "measured", "kernel").stats
    return _microseconds(stats["layer.native.storage.reads.cycles"] / stats["layer.native.storage.reads"])


def _kernels_part(measured: Measurements, word: str) -> float:
    """The kernel's part of a miss, in per cent of the drive's time."""
    return 100 * (_kernel_miss(_single(measured, word, "kernel")) / _device(measured) - 1)


def _less(measured: Measurements, drive: str) -> Interval:
    """By how many per cent a miss takes less time with the unit."""
    return _band(lambda word: _less_at(measured, drive, word))


def _less_at(measured: Measurements, drive: str, word: str) -> float:
    kernel, unit = (_single(measured, word, system, drive) for system in SYSTEMS)
    return 100 * (1 - _unit_miss(unit) / _kernel_miss(kernel))


def _breakdown(kernel: Measurement, unit: Measurement, device: float, findings: Findings) -> None:
    """Where the time of a miss goes, stage by stage."""
    faults = kernel.stats["fault.major.count"]
    cells: dict[tuple[str, str], float] = {}
    for stage in STAGES:
        cells["kernel", stage] = _microseconds(kernel.stats[f"fault.stage.{stage}.cycles"] / faults)
    cells["kernel", "drive"] = device
    for step in UNIT_STEPS:
        cells["unit", f"unit: {step}"] = _microseconds(_unit(unit, f"step.{step}.cycles") / _unit(unit, "mapped"))
    steps = sum(value for (system, _), value in cells.items() if system == "unit")
    cells["unit", "drive"] = _unit_miss(unit) - steps
    findings.series.append(Series.from_values("Page miss", "Time of a miss, by stage", "µs", cells))


def section_reads(measured: Measurements, findings: Findings, most_threads: int = max(CPUS)) -> None:
    """Random reads, by up to so many threads."""
    numbers = [threads for threads in CPUS if threads <= most_threads]
    gains = {threads: lsm.gain(measured, READS, f"{threads} threads") for threads in numbers}
    most = max(gains.values(), key=lambda gain: gain.value)
    reason = f"4 KiB each; the most of {', '.join(map(str, numbers))} threads; twice as much data as memory"
    findings.comparisons.append(
        Comparison(
            "Abstract",
            "fio, random reads",
            "more per second by up to",
            "%",
            PAPER_READS,
            most.value,
            reason,
            most,
            neutral=0.0,
            ranked=lsm.THROUGHPUT,
        )
    )
    cells = {(f"{threads} threads", "gain"): gain for threads, gain in gains.items()}
    findings.series.append(Series.within("Throughput", misses.READS_TITLE, "%", cells))
    for threads, gain in gains.items():
        where = f"{threads} threads{_PLACES.get(threads, '')}"
        findings.claims.append(
            Claim(
                "Throughput",
                f"more random reads per second of a mapped file with hardware ({where})",
                gain.above(0),
                f"{gain.value:.1f} % ({gain.low:.1f} to {gain.high:.1f})",
                f"{_COSTS}; {_UNIT}{_PLACED.get(threads, '')}",
                ours=threads in _PLACES,
            )
        )


def _section_stores(measured: Measurements, findings: Findings) -> None:
    gain = lsm.gain(measured, STORE, "mix c")
    kernel, unit = (measured[STORE, system, "measured, mix c"] for system in SYSTEMS)
    pages = "layer.native.storage.reads.blocks"
    reason = (
        "without read-ahead; one thread; pages that were read: "
        f"{kernel.stats[pages]:,} by the kernel, {unit.stats[pages]:,} by the unit"
    )
    findings.comparisons.append(
        Comparison(
            "Abstract",
            "YCSB-C, B+tree",
            "more operations per second by",
            "%",
            lsm.PAPER_GAIN,
            gain.value,
            reason,
            gain,
            neutral=0.0,
            unjudged=OTHER_STORE,
        )
    )
    cells = {("FIO: uniform, 100:0", "gain"): lsm.gain(measured, READS, "1 threads")}
    cells |= {(row, "gain"): lsm.gain(measured, STORE, f"mix {mix}") for mix, row in STORES.items()}
    title = "More operations per second by one thread, by pattern and reads to writes"
    findings.series.append(Series.within("Throughput", title, "%", cells))
    findings.claims.append(
        Claim(
            "Throughput",
            "more operations per second of a B+tree with hardware (YCSB-C)",
            gain.above(0),
            f"{gain.value:.1f} % ({gain.low:.1f} to {gain.high:.1f})",
            f"{_COSTS}; {_UNIT}; the store",
            ours=True,
        )
    )


def _section_drives(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    times: dict[tuple[str, str], Interval] = {}
    for drive in DRIVES:
        cells[drive, "a miss takes less"] = _less(measured, drive)
        cells[drive, "YCSB-C does more"] = lsm.gain(measured, STORE, of_drive("mix c", drive))
        for system, time in (("kernel", _kernel_miss), ("unit", _unit_miss)):
            times[drive, system] = _band(
                lambda word, drive=drive, system=system, time=time: time(  # type: ignore[misc]
                    _single(measured, word, system, drive)
                )
            )
    _shift(measured, findings)
    findings.series.append(Series.within("Drives", "What the unit gains, by drive", "%", cells))
    findings.series.append(Series.within("Drives", "Time of a page miss, by drive", "µs", times))


PARTS = {
    "exception and look-up": ("entry", "lookup", "walk"),
    "free page": ("allocation", "zeroing"),
    "request": ("submit",),
    "completion": ("completion",),
    "wake-up": ("wakeup",),
    "metadata": ("charge", "rmap", "lru"),
    "entry and return": ("install", "return"),
}
"""The kernel's part of a miss, in the order of its stages."""
KERNELS = "kernel"
"""All of these parts."""
BY_SPEED = ("disk", "tlc-flash", DRIVE, "cxl-memory")
"""The drives, from the slowest to the fastest."""


def _shift(measured: Measurements, findings: Findings) -> None:
    """How the bottleneck moves from the drive to the kernel: shares of a miss by stage, for each drive."""
    shares = {word: {drive: _shares(measured, word, drive) for drive in DRIVES} for word in FACTORS}
    cells = {
        (drive, part): Interval.from_values(
            [shares[word][drive][part] for word in FACTORS], shares["measured"][drive][part]
        )
        for drive in DRIVES
        for part in (*PARTS, KERNELS, "drive")
    }
    title = "Shares of a page miss by the kernel, by stage"
    findings.series.append(Series.within("Bottleneck shift", title, "%", cells))
    # Drives are compared at the same costs.
    steps = [
        Interval.from_values([of_word[faster][KERNELS] - of_word[slower][KERNELS] for of_word in shares.values()])
        for slower, faster in pairwise(BY_SPEED)
    ]
    rises = all_hold(step.above(0) for step in steps)
    findings.claims.append(
        Claim(
            "Bottleneck shift",
            "the faster the device, the larger the kernel's share of a page miss",
            rises,
            ", ".join(f"{cells[drive, KERNELS]} % with {drive}" for drive in BY_SPEED),
            _COSTS,
            "order",
        )
    )
    slowest, fastest = cells[BY_SPEED[0], KERNELS], cells[BY_SPEED[-1], KERNELS]
    for text, holds, share, drive in (
        ("the drive takes more of a page miss than the kernel", _not(slowest.above(50)), slowest, BY_SPEED[0]),
        ("the kernel takes more of a page miss than the device", fastest.above(50), fastest, BY_SPEED[-1]),
    ):
        detail = f"the kernel's share is {share} %"
        # The slides end with flash drives.
        beyond = drive == "cxl-memory"
        claim = Claim("Bottleneck shift", f"{text} ({drive})", holds, detail, _COSTS, "order", ours=beyond)
        findings.claims.append(claim)


def _not(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _shares(measured: Measurements, word: str, drive: str) -> dict[str, float]:
    """Per cent of a page miss that each part takes, and all parts of the kernel."""
    run = _single(measured, word, "kernel", drive)
    faults, whole = run.stats["fault.major.count"], _kernel_miss(run)

    def share(stages: Sequence[str]) -> float:
        cycles = sum(run.stats[f"fault.stage.{stage}.cycles"] for stage in stages)
        return 100 * _microseconds(cycles / faults) / whole

    shares = {part: share(stages) for part, stages in PARTS.items()}
    kernels = sum(shares.values())
    # The drive, and what its wait does not hide of a switch to another task.
    return {**shares, KERNELS: kernels, "drive": 100 - kernels}


def _section_ratios(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    for ratio in RATIOS:
        row = f"data {ratio} times memory"
        cells[row, "random reads"] = lsm.gain(measured, READS, of_ratio("1 threads", ratio))
        cells[row, "YCSB-C"] = lsm.gain(measured, STORE, of_ratio("mix c", ratio))
    findings.series.append(
        Series.within("Throughput", "More per second by one thread, by data over memory", "%", cells)
    )


def _section_introduction(measured: Measurements, findings: Findings) -> None:
    """What the paper prints of, at the kernel's cost at which its part is that of the introduction.

    It is a point beside the range, and no verdict depends on it."""
    columns = {"a quarter": "quarter", f"a factor of {INTRODUCTION_FACTOR:g}": INTRODUCTION, "as measured": "measured"}
    rows: dict[str, tuple[float, Callable[[str], float]]] = {
        "kernel's part, of the drive's time": (PAPER_PART, lambda word: _kernels_part(measured, word)),
        "a miss takes less": (PAPER_LESS, lambda word: _less_at(measured, DRIVE, word)),
        "random reads, 1 thread": (PAPER_READS, lambda word: lsm.gain_at(measured, READS, "1 threads", word).value),
        "YCSB-C, LSM tree, 1 thread": (lsm.PAPER_GAIN, lambda word: lsm.gain_at(measured, LSM, "mix c", word).value),
        "user IPC, YCSB-C, LSM tree": (events.PAPER_IPC, lambda word: events.ipc_gain(measured, LSM, word).value),
    }
    cells: dict[tuple[str, str], float] = {}
    for row, (paper, ours) in rows.items():
        cells[row, "paper"] = paper
        cells |= {(row, column): ours(word) for column, word in columns.items()}
    findings.series.append(Series.from_values("Introduction", INTRODUCTION_TITLE, "%", cells))
    quarter, whole = (_kernels_part(measured, word) for word in FACTORS)
    low, high = FACTORS.values()
    factor = low + (high - low) * (PAPER_PART - quarter) / (whole - quarter)
    findings.notes.append(
        f"A point beside the range: the kernel's part of a single miss is the introduction's {PAPER_PART:g} % of the "
        f"drive's time if a request costs the kernel {factor:.3f} of what was measured, by the line through a quarter "
        "and the whole. That factor follows from this one figure. The table of the introduction has what the other "
        "figures would then be; no verdict depends on it."
    )


def _section_reclaim(measured: Measurements, findings: Findings) -> None:
    """What came and what left in windows, so that a reader sees that memory was full."""
    windows = [(READS, f"{threads} threads") for threads in CPUS] + [(STORE, f"mix {mix}") for mix in STORES]
    cells: dict[tuple[str, str], float] = {}
    for workload, label in windows:
        for system in SYSTEMS:
            stats = measured[workload, system, f"measured, {label}"].stats
            row = f"{workload}, {label}"
            cells[row, f"{system}: read"] = stats["layer.native.storage.reads.blocks"]
            cells[row, f"{system}: dropped"] = stats["reclaim.files.dropped"]
            cells[row, f"{system}: written"] = stats["reclaim.files.written"]
    findings.series.append(Series.from_values("Reclaim", "Pages that came and left in the window", "pages", cells))


REPRODUCTION = Reproduction(
    name="hardware-demand-paging",
    title="Hardware-based demand paging",
    paper="Gyusun Lee, Wenjing Jin et al., ISCA 2020",
    machine="broadwell-e5-2640v3",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
    check=check,
    of_tables=tables.add,
)
