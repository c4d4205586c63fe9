"""What decides figures of `ptemagnet`, by one change at a time.

There each program has a CPU, whose list of free frames is refilled in batches of adjacent ones, and all programs touch
their pages in order before they begin. Here co-runners share its CPU, and programs touch pages when they need them, in
unused and aged memory. And windows with first touches included, which are in unused memory there, are in aged memory.
`zipf`, which becomes slower there in aged memory, runs with a host whose walks skip all upper levels, and alone. Random
words in arrays of several sizes, which aged memory scatters over more lines the smaller they are, run in unused memory.
The judged programs run in aged memory beside co-runners and alone (`ptemagnet_colocated`).
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_beside import by_size
from pagelab_studies.ptemagnet_colocated import colocated_runs, gains, ratios
from pagelab_studies.ptemagnet_measures import BEYOND_L2, band, gain, gain_by_part, lines, spread
from pagelab_studies.ptemagnet_measures import MEMORY as DRAM
from pagelab_studies.ptemagnet_runs import (
    AGED,
    AGED_ALONE,
    ALONE,
    APART,
    AS_SET,
    EQUAL_COST,
    FEW_SEEDS,
    FRESH,
    JUDGED,
    ORDER_0,
    PAGERANK,
    SEEDS,
    SWEEP,
    WHOLE,
    aged,
    cost,
    runs,
)
from pagelab_studies.study import Claim, Findings, Measurements, Reproduction, Run, Series, by_sections

OWN, SHARED = "co-runners on CPUs of their own", "co-runners on its CPU"
BEFORE, AS_NEEDED = "touched in order before", "touched when first needed"
WITHOUT = "alone"
_TOUCHED = {BEFORE: (",init=pages", PAGERANK.settled), AS_NEEDED: ("", 60_000_000)}
"""What the source says, and accesses by which all pages have been touched."""
ACCESSES = 1 << 18
"""Of a window: frames are counted at its end."""
_MEMORY = {"unused memory": (FRESH, ALONE), "aged memory": (AGED, AGED_ALONE)}
"""Labels of the main study's runs beside co-runners, and without."""
ZIPF = next(workload for workload in APART if workload.name == "zipf")
BESIDE, PERFECT = "beside co-runners", "beside co-runners, perfect MMU cache of the host"
OF_ZIPF = (BESIDE, PERFECT, WITHOUT)
"""How `zipf` runs in aged memory; the first is how it does in the main study."""
READ = {
    **{f"{table}, level 1, beyond L2": (table, 1, BEYOND_L2) for table in ("guest", "host")},
    **{f"{table}, level 1, served by memory": (table, 1, DRAM) for table in ("guest", "host")},
    "host, level 2": ("host", 2, ("l1", "l2", *BEYOND_L2)),
}
"""References of its walks: the table, its level, and what served them."""
EVEN = "unused memory"
"""It scatters programs of all sizes over about as many lines."""
AGED_WHOLE = "first touches included, guest memory aged"
SAVED = f"time saved, {AGED_WHOLE}"
_RESTS_ON = "five seeds; the model of the page allocator, of ageing and of time slices"


def changed_runs() -> list[Run]:
    """The runs."""
    return [*_slower(), *_sizes(), *_whole(), *_scattered(), *colocated_runs()]


def _slower() -> Iterator[Run]:
    """`zipf` in aged memory: as in the main study, with a perfect MMU cache of the host, and alone."""
    for run in runs():
        if run.workload == ZIPF.name and run.label == AGED and run.system in (ORDER_0, EQUAL_COST):
            yield replace(run, label=BESIDE)
            yield replace(run, label=PERFECT, settings=(*run.settings, "system.layers.host.mmu_cache=perfect"))
            yield replace(run, label=WITHOUT, beside=())


def _sizes() -> Iterator[Run]:
    """The main study's sizes, in memory that scatters all of them alike."""
    names = [workload.name for workload in SWEEP.values()]
    for run in runs():
        if run.workload in names and run.system == ORDER_0 and run.seed in FEW_SEEDS:
            yield replace(run, label=EVEN, settings=tuple(one for one in run.settings if one != aged(run.seed)))


def _whole() -> Iterator[Run]:
    """The main study's windows with first touches included, in aged memory."""
    names = [workload.name for workload in JUDGED]
    for run in runs():
        if run.label == WHOLE and run.system in (ORDER_0, AS_SET, EQUAL_COST) and run.workload in names:
            yield replace(run, settings=(*run.settings, aged(run.seed)), label=AGED_WHOLE)


