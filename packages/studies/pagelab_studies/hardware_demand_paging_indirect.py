"""What page misses cost a program beside their own time, with the kernel's code: a recording of RocksDB.

Models: YCSB-C on RocksDB, with twice as much data as memory (`examples/programs/record.py --only rocksdb --accesses`).
    The recording has the addresses of instructions and the outcomes of branches, which the workloads of
    `hardware_demand_paging` have not. Variants differ by one change each: kernel code is neither fetched nor has
    branches; it is fetched; it has branches, too.
Deviations: `kernel.code` has sizes of kernel paths, density and predictability of branches that are estimates. The
    instruction cache has no prefetcher.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from pagelab.results.headline import user_ipc
from pagelab_studies.hardware_demand_paging_events import PAPER_IPC
from pagelab_studies.hardware_demand_paging_lsm import PAPER_GAIN, gains_by_factor
from pagelab_studies.hardware_demand_paging_runs import (
    ALONE,
    FACTORS,
    OTHER_CORE,
    SYSTEMS,
    block_io,
    memory_is_full,
)
from pagelab_studies.interval import Interval
from pagelab_studies.study import (
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
    figure,
)
from pagelab_studies.tables import cell, table

ROCKSDB = "RocksDB, recorded"
RECORDING = "rocksdb"
LIMIT = "kernel.cgroup_limit_bytes=32MiB"
"""Half of the store, as in the slides."""
WARM_UP, WINDOW = 120_000_000, 100_000_000
"""The store is opened, and some 10,000 requests fill its memory; the window has as many more."""
_CODE = "kernel.code.path_lines=0"
_BRANCHES = "kernel.code.branch_instructions=6"
NO_CODE, FETCHED, WITH_BRANCHES = "no kernel code", "kernel code fetched", "kernel code fetched, with branches"
VARIANTS = {NO_CODE: (_CODE,), FETCHED: (), WITH_BRANCHES: (_BRANCHES,)}
"""Each has one change more than the one before."""
_L1I = 'machine.cache.l1i={"size_bytes":"32KiB","ways":8,"latency_cycles":4}'
"""Broadwell's size and ways (Intel's optimization manual); the latency is that of the data cache."""
COMMON = (LIMIT, ALONE, _L1I, "machine.core.branch_predictor=tage")
KPTED = "system.layers.native.fault_engine.kpted_cycles"
EVERY_MS = f"{KPTED}=2600000"
"""kpted every millisecond of the slides' 2.6 GHz. The preset's period, a second, is longer than the window: pages would
be charged to the memory cgroup by system calls alone, its limit would hardly take effect, and the unit would miss less
often than the kernel."""
EVERY_S = "kpted every second"
"""Runs with the preset's period, beside the judged ones."""
READ = "layer.native.storage.reads.blocks"
EVENTS = {
    "mispredicted branches": "branches.mispredicted",
    "misses of the L1 instruction cache": "instruction_cache.program.misses",
}
"""Of the program alone."""
IPC_TITLE = "More instructions per cycle of the program"
OPERATIONS_TITLE = "More operations per second of YCSB-C on RocksDB, one core"
IPC = "user IPC more by"
_RESTS_ON = (
    "code and branches of the kernel: 64 lines per path, a branch per 6 instructions, of which 10 % are random, all "
    "estimates; the kernel's cost of a request, as measured and down to a quarter; brackets: the 95 % interval of "
    "eight parts of the window"
)


def runs() -> list[Run]:
    """All runs; they need the recording."""
    return list(_runs())


def _runs() -> Iterator[Run]:
    for word, factor in FACTORS.items():
        for variant, changes in VARIANTS.items():
            common = (*COMMON, *changes, block_io(factor))
            label = f"{word}, {variant}"
            yield _run("kernel", common, label)
            yield _run("unit", (*common, EVERY_MS), label)
        yield _run("unit", common, f"{label}, {EVERY_S}")


def _run(system: str, settings: tuple[str, ...], label: str) -> Run:
    spec = f"{{programs}}/{RECORDING}.trace@0"
    return Run(ROCKSDB, spec, system, SYSTEMS[system], WINDOW, WARM_UP, settings, label, least_accesses=WINDOW)


