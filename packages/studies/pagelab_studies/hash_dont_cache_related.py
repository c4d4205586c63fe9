"""What section 6 of "Hash, Don't Cache (the Page Table)" says of other designs, as statements.

MMU caches by Barr et al. and by Bhattacharjee (§6.1), linear and speculative tables of a host by Ahn et al. (§6.2), and
direct segments by Basu et al. and Gandhi et al. (§6.3), on windows of the main study's workloads. Where the paper says
"close" or "little", the bound is ours and stands in the statement, which is then a question of our own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pagelab_studies.hash_dont_cache_runs import GUPS, MCF, XALAN, cost, window_of
from pagelab_studies.hash_dont_cache_samples import CORE, COUNTED, rests_on, share_of_saving, walk_cycles
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import (
    Claim,
    Comparison,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
    mean,
    per_walk,
    program_time,
    saved,
)

PROGRAMS = (MCF, XALAN, GUPS[0])
LRU, VARIABLE = "unified, plain LRU", "unified, variable insertion point"
COALESCED = "coalesced, tables side by side"
GROUP = 64
"""Entries that one of the cache can stand for, and tables that the kernel places side by side: "dozens"."""
LINEAR, RADIX_HOST = "nested, linear host, no MMU cache", "nested radix, no MMU cache"
SPECULATIVE, SPECULATIVE_HASHED = "nested speculative, radix behind", "nested speculative, hashed behind"
SEGMENTS = {
    "nested VMM direct": "nested-vmm-direct-cold",
    "nested guest direct": "nested-guest-direct-cold",
    "nested dual direct": "nested-dual-direct-cold",
}
_NO_CACHE = tuple(f"system.layers.{layer}.mmu_cache=none" for layer in ("guest", "host"))
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "radix": ("radix", ()),
    "perfect": ("radix-perfect-mmu-cache", ()),
    LRU: ("radix-unified-translation-cache", ("machine.mmu_cache.unified.level2_insertion=0",)),
    VARIABLE: ("radix-unified-translation-cache", ()),
    COALESCED: (
        "radix-coalesced-mmu-cache",
        (f"machine.mmu_cache.coalesced.group_entries={GROUP}", f"system.layers.native.contiguous_tables={GROUP}"),
    ),
    "direct segment": ("direct-segment", ()),
    "nested radix": ("nested-radix-cold", ()),
    RADIX_HOST: ("nested-radix-cold", _NO_CACHE),
    LINEAR: ("nested-radix-linear-host-cold", _NO_CACHE),
    SPECULATIVE: ("nested-radix-speculative-cold", ()),
    SPECULATIVE_HASHED: (
        "nested-hashed-compact-cold",
        ('system.layers.host.speculative_table={"table_bytes":"64MiB","flush_cycles":20}',),
    ),
    **{name: (preset, ()) for name, preset in SEGMENTS.items()},
}
LONGER = 4
"""How many times as long as usual the windows of GUPS are, where the usual length leaves a statement open."""
_LONG = ("nested radix", SPECULATIVE, SPECULATIVE_HASHED)
CLOSE = 0.8
"""The part of what perfect MMU caches save that is close to it."""
LITTLE = 2.0
"""Per cent of run time that are little."""
NEAR = 10.0
"""Per cent by which a run in a virtual machine may take longer than on bare metal and still be near it."""
_REFERENCES = per_walk("walk.refs")


def related_runs() -> list[Run]:
    """The runs."""
    return list(_runs())


def _runs() -> Iterator[Run]:
    for workload in PROGRAMS:
        for system, (preset, settings) in SYSTEMS.items():
            run = window_of(workload, system, preset, "", settings)
            is_long = workload is GUPS[0] and system in _LONG
            yield replace(run, accesses=LONGER * run.accesses) if is_long else run


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_caches, _hosts, _speculation, _segments))
    findings.notes += [
        f"MMU caches have the sizes of the presets. Tables side by side come in blocks of {GROUP}; an entry of the "
        "coalesced cache stands for as many.",
        f"Windows are those of `hash-dont-cache`, with one hash function. Those of {GUPS[0].name} with and without "
        f"speculation are {LONGER} times as long.",
    ]
    return findings


def _parted(quantity: Callable[..., float], *windows: Measurement) -> Interval:
    """A figure with the 95 % interval of eight parts of its windows, also of parts without a walk."""
    value = quantity(*(one.stats for one in windows))
    around = mean([quantity(*parts) for parts in zip(*(one.parts for one in windows), strict=True)])
    return Interval(value - (around.value - around.low), value, value + (around.high - around.value))


def _caches(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    for workload in PROGRAMS:
        name = workload.name
        windows = {system: measured[name, system] for system in ("radix", "perfect", LRU, VARIABLE, COALESCED)}
        cells |= {(name, system): _parted(_REFERENCES, window) for system, window in windows.items()}
        fewer = _parted(lambda lru, other: _REFERENCES(lru) - _REFERENCES(other), windows[LRU], windows[VARIABLE])
        text = f"a unified cache takes fewer references with a variable insertion point than with plain LRU ({name})"
        detail = f"{cells[name, LRU].value:.3f} and {cells[name, VARIABLE].value:.3f} references of a walk"
        findings.claims.append(Claim("§6.1", text, fewer.above(0), detail, rests_on(COUNTED, name), "order"))
        gap = _parted(walk_cycles_beyond, windows["radix"], windows[VARIABLE], windows["perfect"])
        text = f"it is not able to close the gap to perfect MMU caches ({name})"
        detail = f"perfect ones save {gap} % more of the walk cycles of the paging-structure caches"
        findings.claims.append(Claim("§6.1", text, gap.above(0), detail, rests_on(CORE, name), "order"))
        share = _parted(share_of_saving, windows["radix"], windows["perfect"], windows[COALESCED])
        text = (
            f"coalescing alone comes close to perfect MMU caches: {CLOSE:.0%} of what they save of walk cycles, a "
            f"bound of ours ({name})"
        )
        detail = f"{100 * share.value:.0f} ({100 * share.low:.0f} to {100 * share.high:.0f}) %"
        # The paper says this of coalescing and a shared cache together (`hash_dont_cache_shared`).
        alone = Claim("§6.1", text, share.above(CLOSE), detail, rests_on(CORE, name), "size", ours=True)
        findings.claims.append(alone)
        of_it = cells[name, VARIABLE]
        findings.comparisons.append(
            Comparison(
                "§6.1",
                name,
                "references of a walk, unified translation cache",
                "",
                2.0,
                of_it.value,
                interval=of_it,
                unjudged="the paper says two on average, of other programs",
            )
        )
    findings.series.append(Series.within("§6.1", "references of a walk, by MMU cache", "references", cells))


def walk_cycles_beyond(before: Mapping[str, int], other: Mapping[str, int], after: Mapping[str, int]) -> float:
    """How much more is saved than by another design, in per cent of the cycles of walks before."""
    return 100 * (walk_cycles(other) - walk_cycles(after)) / walk_cycles(before)


def _hosts(measured: Measurements, findings: Findings) -> None:
    for workload in PROGRAMS:
        for system, paper in ((RADIX_HOST, 24.0), (LINEAR, 9.0)):
            ours = _parted(_REFERENCES, measured[workload.name, system])
            findings.comparisons.append(
                Comparison(
                    "§6.2",
                    workload.name,
                    f"references of a walk, {system}",
                    "",
                    paper,
                    ours.value,
                    interval=ours,
                    unjudged="follows from the levels of both tables, which no MMU cache skips",
                )
            )


def _waited_for(stats: Mapping[str, int]) -> float:
    return stats["speculation.refs.critical"] / stats["walk.count"]


def _speculation(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    for workload in PROGRAMS:
        name = workload.name
        nested, radix, hashed = (measured[name, one] for one in ("nested radix", SPECULATIVE, SPECULATIVE_HASHED))
        waited = _parted(_waited_for, radix)
        why = "the paper's is of a walk that the table serves; ours is of all walks"
        quantity = "references of a walk that the program waits for, speculative"
        findings.comparisons.append(
            Comparison("§6.2", name, quantity, "", 1.0, waited.value, interval=waited, unjudged=why)
        )
        gain = cells[name, SPECULATIVE] = _parted(saved, nested, radix)
        cells[name, SPECULATIVE_HASHED] = _parted(saved, nested, hashed)
        text = f"speculation on a shadow table saves run time of a virtual machine ({name})"
        findings.claims.append(Claim("§6.2", text, gain.above(0), f"{gain} %", rests_on(CORE, name)))
        apart = _parted(saved, radix, hashed)
        text = f"the tables behind it have little effect on run time: less than {LITTLE:g} %, a bound of ours ({name})"
        detail = f"hashed ones save {apart} % against radix tables"
        within = apart.within(-LITTLE, LITTLE)
        findings.claims.append(Claim("§6.2", text, within, detail, rests_on(CORE, name), "size", ours=True))
    findings.series.append(Series.within("§6.2", "run time saved by speculation", "% of nested radix", cells))


def _walks_removed(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    return 100 * (1 - after["walk.count"] / after["accesses"] / (before["walk.count"] / before["accesses"]))


def _longer(bare: Mapping[str, int], virtual: Mapping[str, int]) -> float:
    return 100 * (program_time(virtual) / program_time(bare) - 1)


def _translation(stats: Mapping[str, int]) -> float:
    return 100 * walk_cycles(stats) / program_time(stats)


def _segments(measured: Measurements, findings: Findings) -> None:
    for at in PROGRAMS:
        removed = _walks_removed(*(measured[at.name, system].stats for system in ("radix", "direct segment")))
        quantity = "TLB misses that a direct segment removes"
        why = "follows from the segment, which holds all of the program's memory"
        findings.comparisons.append(
            Comparison("§6.3", at.name, quantity, "%", None, removed, without="the majority", unjudged=why)
        )
    cells: dict[tuple[str, str], Interval] = {}
    for system in SEGMENTS:
        for at in PROGRAMS:
            cells[at.name, system] = _parted(_longer, measured[at.name, "radix"], measured[at.name, system])
        of_system = {at.name: cells[at.name, system] for at in PROGRAMS}
        detail = ", ".join(f"{name} {one} %" for name, one in of_system.items())
        if system != "nested dual direct":
            text = f"{system}: near bare metal, within {NEAR:g} % of its run time, a bound of ours"
            near = all_hold(one.within(-100, NEAR) for one in of_system.values())
            findings.claims.append(Claim("§6.3", text, near, f"{detail} longer", CORE, "size", ours=True))
            continue
        shares = {at.name: _parted(_translation, measured[at.name, system]) for at in PROGRAMS}
        detail = ", ".join(f"{name} {one} %" for name, one in shares.items())
        text = f"{system}: almost no translation overhead, below 1 % of run time, a bound of ours"
        almost = all_hold(one.within(-1, 1) for one in shares.values())
        findings.claims.append(Claim("§6.3", text, almost, detail, CORE, "size", ours=True))
    findings.series.append(Series.within("§6.3", "run time beyond that of radix tables on bare metal", "%", cells))


REPRODUCTION = Reproduction(
    name="hash-dont-cache-related",
    title="Hash, Don't Cache (the Page Table): the designs of section 6",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=related_runs,
    evaluate=evaluate,
    cost=cost,
)
