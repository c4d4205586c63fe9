"""The runs of the study of hardware-based demand paging.

Memory is full and reclaim at work in each window but those of single misses, which are cold by design. A run whose
window is not so is refused (`check`).
"""

import json
from collections.abc import Iterable
from dataclasses import replace

import pagelab
from pagelab_studies.study import Cost, Measurement, Run

BLOCK_IO = {
    "submit": (9314, 13305),
    "switch": (2829, 4042),
    "interrupt": (3232, 4617),
    "completion": (1003, 1433),
    "wakeup": (9491, 13559),
}
"""Instructions and cycles of `kernel.block_io`, as the presets `osdp` and `hwdp` have them and say how measured."""
LINES = 1769
"""`kernel.block_io.lines`, the same"""
FACTORS = {"quarter": 0.25, "measured": 1.0}
"""Of those costs; the first word of a run's label. They were measured on a virtual machine, whose exits to its host
make them more than those of a machine of its own: so the band goes down from them."""
BRACKETS = (
    "Brackets cover the kernel's costs, from a quarter of them up. In windows with full memory, they also include the "
    "95 % interval of eight parts of the window."
)
"""A note of all studies that use these runs."""
PAPER_PART = 76.29
"""The kernel's part of a page miss, in per cent of the drive's time, which the paper's introduction has."""
INTRODUCTION, INTRODUCTION_FACTOR = "introduction", 0.608
"""The factor at which the kernel's part of a single miss is that. It follows from this figure alone, by the line
through the parts at `FACTORS`. Its runs are a point beside the band, and no verdict depends on them."""
SYSTEMS = {"kernel": "osdp@linux-4.9", "unit": "hwdp@linux-4.9"}
MISSES, READS, STORE, LSM = "single misses", "random reads", "B+tree", "LSM tree"
DRIVE = "z-ssd-sz985"
"""The slides' drive, which both presets have."""
DRIVES = (DRIVE, "disk", "tlc-flash", "cxl-memory")
CPUS = {1: "0", 4: "0,2,4,6", 8: "0,2,4,6,8,10,12,14", 14: "0-13", 16: "0-15"}
"""Where so many threads run: CPUs 2n and 2n + 1 are the hardware threads of one core. Up to 8 have a core each; 14
leave one core to the kernel's threads, and 16 none."""
RATIOS = (2, 4, 8)
"""Data over memory; the slides have 64 GB over 32 GB."""
STORES = {
    "uniform": "DBBench: uniform, 100:0",
    "a": "YCSB-A: zipf, 50:50",
    "b": "YCSB-B: zipf, 95:5",
    "c": "YCSB-C: zipf, 100:0",
    "d": "YCSB-D: latest, 95:5",
    "e": "YCSB-E: scans, zipf, 95:5",
    "f": "YCSB-F: zipf, 50:50 read-modify-write",
}
"""What the slides' table has of stores, and mix F, which it has not. Which of its columns are whose is our reading."""
OTHER_STORE = "the paper's store is RocksDB"
"""Why the B+tree's figures have no verdict."""
OTHER_CORE = "the paper's is of a real core that overlaps accesses"
"""Why the size of a gain in instructions per cycle has none."""
NOT_IN_SLIDES = "f"
"""What is said of this mix is a question of our own."""
KPOOLD_MIXES = ("a", "b", "c", "d", "e", "f")
READ_MEMORY, READ_SIZE = "machine.memory_bytes=512MiB", 1 << 30
STORE_MEMORY, STORE_RECORDS = "machine.memory_bytes=256MiB", 400_000
"""A leaf of 4 KiB has three records: 521 MiB."""
LSM_THREADS = (1, 4, 8)
LSM_RECORDS, LSM_VALUE = 466_000, 1000
"""With the copies in upper levels twice the memory, like the slides' 64 and 32 GB at 1/128 of the size."""
DBBENCH_VALUE = 100
"""db_bench's `value_size`; as many bytes altogether"""
LSM_SIZES = "memtable=1MiB,table=1MiB,bloom=0,level0=2"
"""RocksDB's defaults: no filters; levels 4, 40 and 400 times as large as a table, of which four in level 0 start a
compaction; blocks of 4 KiB with 16 records per restart point. A table and the memory for writes have 64 MiB by default,
and are smaller here, like the data, so that there are as many levels. The block cache, 8 MiB by default, stays empty:
mapped blocks do not enter it."""
PER_OPERATION = {
    "a": (26_028, 96.3),
    "b": (20_223, 57.8),
    "c": (16_388, 50.8),
    "d": (18_318, 55.1),
    "e": (255_892, 915.1),
    "f": (34_841, 128.2),
    "uniform": (18_088, 44.4),
}
"""Instructions of an operation of RocksDB 7.8.3 (Debian 12) and accesses of one of the workload, with all records in
one level: 65,536, and 600,000 of db_bench. RocksDB's are recorded: operations of `examples/stores` and db_bench
(`readrandom`), less those of a run without any. `gap` is the quotient: an access stands for so many instructions."""
MISS_ACCESSES = 1 << 17
READ_ACCESSES = {1: 3 << 20, 4: 3 << 20, 8: 3 << 20, 14: 8 << 20, 16: 8 << 20}
"""By threads: many wait for each other now and then, so that short windows differ."""
READ_WARM_UP = 12 << 20
STORE_ACCESSES = 8 << 20
STORE_WARM_UP = 24 << 20
LEAST_ACCESSES = 1 << 20
"""Of a window, so that pages come and leave by the thousand at any scale."""
LEAST_MISSES = 1 << 14
ALONE = "kernel.read_ahead_bytes=4KiB"
"""A store that knows its requests to be random asks for no read-ahead (MADV_RANDOM); the unit has none anyway."""
_ENGINE = "system.layers.native.fault_engine"
NO_KPOOLD = f"{_ENGINE}.kpoold_cycles=0"
QUEUES = {f"{pages} free pages": f"{_ENGINE}.free_pages={pages}" for pages in (64, 128, 256, 512)}
"""Free pages that the unit's queue holds; the preset's holds 4,096."""
SHORT = "128 free pages"
"""The queue that all mixes have, too; it is about what mix C uses in a period of kpoold."""
PERIODS = {f"kpoold every {ms} ms": f"{_ENGINE}.kpoold_cycles={ms * 2_600_000}" for ms in (1, 16)}
"""Of the slides' 2.6 GHz; the preset's period is 4 ms."""
BATCHES = {f"{pages} pages per refill": f"{_ENGINE}.sync_refill={pages}" for pages in (16, 256)}
"""Free pages that a fault puts into an empty queue; 64 in the preset."""
# Nanoseconds of an access. Scans compute more between theirs, and many threads make the engine change between them.
_COSTS = {MISSES: 10_000.0, READS: 330.0, STORE: 175.0, LSM: 250.0}
_MORE = {"mix e": 215.0, "4 threads": 400.0, "8 threads": 500.0, "14 threads": 650.0, "16 threads": 680.0}


