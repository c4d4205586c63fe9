"""What decides figures of `ptemagnet`, by one change at a time.

There each program has a CPU, whose list of free frames is refilled in batches of adjacent ones, and all programs touch
their pages in order before they begin. Here co-runners share its CPU, and programs touch pages when they need them, in
unused and aged memory. And windows with first touches included, which are in unused memory there, are in aged memory.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_measures import band, gain, lines, spread
from pagelab_studies.ptemagnet_runs import (
    AGED,
    AGED_ALONE,
    ALONE,
    AS_SET,
    EQUAL_COST,
    FRESH,
    JUDGED,
    ORDER_0,
    PAGERANK,
    SEEDS,
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
AGED_WHOLE = "first touches included, guest memory aged"
OF_AGED_WHOLE = SEEDS[:1]
"""Their seeds: one is enough for an experiment, by which no statement is judged."""
SAVED = f"time saved, {AGED_WHOLE}"
_RESTS_ON = "five seeds; the model of the page allocator, of ageing and of time slices"


def changed_runs() -> list[Run]:
    """The runs."""
    return list(_runs())


def _runs() -> Iterator[Run]:
    names = [workload.name for workload in JUDGED]
    for run in runs():
        is_whole = run.label == WHOLE and run.system in (ORDER_0, AS_SET, EQUAL_COST)
        if is_whole and run.workload in names and run.seed in OF_AGED_WHOLE:
            yield replace(run, settings=(*run.settings, aged(run.seed)), label=AGED_WHOLE)
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
    return by_sections(measured, (_lines, _aged_whole))


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
