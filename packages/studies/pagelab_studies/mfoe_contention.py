"""The minor-fault offload engine with threads of one process that fault at the same time (§4.9).

The paper says that the kernel locks for all faults of a process, whatever their pages, and the engine for those of a
page alone. In `mfoe_threads` no lock matters, since each thread has page tables of its own. Here threads in step fault
on neighbouring pages of one page-table page, whose lock is then what the paper's one lock is, or on the same page.

A page-table page has 512 entries, so a process ends after as many faults, and the next one begins. They run beside a
program that ends the run. Each process first reads a page of code, which all its threads wait for; these waits are
those of a process whose threads have a page each, and are subtracted.
"""

from collections.abc import Iterator
from itertools import product

from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import SYSTEMS
from pagelab_studies.study import (
    Claim,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)

FAULTS = "faults in step"
APART, TABLE = "tables apart", "one table"
SAME, OWN = "the same page", "a page each"
THREADS = (1, 4, 8)
PAGES = 512
"""Of each process, whatever its threads, so that it has as much memory: those of a page-table page."""
GAPS = (40_000, 25_000, 60_000)
"""Instructions between a thread's faults, the usual first. A table of 256 frames lasts for those of 2 ms."""
LOCKS = {"unordered": (), "queued": ("kernel.spin_locks=queued",)}
"""Who gets a lock that is released: Linux 4.9 has queues, the preset has not."""
ARMED = ("system.layers.native.fault_engine.spawn_cycles=0",)
"""Where a process touches one page alone, which must be armed before."""
MAIN_ACCESSES = 2000
MAIN = f"random:size=4KiB,accesses={MAIN_ACCESSES},gap=100000@8"
ALL = ("machine.cores=11", "engine.sync_quantum_cycles=0")
"""Eight cores for the threads, and one each for the program that ends the run and for the kernel's two threads. No core
runs ahead of another one."""
_ENGINE, _LOCK = "layer.native.fault_engine", "layer.native.lock.page_table"
_RESTS_ON = (
    "even faults of threads in step, one seed: the range is over three intervals between faults, and queued or "
    "unordered locks; Linux 4.9 has a lock per page-table page here, as the real one, and not one per process as the "
    "paper says"
)
_OF_PAGE = (
    "threads reach the page one after the other, as the kernel lets them go on from the fault of their code; one seed: "
    "the range is over four and eight threads, and three intervals"
)


def cost(_: Run) -> Cost:
    """What an access of the program takes that ends the run, with all that happens beside it."""
    return Cost(window=ACCESS_NS)


ACCESS_NS = 200_000.0
"""Measured as `study.Cost` says."""


def contended_runs() -> list[Run]:
    """All runs, of a second each."""
    return [*_in_step(), *_on_a_page()]


def _label(pattern: str, threads: int, gap: int, lock: str) -> str:
    # One thread has one table, whatever the others would have.
    return f"{threads} threads, {TABLE if threads == 1 else pattern}, {gap} instructions, {lock} locks"


def _in_step() -> Iterator[Run]:
    for pattern, threads, gap in product((TABLE, APART), THREADS, GAPS):
        if (pattern, threads) == (APART, 1):
            continue
        regions, size = ("shared", 4 * PAGES) if pattern == TABLE else ("own", 4 * PAGES // threads)
        spec = f"stride:size={size}KiB,stride=4KiB,write=1,threads={threads},regions={regions},gap={gap}"
        for lock, settings in LOCKS.items():
            for system in ("kernel", "engine"):
                yield _run(_label(pattern, threads, gap, lock), f"{spec}@0-{threads - 1}", system, settings)


def _page_label(pattern: str, threads: int, gap: int) -> str:
    return f"{threads} threads, {pattern}, {gap} instructions"


def _on_a_page() -> Iterator[Run]:
    for pattern, threads, gap in product((SAME, OWN), THREADS[1:], GAPS):
        regions = "shared" if pattern == SAME else "own"
        spec = f"stride:size=4KiB,stride=4KiB,write=1,threads={threads},regions={regions},accesses={threads},gap={gap}"
        for system in ("kernel", "engine"):
            settings = ARMED if system == "engine" else ()
            yield _run(_page_label(pattern, threads, gap), f"{spec}@0-{threads - 1}", system, settings)


def _run(label: str, beside: str, system: str, settings: tuple[str, ...]) -> Run:
    return Run(
        FAULTS,
        MAIN,
        system,
        SYSTEMS[system],
        MAIN_ACCESSES,
        settings=(*ALL, *settings),
        label=label,
        beside=(beside,),
        least_accesses=MAIN_ACCESSES,
        in_parts=False,
    )


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_growth, _waiters))


MMAP_SEM, TABLE_LOCK, HIT = "kernel, mmap_sem", "kernel, page-table lock", "engine, hit"


