"""Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, as far as its slides tell it.

The slides measure single misses on gem5 with a model of a drive, and programs on a real machine whose kernel emulates
the unit. Here both ways are simulated, on that machine and with that drive. What the kernel's requests cost beside the
drive decides the result, so each figure is a band: with those costs as measured, half of them, and a quarter.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from pagelab.reproduce.interval import Interval
from pagelab.reproduce.study import (
    Claim,
    Comparison,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)

GHZ = 2.6
"""Clock of the slides' Xeon E5-2640 v3."""
BLOCK_IO = {
    "submit": (9314, 13305),
    "switch": (2829, 4042),
    "interrupt": (3232, 4617),
    "completion": (1003, 1433),
    "wakeup": (9491, 13559),
}
"""Instructions and cycles of `kernel.block_io`, as the presets `osdp` and `hwdp` have them and say how measured."""
FACTORS = {"quarter": 0.25, "half": 0.5, "measured": 1.0}
"""Of those costs; the first word of a run's label. They were measured on a virtual machine, whose exits to its host
make them more than those of a machine of its own: so the band goes down from them."""
SYSTEMS = {"kernel": "osdp@linux-4.9", "unit": "hwdp@linux-4.9"}
MISSES, READS, STORE = "single misses", "random reads", "B+tree"
THREADS = (1, 4, 8)
MIXES = {"a": "50:50", "b": "95:5", "c": "100:0", "d": "95:5, latest", "f": "50:50, read-modify-write"}
MEMORY = "machine.memory_bytes=1GiB"
"""Half of the file of random reads, as 32 GB are of the slides' 64 GB. The B+tree does not fill it in its window."""
MISS_ACCESSES = 1 << 17
READ_ACCESSES = 1 << 23
READ_WARM_UP = 24 << 20
ALONE = "kernel.read_ahead_bytes=4KiB"
"""A store that knows its requests to be random asks for no read-ahead (MADV_RANDOM); the unit has none anyway."""
QUEUES = (64, 128, 256, 512)
"""Free pages that the unit's queue holds, besides the preset's."""
STORE_OPERATIONS = "300K"
STORE_ACCESSES = 24 << 20
STORE_WARM_UP = 12 << 20
STAGES = ("entry", "lookup", "walk", "allocation", "zeroing", "submit", "completion", "wakeup", "charge", "rmap", "lru")
STAGES_AFTER = ("install", "return")
UNIT_STEPS = ("lookup", "free_page", "submit", "complete", "map", "marks")
NO_KPOOLD = "system.layers.native.fault_engine.kpoold_cycles=0"

_COSTS = (
    "what requests cost the kernel: measured on a virtual machine with a newer kernel, down to a quarter of it; the "
    "drive's times are its maker's"
)
_UNIT = "what the slides leave open of the unit: registers, sizes of queues, periods"


def block_io(factor: float) -> str:
    """The setting of the kernel's costs at a factor."""
    costs = {
        name: {"instructions": round(instructions * factor), "cycles": round(cycles * factor)}
        for name, (instructions, cycles) in BLOCK_IO.items()
    }
    return f"kernel.block_io={json.dumps(costs, separators=(',', ':'))}"


def cost(run: Run) -> Cost:
    """What an access takes, most of it for misses; from the time of whole runs, two at a time."""
    each = {MISSES: 6000.0, READS: 250.0, STORE: 110.0}[run.workload]
    return Cost(window=each, warm_up=each if run.warm_up else 0.0)


def runs() -> list[Run]:
    """All runs."""
    return [*_misses(), *_reads(), *_stores()]


def _both(run: Run) -> list[Run]:
    """A run on both systems, at each factor."""
    made = []
    for word, factor in FACTORS.items():
        settings = (*run.settings, block_io(factor))
        made += [
            replace(run, system=system, preset=preset, label=f"{word}, {run.label}", settings=settings)
            for system, preset in SYSTEMS.items()
        ]
    return made


def _misses() -> list[Run]:
    spec = f"mapped-read:size=8GiB,lines=1,operations={MISS_ACCESSES}@0"
    run = Run(MISSES, spec, "", "", MISS_ACCESSES, label="one thread", least_accesses=MISS_ACCESSES, in_parts=False)
    return _both(run)


def _reads() -> list[Run]:
    made = []
    for threads in THREADS:
        operations = (READ_WARM_UP + READ_ACCESSES) // 64
        spec = f"mapped-read:size=2GiB,operations={operations},threads={threads}@0-{threads - 1}"
        run = Run(READS, spec, "", "", READ_ACCESSES, READ_WARM_UP, (MEMORY,), f"{threads} threads", in_parts=False)
        made += _both(replace(run, least_accesses=READ_ACCESSES))
    return made