def cost(run: Run) -> Cost:
    """What an access takes."""
    del run
    return Cost(window=115.0, warm_up=115.0)


def check(measurement: Measurement) -> None:
    """Refuses a recording in which reclaim did not keep pace.

    Raises:
        UsageError: it names the run, and what would help.
    """
    memory_is_full(measurement, "the recording is too short")


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_events, _instructions, _operations, _misses))
    findings.notes += [
        "The recording is of RocksDB 7.8.3 (Debian 12) with its defaults, but tables and memory for writes of 1 MiB: "
        "65,536 records of 1000 bytes, requests with YCSB's zipf distribution, all of its threads on one core.",
        "Variants differ by one change each. Without kernel code, page misses only displace data and translations, as "
        "in `hardware-demand-paging`.",
        "kpted runs every millisecond, so that the memory limit takes effect, and kernel and unit miss equally often. "
        "With the preset's period of a second it does not run in the window: beside the judged figures stands what the "
        "unit would then seem to gain.",
        "The unit's misses run no kernel code but kpted's and kswapd's, which have a core of their own.",
    ]
    return findings


def _over_factors(measured: Measurements, variants: Sequence[str], quantity: Callable[..., float]) -> Interval:
    """A figure of both systems, for each variant in turn, over all factors: that of the measured costs."""
    by_factor = {
        word: figure(
            quantity,
            *(measured[ROCKSDB, system, f"{word}, {variant}"] for variant in variants for system in SYSTEMS),
        )
        for word in FACTORS
    }
    return Interval.around(by_factor["measured"].value, by_factor.values())


def _events(measured: Measurements, findings: Findings) -> None:
    """Events of the program, and how many fewer there are with the unit."""
    cells: dict[tuple[str, str], float] = {}
    fewer: dict[tuple[str, str], Interval] = {}
    for event, name in EVENTS.items():

        def less(kernel: Mapping[str, int], unit: Mapping[str, int], name: str = name) -> float:
            return 100 * (1 - _rate(unit, name) / _rate(kernel, name))

        for variant in VARIANTS:
            fewer[event, variant] = _over_factors(measured, (variant,), less)
            for system in SYSTEMS:
                stats = measured[ROCKSDB, system, f"measured, {variant}"].stats
                cells[f"{event}, {variant}", system] = 1000 * _rate(stats, name)
    title = "Events of the program per 1000 instructions"
    findings.series.append(Series.from_values("Indirect cost", title, "events", cells))
    findings.series.append(Series.within("Indirect cost", "Fewer events of the program with hardware", "%", fewer))
    for event in EVENTS:
        one = fewer[event, WITH_BRANCHES]
        control = fewer[event, NO_CODE]
        detail = f"{_range(one)} fewer; {_range(control)} if the kernel's code has no effect"
        text = f"the program has fewer {event} if hardware handles page misses (YCSB-C on RocksDB)"
        findings.claims.append(Claim("Resource pollution", text, one.above(0), detail, _RESTS_ON))


def _rate(stats: Mapping[str, int], name: str) -> float:
    return stats[name] / stats["instructions"]


def _range(interval: Interval) -> str:
    return f"{interval.value:.2f} % ({interval.low:.2f} to {interval.high:.2f})"


def _more(kernel: Mapping[str, int], unit: Mapping[str, int]) -> float:
    """How many more instructions per cycle of the program there are with the unit, in per cent."""
    return 100 * ((user_ipc(unit) or 0.0) / (user_ipc(kernel) or 1.0) - 1)


