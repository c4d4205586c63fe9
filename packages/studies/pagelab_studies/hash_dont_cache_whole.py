"""Windows beside whole runs: §5.1 of "Hash, Don't Cache (the Page Table)" has samples within ±5 % of them.

The programs are small enough to end. A window is what it is in the other studies: a piece after all pages have been
touched and caches have settled. The whole run counts from the last of these touches to the program's end. One thing is
changed: how much of the program is counted.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.hash_dont_cache_runs import BARE, MCF, MIB, NESTED, PAGE, Workload, search, window_of
from pagelab_studies.hash_dont_cache_samples import rests_on
from pagelab_studies.hash_dont_cache_tables import SAMPLED
from pagelab_studies.interval import Interval
from pagelab_studies.study import (
    Claim,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Run,
    Series,
    figure,
    per_walk,
    saved,
)

WINDOW, WHOLE = "window", "whole run"
SYSTEMS = {system: (BARE | NESTED)[system] for system in ("radix", "hashed", "nested radix", "nested hashed")}
_GUPS_MIB = 128
_UPDATES = 4 * _GUPS_MIB * MIB // 8
GUPS = Workload(
    f"GUPS {_GUPS_MIB}MB",
    f"gups:size={_GUPS_MIB}MiB,accesses={{accesses}},init=pages",
    _GUPS_MIB * MIB,
    3_000_000,
    _GUPS_MIB * MIB // PAGE,
    "four updates per word, as in HPCC",
)
GRAPH = search("Graph500 of 2^20 vertices", 20)
GRAPH_ACCESSES = 70_021_593
"""Of a whole search, counted in a run of it: without the stores that bring its memory in."""
ENDING = {
    GUPS.name: (GUPS, f"gups:size={_GUPS_MIB}MiB,updates={_UPDATES},init=pages", 2 * _UPDATES),
    MCF.name: (MCF, "chase:size=1024MiB,node=64,passes=1,init=pages", 1024 * MIB // 64),
    GRAPH.name: (GRAPH, GRAPH.spec.replace(",accesses={total}", ""), GRAPH_ACCESSES),
}
"""Workloads, their specs with an end, and the accesses of a whole run after its pages have been touched."""
DESIGNS = {"bare": ("radix", "hashed"), "virtual": ("nested radix", "nested hashed")}
NOTES = (
    "A window begins when each page has been touched and caches have settled, and is as long as in `hash-dont-cache`. "
    "The whole run counts from the last of these touches to the end of the program.",
    "A window's interval is about itself: it comes from eight parts of the window. The difference from the whole run "
    "also contains how the program changes.",
)
_RESTS_ON = "where the window lies in the run: one piece, after the first touches; all cycles by the preset's latencies"
_CYCLES = per_walk("walk.cycles")


def runs() -> Iterator[Run]:
    """A window and a whole run of each workload on each system."""
    for workload, spec, accesses in ENDING.values():
        for system, preset in SYSTEMS.items():
            window = window_of(workload, system, preset, WINDOW)
            yield window
            yield replace(
                window,
                spec=spec,
                accesses=accesses,
                warm_up=workload.touches,
                label=WHOLE,
                least_accesses=accesses,
                settling_accesses=0,
            )


def cost(run: Run) -> Cost:
    """What an access takes: a little more than those of the larger workloads of `hash-dont-cache`."""
    nested = run.system.startswith("nested")
    return Cost(600 if nested else 300, 5500 if nested else 3000)


def windows_and_whole_runs(measured: Measurements, findings: Findings) -> None:
    """§5.1: how far a window is from the whole run."""
    cells: dict[tuple[str, str], Interval] = {}
    for name in ENDING:
        for system in SYSTEMS:
            window, whole = _pair(measured, name, system)
            cells[f"{name}, {system}", WINDOW] = figure(_CYCLES, window)
            cells[f"{name}, {system}", WHOLE] = _exactly(_CYCLES(whole.stats))
            findings.claims.append(_within(name, system, window, whole))
    title = "cycles of a walk: of a window, and of the whole run"
    findings.series.append(Series.within("§5.1", title, "cycles", cells))
    gains: dict[tuple[str, str], Interval] = {}
    for name in ENDING:
        for kind, (radix, hashed) in DESIGNS.items():
            windows, whole_runs = zip(_pair(measured, name, radix), _pair(measured, name, hashed), strict=True)
            gains[f"{name}, {kind}", WINDOW] = figure(saved, *windows)
            gains[f"{name}, {kind}", WHOLE] = _exactly(saved(*(one.stats for one in whole_runs)))
    title = "run time saved by hashed tables: of a window, and of the whole run"
    findings.series.append(Series.within("§5.1", title, "%", gains))


def _pair(measured: Measurements, name: str, system: str) -> tuple[Measurement, Measurement]:
    window, whole = (measured[name, system, label] for label in (WINDOW, WHOLE))
    return window, whole


def _exactly(value: float) -> Interval:
    """Of a whole run, which is not a sample."""
    return Interval(value, value, value)


def _within(name: str, system: str, window: Measurement, whole: Measurement) -> Claim:
    """Whether a window gives the cycles of a walk of the whole run as exactly as the paper says of its samples."""
    here, there = figure(_CYCLES, window), _CYCLES(whole.stats)
    off = Interval(*(100 * (cycles / there - 1) for cycles in (here.low, here.value, here.high)))
    text = f"a window gives the cycles of a walk of the whole run within ±{SAMPLED:g} % ({name}, {system})"
    detail = f"{here.value:.4g} and {there:.4g} cycles: {off} %"
    # The paper's samples are many short ones (`hash_dont_cache_spread`).
    within = off.within(-SAMPLED, SAMPLED)
    return Claim("§5.1", text, within, detail, rests_on(_RESTS_ON, name), "size", ours=True)