def block_io(factor: float) -> str:
    """The setting of the kernel's costs at a factor, and of the lines that it touches."""
    costs: dict[str, object] = {
        name: {"instructions": round(instructions * factor), "cycles": round(cycles * factor)}
        for name, (instructions, cycles) in BLOCK_IO.items()
    }
    costs["lines"] = round(LINES * factor)
    return f"kernel.block_io={json.dumps(costs, separators=(',', ':'))}"


def cost(run: Run) -> Cost:
    """What an access takes, most of it for misses."""
    each = _MORE.get(run.label.split(", ")[1], _COSTS[run.workload])
    return Cost(window=each, warm_up=each if run.warm_up else 0.0)


def check(measurement: Measurement) -> None:
    """Refuses a window in which reclaim did not keep pace, or that has fewer accesses than were asked for.

    Raises:
        UsageError: it names the run, and what would help.
    """
    run, stats = measurement.run, measurement.stats
    if stats["accesses"] != measurement.window:
        raise pagelab.UsageError(f"{_where(measurement)} has {stats['accesses']:,} only: its source ended before")
    if run.workload != MISSES:
        memory_is_full(measurement, f"it needs more than {run.warm_up:,} accesses before it")


def _where(measurement: Measurement) -> str:
    run = measurement.run
    return f"{run.workload} on {run.system} ({run.label}): a window of {measurement.window:,} accesses"


def memory_is_full(measurement: Measurement, otherwise: str) -> None:
    """Refuses a window in which pages came and did not leave.

    Raises:
        UsageError: it names the run, and what would help.
    """
    stats = measurement.stats
    read, dropped = stats["layer.native.storage.reads.blocks"], stats["reclaim.files.dropped"]
    # Reclaim works by batches, so that a short window may have one more or less.
    if not read or dropped < read / 2:
        raise pagelab.UsageError(
            f"{_where(measurement)} has {read:,} pages that were read and {dropped:,} that reclaim dropped: memory was "
            f"not full, so it says nothing of full memory; {otherwise}"
        )


def runs() -> list[Run]:
    """All runs."""
    return [*_misses(), *_reads(), *_stores(), *_lsm(), *_refills()]


def of_drive(label: str, drive: str) -> str:
    """The label of a run with a drive; the slides' own goes without saying."""
    return label if drive == DRIVE else f"{label}, {drive}"


def of_ratio(label: str, ratio: int) -> str:
    """The label of a run with so many times as much data as memory."""
    return label if ratio == RATIOS[0] else f"{label}, data {ratio} times memory"


def _both(run: Run, at_introduction: bool = False) -> Iterable[Run]:
    """A run on both systems, at each factor."""
    factors = FACTORS | ({INTRODUCTION: INTRODUCTION_FACTOR} if at_introduction else {})
    for word, factor in factors.items():
        settings = (*run.settings, block_io(factor))
        for system, preset in SYSTEMS.items():
            yield replace(run, system=system, preset=preset, label=f"{word}, {run.label}", settings=settings)