def _growth(measured: Measurements, findings: Findings) -> None:
    """How what takes locks grows from one thread to eight, in one table and in tables apart."""
    conditions = list(product(GAPS, LOCKS))
    known: dict[tuple[str, str], list[float]] = {}
    for pattern, threads in product((TABLE, APART), THREADS):
        labels = [_label(pattern, threads, *condition) for condition in conditions]
        kernel, engine = ([measured[FAULTS, system, label] for label in labels] for system in ("kernel", "engine"))
        row = f"{threads} threads, {pattern}"
        known[row, MMAP_SEM] = [_mmap_sem(run) for run in kernel]
        known[row, TABLE_LOCK] = [_table_lock(run) for run in kernel]
        known[row, HIT] = [run.stats[f"{_ENGINE}.mapped.cycles"] / run.stats[f"{_ENGINE}.hits"] for run in engine]
        known[row, "kernel, % that wait for the table"] = [_waiting(run) for run in kernel]
    title = "Stages that take locks, and a hit: mean cycles, of threads in step"
    cells = {cell: _interval(values) for cell, values in known.items()}
    findings.series.append(Series.within("§4.9", title, "cycles, %", cells))

    def grown(pattern: str, member: str) -> list[float]:
        one, many = (known[f"{threads} threads, {pattern}", member] for threads in (THREADS[0], THREADS[-1]))
        return [after - before for before, after in zip(one, many, strict=True)]

    for pattern in (TABLE, APART):
        by_semaphore, by_table, by_hit = (grown(pattern, member) for member in (MMAP_SEM, TABLE_LOCK, HIT))
        more = _interval([sum(locks) - hit for *locks, hit in zip(by_semaphore, by_table, by_hit, strict=True)])
        text = (
            f"with {THREADS[-1]} threads in step instead of one, the kernel's stages that take locks become slower by "
            f"more cycles than a hit of the engine ({pattern})"
        )
        detail = (
            f"those of mmap_sem by {_interval(by_semaphore)}, that of the page-table lock with its wait by "
            f"{_interval(by_table)}, a hit by {_interval(by_hit)} cycles; the difference is {more}"
        )
        findings.claims.append(Claim("§4.9", text, more.above(0), detail, _RESTS_ON))


def _mmap_sem(measurement: Measurement) -> float:
    """Cycles of the stages that take and release it, per fault. Also of those that then find their page mapped."""
    stats = measurement.stats
    cycles = stats["fault.stage.lookup.cycles"] + stats["fault.stage.return.cycles"]
    return cycles / (stats["fault.minor.count"] + stats["fault.raced.count"])


def _table_lock(measurement: Measurement) -> float:
    """Cycles of the stage that takes it, and in which a fault waits until another one releases it."""
    stats = measurement.stats
    cycles = stats["fault.stage.install.cycles"] + stats.get(f"{_LOCK}.wait_cycles", 0)
    return cycles / stats["fault.minor.count"]


def _waiting(measurement: Measurement) -> float:
    """Per cent of the faults on the program's data that wait for the lock of the page-table page."""
    stats = measurement.stats
    waiting = stats.get(f"{_LOCK}.contended", 0)
    return 100 * waiting / (stats["fault.minor.count"] - stats["fault.cached.count"])


def _waiters(measured: Measurements, findings: Findings) -> None:
    """Threads that wait because another one maps the page that they touch."""
    cells: dict[tuple[str, str], Interval] = {}
    waiters: dict[str, list[float]] = {}
    for threads, system in product(reversed(THREADS[1:]), ("kernel", "engine")):
        pairs = [
            [measured[FAULTS, system, _page_label(pattern, threads, gap)] for pattern in (SAME, OWN)] for gap in GAPS
        ]
        known = [_raced(same) - _raced(own) for same, own in pairs]
        cells[f"{threads} threads", system] = _interval(known)
        waiters.setdefault(system, []).extend(known)
    title = "Threads that wait for a page which another one maps, of those that touch it at the same time"
    findings.series.append(Series.within("§4.9", title, "threads", cells))
    kernel, engine = waiters["kernel"], waiters["engine"]
    fewer = _interval([slow - fast for slow, fast in zip(kernel, engine, strict=True)])
    text = "of threads that touch the same page at the same time, fewer wait with the engine than under the kernel"
    detail = f"{_interval(kernel)} under the kernel, {_interval(engine)} with the engine"
    findings.claims.append(Claim("§4.9", text, fewer.above(0), detail, _OF_PAGE))


def _raced(measurement: Measurement) -> float:
    """Threads that found their page mapped by another one after a wait, per process."""
    stats = measurement.stats
    processes = stats["fault.cached.count"]
    return (stats["fault.raced.count"] + stats.get(f"{_ENGINE}.raced", 0)) / processes


def _interval(values: list[float]) -> Interval:
    return Interval.from_values(values, values[0])


REPRODUCTION = Reproduction(
    name="mfoe-contention",
    title="The minor-fault offload engine: threads that fault at the same time",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="gem5-timing",
    runs=contended_runs,
    evaluate=evaluate,
    cost=cost,
)
