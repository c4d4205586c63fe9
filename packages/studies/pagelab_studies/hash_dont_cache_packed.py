"""Radix tables with ten entries in a line (§4.3): what packing saves, and what the divisions for it cost.

The paper says that radix hardware can pack 10 entries in a line and 640 in a page, but then needs three divisions, one
after the other, to find its indices. It prints no cycles of a division. So the table is run with divisions that cost
nothing and with those of its preset. A division delays a walk and nothing else: every cycle more of one is three more
of each walk.
"""

from collections.abc import Iterator

from pagelab_studies.hash_dont_cache_runs import GUPS, MCF, MILC, XALAN, window_of
from pagelab_studies.hash_dont_cache_samples import Stats, rests_on
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Findings, Measurements, Run, Series, figure, per_walk

PROGRAMS = (MILC, MCF, XALAN, GUPS[0])
DIVISIONS, DIVISION_CYCLES = 3, 4
"""Of a walk, and cycles of one in the preset: a multiplication by the reciprocal and a shift."""
USUAL, PACKED, FREE = "radix", "radix-compact", "radix-compact, free divisions"
_ENTRIES = {USUAL: 512, PACKED: 640, FREE: 640}
_CYCLES, _REFERENCES = per_walk("walk.cycles"), per_walk("walk.refs")
_BEYOND_L1 = "references of a walk beyond the L1 data cache"
_RESTS_ON = "the window of one program; the latencies of the preset's caches; MMU caches of Table 3's sizes"
NOTES = (
    "§4.3: an entry of the MMU cache for level 2 reaches 2.5 MiB with 640 entries in a table, and 2 MiB with 512. "
    "Levels 3 and 4 reach further, too. So packing saves references of upper levels as well as lines of the lowest.",
)


def runs() -> Iterator[Run]:
    """Windows of each program."""
    for workload in PROGRAMS:
        yield window_of(workload, USUAL, USUAL)
        yield window_of(workload, PACKED, PACKED)
        free = "system.layers.native.page_table.division_cycles=0"
        yield window_of(workload, FREE, PACKED, more=(free,))


def _beyond_l1(stats: Stats) -> float:
    return (stats["walk.refs"] - stats["walk.refs.l1"]) / stats["walk.count"]


def _break_even(usual: Stats, free: Stats) -> float:
    """Cycles of a division at which packing saves nothing."""
    return (_CYCLES(usual) - _CYCLES(free)) / DIVISIONS


def ten_entries_per_line(measured: Measurements, findings: Findings) -> None:
    """§4.3: walks of usual and of packed radix tables."""
    cells: dict[tuple[str, str], Interval] = {}
    worth: dict[tuple[str, str], Interval] = {}
    for workload in PROGRAMS:
        windows = {system: measured[workload.name, system] for system in _ENTRIES}
        for system, window in windows.items():
            cells[f"{workload.name}, {system}", "cycles of a walk"] = figure(_CYCLES, window)
            cells[f"{workload.name}, {system}", "references of a walk"] = figure(_REFERENCES, window)
            cells[f"{workload.name}, {system}", _BEYOND_L1] = figure(_beyond_l1, window)
        usual, packed, free = windows.values()
        more = figure(lambda one, other: _CYCLES(other) - _CYCLES(one), usual, packed)
        even = worth[workload.name, "cycles"] = figure(_break_even, usual, free)
        text = (
            f"with divisions of {DIVISION_CYCLES} cycles, our estimate, ten entries in a line cost more cycles of a "
            "walk than they save"
        )
        detail = (
            f"{more.value:.3g} ({more.low:.3g} to {more.high:.3g}) cycles more with divisions of {DIVISION_CYCLES}; "
            f"as many with divisions of {even.value:.3g} ({even.low:.3g} to {even.high:.3g})"
        )
        rests = rests_on(f"{_RESTS_ON}; {DIVISION_CYCLES} cycles of a division, an estimate", workload.name)
        findings.claims.append(Claim("§4.3", f"{text} ({workload.name})", more.above(0), detail, rests, ours=True))
        fewer = figure(lambda one, other: _beyond_l1(one) - _beyond_l1(other), usual, free)
        text = f"with ten entries in a line, fewer references of a radix walk miss the L1 data cache ({workload.name})"
        detail = f"{fewer.value:.4f} ({fewer.low:.4f} to {fewer.high:.4f}) fewer per walk"
        findings.claims.append(
            Claim("§4.3", text, fewer.above(0), detail, rests_on(_RESTS_ON, workload.name), ours=True)
        )
    title = "walks of radix tables with 8 and with 10 entries in a line"
    findings.series.append(Series.within("§4.3", title, "cycles, references", cells))
    title = "cycles of one division at which ten entries in a line save nothing"
    findings.series.append(Series.within("§4.3", title, "cycles", worth))