def _stores() -> list[Run]:
    made = []
    for mix in MIXES:
        spec = f"btree:records=2M,mix={mix},operations={STORE_OPERATIONS}@0"
        run = Run(STORE, spec, "", "", STORE_ACCESSES, STORE_WARM_UP, (MEMORY, ALONE), f"mix {mix}", in_parts=False)
        run = replace(run, least_accesses=STORE_ACCESSES)
        made += _both(run) if mix == "c" else [of for of in _both(run) if of.label.startswith("measured")]
        unit = replace(run, system="unit", preset=SYSTEMS["unit"])
        for queue in (None, *QUEUES) if mix == "c" else (None,):
            size = () if queue is None else (f"system.layers.native.fault_engine.free_pages={queue}",)
            common = (MEMORY, ALONE, block_io(1.0), *size)
            label = _refills(mix, queue)
            made.append(replace(unit, label=f"without kpoold, {label}", settings=(*common, NO_KPOOLD)))
            if queue is not None:
                made.append(replace(unit, label=f"with kpoold, {label}", settings=common))
    return made


def _refills(mix: str, queue: int | None) -> str:
    """The label of runs about refills, of the preset's queue or of one that holds so many pages."""
    return f"mix {mix}" if queue is None else f"mix {mix}, {queue} free pages"


def _unit(of: Measurement, name: str) -> int:
    return of.stats[f"layer.native.fault_engine.{name}"]


def _microseconds(cycles: float) -> float:
    return cycles / GHZ / 1000


def _kernel_miss(of: Measurement) -> float:
    """Mean latency of a major fault, in microseconds."""
    return _microseconds(of.stats["fault.major.latency.cycles"] / of.stats["fault.major.count"])


def _unit_miss(of: Measurement) -> float:
    return _microseconds(_unit(of, "latency.cycles") / _unit(of, "mapped"))


def _band(of: Callable[[str], float]) -> Interval:
    """A figure at all factors, and at the measured costs."""
    return Interval.of([of(word) for word in FACTORS], of("measured"))


def _gain(measured: Measurements, workload: str, label: str) -> float:
    """How much more is done per time with the unit, in per cent."""
    kernel, unit = (measured[workload, system, label] for system in SYSTEMS)
    return 100 * (kernel.stats["elapsed_cycles"] / unit.stats["elapsed_cycles"] - 1)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say of the slides' figures."""
    findings = by_sections(measured, (_section_miss, _section_reads, _section_stores, _section_refills))
    findings.notes += [
        "Arithmetic on the paper's own figures: a kernel's part of 76.29 % of the drive's time, and a latency that "
        "falls by 37 %, leave 11 % of the drive's time beside it (1.7629 by 0.63 is 1.11). Reads that take 63 % of the "
        "time are 58.7 % more per second, and the abstract has up to 57.1 %.",
        "Brackets span the kernel's costs, from a quarter up, and nothing else: one drive, one seed, one choice of the "
        "unit's sizes. The kernel's stages alone, without any of these costs, take longer than the unit's steps; so "
        "the signs of the first three statements follow from the models, and the sizes are what was measured.",
        "A thread for each core at most. The unit stalls its core, and the kernel gives it away: with both hardware "
        "threads of each core busy, random reads were up to 1.4 times slower with the unit at a quarter of the costs.",
        "The B+tree's records are cold and memory does not fill, so kpted and reclaim hardly run, and kpoold always "
        "finds memory. With full memory it spares fewer refills: a third of them, at a tenth of the size.",
        "Not measured here: events of the processor (branch predictions, instructions per cycle), RocksDB itself, and "
        "the slides' estimate on a natively run program.",
    ]
    return findings