def _instructions(measured: Measurements, findings: Findings) -> None:
    """The program's own instructions per cycle."""

    gains = {variant: _over_factors(measured, (variant,), _more) for variant in VARIANTS}
    cells = {(variant, IPC): gain for variant, gain in gains.items()}
    findings.series.append(Series.within("Indirect cost", IPC_TITLE, "%", cells))
    gain = gains[WITH_BRANCHES]
    reason = "an in-order core that waits for each access and each fetch"
    item = "YCSB-C on RocksDB"
    findings.comparisons.append(
        Comparison("Abstract", item, IPC, "%", PAPER_IPC, gain.value, reason, gain, neutral=0.0, unsized=OTHER_CORE)
    )
    text = "more of the program's own instructions per cycle with hardware (YCSB-C on RocksDB)"
    findings.claims.append(Claim("Indirect cost", text, gain.above(0), _range(gain), _RESTS_ON))

    def points(*of_both: Mapping[str, int]) -> float:
        kernel_before, unit_before, kernel, unit = of_both
        return _more(kernel, unit) - _more(kernel_before, unit_before)

    steps = {after: _over_factors(measured, (before, after), points) for before, after in pairwise(VARIANTS)}
    for variant, step in steps.items():
        what = "fetches of kernel code" if variant == FETCHED else "branches of kernel code"
        text = f"{what} make the program's instructions per cycle gain more by hardware"
        detail = f"{step.value:.2f} points ({step.low:.2f} to {step.high:.2f})"
        findings.claims.append(Claim("Indirect cost", text, step.above(0), detail, _RESTS_ON, ours=True))


def _operations(measured: Measurements, findings: Findings) -> None:
    """Operations per second."""
    gains = {}
    for variant in VARIANTS:
        by_factor = gains_by_factor(measured, ROCKSDB, variant)
        gains[variant, "gain"] = Interval.around(by_factor["measured"].value, by_factor.values())
    findings.series.append(Series.within("Throughput", OPERATIONS_TITLE, "%", gains))
    gain = gains[WITH_BRANCHES, "gain"]
    text = "more operations per second of RocksDB with hardware (YCSB-C, recorded)"
    findings.claims.append(Claim("Throughput", text, gain.above(0), _range(gain), _RESTS_ON))


def beside_the_abstract(findings: Findings) -> None:
    """The gain in operations per second, beside the abstract's."""
    gains = table(findings, OPERATIONS_TITLE)
    if gains is None:
        return
    gain = cell(gains, WITH_BRANCHES, "gain")
    item, quantity = "YCSB-C on RocksDB", "more operations per second by"
    reason = "all of its threads on one core, half of 65,536 records in memory"
    findings.comparisons.append(
        Comparison("Abstract", item, quantity, "%", PAPER_GAIN, gain.value, reason, gain, neutral=0.0)
    )


def _misses(measured: Measurements, findings: Findings) -> None:
    """Pages read in the window, and the gains of a unit whose kpted does not run in it."""
    usual = {word: f"{word}, {WITH_BRANCHES}" for word in FACTORS}
    cells: dict[tuple[str, str], float] = {}
    for variant in VARIANTS:
        for system in SYSTEMS:
            cells[variant, system] = measured[ROCKSDB, system, f"measured, {variant}"].stats[READ]
    cells[f"{WITH_BRANCHES}, {EVERY_S}", "unit"] = measured[ROCKSDB, "unit", f"{usual['measured']}, {EVERY_S}"].stats[
        READ
    ]
    findings.series.append(Series.from_values("Misses", "Pages read in the window", "pages", cells))

    def faster(kernel: Mapping[str, int], unit: Mapping[str, int]) -> float:
        return 100 * (kernel["elapsed_cycles"] / unit["elapsed_cycles"] - 1)

    gains: dict[tuple[str, str], Interval] = {}
    for period, suffix in (("kpted every millisecond", ""), (EVERY_S, f", {EVERY_S}")):
        for quantity, name in ((faster, "operations per second"), (_more, IPC)):
            by_factor = {
                word: figure(
                    quantity, measured[ROCKSDB, "kernel", label], measured[ROCKSDB, "unit", f"{label}{suffix}"]
                )
                for word, label in usual.items()
            }
            gains[period, name] = Interval.around(by_factor["measured"].value, by_factor.values())
    findings.series.append(Series.within("Misses", "More with hardware, by kpted's period", "%", gains))


REPRODUCTION = Reproduction(
    name="hardware-demand-paging-indirect",
    title="Hardware-based demand paging: instruction caches and branches",
    paper="Gyusun Lee, Wenjing Jin et al., ISCA 2020",
    machine="broadwell-e5-2640v3",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
    check=check,
    of_tables=beside_the_abstract,
)