def _scattered() -> Iterator[Run]:
    """`pagerank` alone, beside co-runners on CPUs of their own, and beside them on its CPU."""
    for run in runs():
        if run.workload != PAGERANK.name or run.system != ORDER_0:
            continue
        memory = next((name for name, labels in _MEMORY.items() if run.label in labels), None)
        for touched, (init, settled) in _TOUCHED.items() if memory else ():
            about = f"{touched}, {memory}"
            same = replace(
                run,
                spec=run.spec.replace(",init=pages", init),
                accesses=ACCESSES,
                least_accesses=ACCESSES,
                warm_up=settled,
                contiguity_map=False,
            )
            if not run.beside:
                yield replace(same, label=f"{WITHOUT}, {about}")
                continue
            beside = tuple(one.replace(",init=pages", init) for one in run.beside)
            yield replace(same, label=f"{OWN}, {about}", beside=beside)
            shared = tuple(f"{one.rsplit('@', 1)[0]}@0" for one in beside)
            yield replace(same, label=f"{SHARED}, {about}", beside=shared)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_lines, _aged_whole, gains, ratios, _of_zipf, _by_size))


def _of_zipf(measured: Measurements, findings: Findings) -> None:
    """What makes `zipf` slower: in which part of its time, by which references of walks, and beside what."""
    saved: dict[tuple[str, str], Interval] = {}
    refs: dict[tuple[str, str], Interval] = {}
    faults: dict[tuple[str, str], Interval] = {}
    for label in OF_ZIPF:
        saved |= {(label, name): one for name, one in gain_by_part(measured, ZIPF, EQUAL_COST, label).items()}
        before, after = (measured.seeds(ZIPF.name, system, label) for system in (ORDER_0, EQUAL_COST))
        for system, by_seed in ((ORDER_0, before), (EQUAL_COST, after)):
            for name, (table, level, places) in READ.items():
                counts = [f"walk.layer.{table}.level{level}.refs.{place}" for place in places]
                each = (sum(map(one.main, counts)) / one.main("walk.count") for one in by_seed.values())
                refs[f"{system}, {label}", name] = spread(each)
            if label != WITHOUT:
                others = (one.stats["co_runner.fault.minor.count"] / one.window for one in by_seed.values())
                faults[label, system] = spread(others)
    state = "zipf, guest memory aged"
    findings.series += [
        Series.within("§5", f"time that {EQUAL_COST} saves, {state}", "% of order-0", saved),
        Series.within("§5", f"references per walk, {state}", "references", refs),
        Series.within("§5", f"page faults of co-runners, {state}", "faults per access of zipf", faults),
    ]


def _by_size(measured: Measurements, findings: Findings) -> None:
    """Misses by size, where all sizes are about equally scattered."""
    findings.series.extend(by_size(measured, EVEN, f"words at random, {EVEN}"))


def _aged_whole(measured: Measurements, findings: Findings) -> None:
    """Time saved by program, their mean, and the most, from reserved pages as cheap as set to equal cost."""
    gains = {
        workload.name: band(*(gain(measured, workload, system, AGED_WHOLE) for system in (AS_SET, EQUAL_COST)))
        for workload in JUDGED
    }
    most = max(gains.values(), key=lambda one: one.value)
    rows = {"mean": Interval.mean(gains.values()), "most": most, **gains}
    cells = {(name, "saved"): one for name, one in rows.items()}
    findings.series.append(Series.within("§5", SAVED, "% of order-0", cells))


def _lines(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    for touched in (f"{touched}, {memory}" for memory in _MEMORY for touched in _TOUCHED):
        alone = measured.seeds(PAGERANK.name, ORDER_0, f"{WITHOUT}, {touched}")
        cells[touched, WITHOUT] = spread(map(lines, alone.values()))
        for where in (OWN, SHARED):
            beside = measured.seeds(PAGERANK.name, ORDER_0, f"{where}, {touched}")
            cells[touched, where] = spread(map(lines, beside.values()))
            both = sorted(beside.keys() & alone.keys())
            more = spread(lines(beside[seed]) - lines(alone[seed]) for seed in both)
            text = f"co-runners scatter the host's PTEs of pagerank over more lines ({where}, pages {touched})"
            detail = (
                f"{cells[touched, where].value:.2f} lines for each of the guest's, alone "
                f"{cells[touched, WITHOUT].value:.2f}; {more.value:+.2f} ({more.low:+.2f} to {more.high:+.2f})"
            )
            holds = more.above(0) if len(both) >= len(SEEDS) else None
            # `ptemagnet` judges the placement without a change.
            if where != OWN or not touched.startswith(BEFORE):
                findings.claims.append(Claim("§5", text, holds, detail, _RESTS_ON))
    title = "host PTE lines for each PTE line of the guest, pagerank, by where co-runners run"
    findings.series.append(Series.within("Fig 5 (third party)", title, "lines (1 to 8)", cells))


REPRODUCTION = Reproduction(
    name="ptemagnet-changes",
    title="PTEMagnet: where co-runners run, and when pages are touched",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=changed_runs,
    evaluate=evaluate,
    cost=cost,
)