def _section_miss(measured: Measurements, findings: Findings) -> None:
    def run(word: str, system: str) -> Measurement:
        return measured[MISSES, system, f"{word}, one thread"]

    kernel = _band(lambda word: _kernel_miss(run(word, "kernel")))
    unit = _band(lambda word: _unit_miss(run(word, "unit")))
    less = _band(lambda word: 100 * (1 - _unit_miss(run(word, "unit")) / _kernel_miss(run(word, "kernel"))))
    device = _microseconds(
        run("measured", "kernel").stats["layer.native.storage.reads.cycles"]
        / run("measured", "kernel").stats["layer.native.storage.reads"]
    )
    share = _band(lambda word: 100 * (_kernel_miss(run(word, "kernel")) / device - 1))
    for quantity, unit_of, paper, ours, reason in (
        ("latency less by", "%", 37.0, less, "means; from a quarter of the kernel's measured costs up"),
        ("kernel's part, of the drive's time", "%", 76.29, share, "the paper's is of its own drive and kernel"),
        ("page miss by the kernel", "µs", None, kernel, ""),
        ("page miss by the unit", "µs", None, unit, ""),
    ):
        findings.comparisons.append(
            Comparison("Page miss", "one thread", quantity, unit_of, paper, ours.value, reason, interval=ours)
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
    _breakdown(run("measured", "kernel"), run("measured", "unit"), device, findings)


def _breakdown(kernel: Measurement, unit: Measurement, device: float, findings: Findings) -> None:
    """Where the time of a miss goes, stage by stage."""
    faults = kernel.stats["fault.major.count"]
    cells: dict[tuple[str, str], float] = {}
    for stage in (*STAGES, *STAGES_AFTER):
        cells["kernel", stage] = _microseconds(kernel.stats[f"fault.stage.{stage}.cycles"] / faults)
    cells["kernel", "drive"] = device
    for step in UNIT_STEPS:
        cells["unit", f"unit: {step}"] = _microseconds(_unit(unit, f"step.{step}.cycles") / _unit(unit, "mapped"))
    steps = sum(value for (system, _), value in cells.items() if system == "unit")
    cells["unit", "drive"] = _unit_miss(unit) - steps
    findings.series.append(Series.of("Page miss", "Time of a miss, by stage", "µs", cells))


def _section_reads(measured: Measurements, findings: Findings) -> None:
    gains: dict[int, Interval] = {}
    for threads in THREADS:
        gains[threads] = _band(lambda word, n=threads: _gain(measured, READS, f"{word}, {n} threads"))  # type: ignore[misc]
    most = max(gains.values(), key=lambda gain: gain.value)
    reason = f"4 KiB each, {', '.join(map(str, THREADS))} threads; twice as much data as memory"
    findings.comparisons.append(
        Comparison("Abstract", "fio, random reads", "more per second by up to", "%", 57.1, most.value, reason, most)
    )
    cells = {(f"{threads} threads", "gain"): gain.value for threads, gain in gains.items()}
    findings.series.append(Series.of("Throughput", "More random reads per second, by threads", "%", cells))
    least = min(gains.values(), key=lambda gain: gain.low)
    findings.claims.append(
        Claim(
            "Throughput",
            "random reads of a mapped file are more per second with hardware",
            least.above(0),
            f"{least.value:.1f} % at least ({least.low:.1f} to {least.high:.1f})",
            f"{_COSTS}; {_UNIT}",
        )
    )


def _section_stores(measured: Measurements, findings: Findings) -> None:
    gain = _band(lambda word: _gain(measured, STORE, f"{word}, mix c"))
    reason = "a B+tree of ours in the place of RocksDB, without read-ahead; one thread, cold records"
    findings.comparisons.append(
        Comparison("Abstract", "YCSB-C", "more operations per second by", "%", 27.3, gain.value, reason, gain)
    )
    cells = {(f"mix {mix}", "gain"): _gain(measured, STORE, f"measured, mix {mix}") for mix in MIXES}
    findings.series.append(Series.of("Throughput", "More operations per second, by YCSB's mix", "%", cells))
    findings.claims.append(
        Claim(
            "Throughput",
            "a store does more operations per second with hardware (YCSB-C)",
            gain.above(0),
            f"{gain.value:.1f} % ({gain.low:.1f} to {gain.high:.1f})",
            f"{_COSTS}; {_UNIT}; the store",
        )
    )


def _section_refills(measured: Measurements, findings: Findings) -> None:
    def fewer(with_it: str, label: str) -> float:
        kept = _unit(measured[STORE, "unit", f"{with_it}, {label}"], "empty")
        return 100 * (1 - kept / max(_unit(measured[STORE, "unit", f"without kpoold, {label}"], "empty"), 1))

    cells = {(f"mix {mix}", "fewer"): fewer("measured", _refills(mix, None)) for mix in MIXES}
    cells |= {(f"mix c, {queue} free pages", "fewer"): fewer("with kpoold", _refills("c", queue)) for queue in QUEUES}
    band = Interval.of(cells.values())
    reason = "the slides print 44 to 78; how large the queue is they do not say: here from 64 pages to 4096"
    findings.comparisons.append(
        Comparison("Free pages", "YCSB", "synchronous refills fewer by", "%", 78, band.value, reason, band)
    )
    findings.series.append(Series.of("Free pages", "Fewer synchronous refills with kpoold", "%", cells))
    findings.claims.append(
        Claim(
            "Free pages",
            "kpoold makes synchronous refills fewer",
            band.above(0),
            f"{band.low:.0f} to {band.high:.0f} % fewer",
            _UNIT,
        )
    )


REPRODUCTION = Reproduction(
    name="hardware-demand-paging",
    title="Hardware-based demand paging",
    paper="Gyusun Lee, Wenjing Jin et al., ISCA 2020",
    machine="broadwell-e5-2640v3",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