def _storage(drive: str) -> tuple[str, ...]:
    return () if drive == DRIVE else (f"kernel.storage={drive}",)


def _misses() -> Iterable[Run]:
    spec = "mapped-read:size=8GiB,lines=1,accesses={total}@0"
    for drive in DRIVES:
        label = of_drive("one thread", drive)
        run = Run(MISSES, spec, "", "", MISS_ACCESSES, 0, _storage(drive), label, in_parts=False)
        yield from _both(replace(run, least_accesses=LEAST_MISSES), at_introduction=drive == DRIVE)


def _reads() -> Iterable[Run]:
    def read(threads: int, ratio: int) -> Iterable[Run]:
        size = READ_SIZE // RATIOS[0] * ratio
        spec = f"mapped-read:size={size},threads={threads},accesses={{total}}@{CPUS[threads]}"
        label = of_ratio(f"{threads} threads", ratio)
        run = _warm(Run(READS, spec, "", "", READ_ACCESSES[threads], READ_WARM_UP, (READ_MEMORY,), label))
        return _both(run, at_introduction=(threads, ratio) == (1, RATIOS[0]))

    for threads in CPUS:
        yield from read(threads, RATIOS[0])
    for ratio in RATIOS[1:]:
        yield from read(1, ratio)


def _store(mix: str, settings: tuple[str, ...] = (), label: str = "", ratio: int = RATIOS[0]) -> Run:
    what = "mix=c,distribution=uniform" if mix == "uniform" else f"mix={mix}"
    spec = f"btree:records={STORE_RECORDS // RATIOS[0] * ratio},{what},accesses={{total}}@0"
    common = (STORE_MEMORY, ALONE, *settings)
    return _warm(Run(STORE, spec, "", "", STORE_ACCESSES, STORE_WARM_UP, common, label or f"mix {mix}"))


def _warm(run: Run) -> Run:
    return replace(run, least_accesses=LEAST_ACCESSES)


def _stores() -> Iterable[Run]:
    for mix in STORES:
        yield from _both(_store(mix))
    for drive in DRIVES[1:]:
        yield from _both(_store("c", _storage(drive), of_drive("mix c", drive)))
    for ratio in RATIOS[1:]:
        yield from _both(_store("c", (), of_ratio("mix c", ratio), ratio))


def of_threads(label: str, threads: int) -> str:
    """The label of a run with several threads; one is not mentioned."""
    return label if threads == 1 else f"{label}, {threads} threads"


def gap(mix: str) -> int:
    """Instructions per access of the log-structured store."""
    instructions, accesses = PER_OPERATION[mix]
    return round(instructions / accesses)


def _lsm_run(mix: str, threads: int = 1, filters: bool = False) -> Run:
    what, value = f"mix={mix}", LSM_VALUE
    if mix == "uniform":
        what, value = "mix=c,distribution=uniform", DBBENCH_VALUE
    # A record has 36 bytes besides its value.
    records = LSM_RECORDS * (LSM_VALUE + 36) // (value + 36)
    sizes = LSM_SIZES.replace("bloom=0", "bloom=10") if filters else LSM_SIZES
    spec = f"lsm:records={records},value={value},{sizes},{what},gap={gap(mix)},threads={threads}"
    label = of_threads(f"mix {mix}", threads) + (", filters" if filters else "")
    spec += f",accesses={{total}}@{CPUS[threads]}"
    return _warm(Run(LSM, spec, "", "", STORE_ACCESSES, STORE_WARM_UP, (STORE_MEMORY, ALONE), label))


def _lsm() -> Iterable[Run]:
    for mix in STORES:
        yield from _both(_lsm_run(mix), at_introduction=mix == "c")
    for threads in LSM_THREADS[1:]:
        yield from _both(_lsm_run("c", threads))
    yield from _both(_lsm_run("c", filters=True))


def _refills() -> Iterable[Run]:
    """Runs of the unit with other settings than the preset's, without kpoold or with it."""

    def unit(mix: str, label: str, *changes: str) -> Run:
        run = _lsm_run(mix)
        settings = (*run.settings, block_io(1.0), *changes)
        return replace(
            run, system="unit", preset=SYSTEMS["unit"], settings=settings, label=f"{label}, mix {mix}", in_parts=False
        )

    for mix in KPOOLD_MIXES:
        yield unit(mix, "without kpoold", NO_KPOOLD)
    for change, setting in (QUEUES | BATCHES | PERIODS).items():
        for mix in KPOOLD_MIXES if change == SHORT else ("c",):
            yield unit(mix, change, setting)
            # The period of kpoold changes nothing where it does not run.
            if change not in PERIODS:
                yield unit(mix, f"without kpoold, {change}", setting, NO_KPOOLD)
