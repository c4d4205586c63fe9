"""The reasons that section 5 of "Hash, Don't Cache (the Page Table)" gives, each by runs that change one thing."""

import itertools

from pagelab_studies.hash_dont_cache_runs import (
    ASSOCIATIVE,
    BARE,
    BEYOND,
    BEYOND_SUITE,
    CACTUS,
    GRAPH_LOADS,
    GRAPHS,
    GUPS,
    HASH_SEEDS,
    LOADS,
    MCF,
    MODELLED,
    NESTED,
    SUITE,
    SWEPT,
    XALAN,
)
from pagelab_studies.hash_dont_cache_samples import (
    FREE,
    HASHED,
    KINDS,
    LARGE,
    LOOK_UP,
    OF_CACTUS,
    PERFECT,
    RADIX,
    USUAL_LOAD,
    Design,
    Stats,
    at_load,
    of_designs,
    rests_on,
    walk_cycles,
    walk_cycles_saved_beyond,
)
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import (
    Claim,
    Comparison,
    Findings,
    Measurements,
    Series,
    figure,
    per_walk,
    program_time,
    saved,
)

_REFERENCES = per_walk("walk.refs")
# Section 5.3, on the average of Graph500 and GUPS.
_PAPERS_REFERENCES = {"bare": 1.08, "virtual": 3.33}
_WITHOUT_COLLISIONS = {"bare": 1.0, "virtual": 3.0}
_OF_ALL = "the paper's is the average of Graph500 and GUPS, which stands above"
_OF_GRAPHS = "half of the mean is windows of a search's first levels, which take more references than GUPS"
# As exact as the paper prints references.
_PRINTED = 0.005


def look_ups(measured: Measurements, findings: Findings) -> None:
    """The paper's reason for mcf and xalancbmk: what a look-up of perfect MMU caches costs."""
    cells: dict[tuple[str, str], Interval] = {}
    for name, kind in (*itertools.product((MCF.name, XALAN.name), KINDS), (CACTUS.name, "bare")):
        group = f"{name}, {kind}"
        for perfect, member in ((PERFECT, "2 cycles"), (FREE, "free")):
            more_saved = of_designs(walk_cycles_saved_beyond, measured, name, kind, RADIX, perfect, HASHED)
            cells[group, member] = more_saved
        paid, free = cells[group, "2 cycles"], cells[group, "free"]
        detail = f"hashed tables save {paid} % more of the walk cycles; {free} if the look-up were free"
        if name == CACTUS.name:
            text = f"{group}: the MMU caches' look-up does not fully explain why hashed tables save more"
            findings.claims.append(Claim("§5.3", text, free.above(0), detail, OF_CACTUS, "order"))
            continue
        text = f"{group}: hashed tables save more because of the MMU caches' look-up; with a free look-up they do not"
        explains = all_hold((paid.above(0), Interval(0, 0, 0).minus(free).above(0)))
        findings.claims.append(Claim("§5.3", text, explains, detail, rests_on(LOOK_UP, name), "order"))
    title = "cycles of walks that hashed tables save beyond perfect MMU caches, by the cost of a look-up"
    findings.series.append(Series.within("§5.3", title, "points", cells))


def loads(measured: Measurements, findings: Findings) -> None:
    """What a lower load of the tables is worth."""
    by_load = sorted({**LOADS, USUAL_LOAD: 1 / 8}.items(), key=lambda item: item[1])
    gaps: dict[tuple[str, str], Interval] = {}
    references: dict[tuple[str, str], Interval] = {}
    for (load, _), kind in itertools.product(by_load, KINDS):
        designs = (RADIX, at_load(load), PERFECT)
        # Each load has as many hash functions.
        gaps[load, kind] = of_designs(walk_cycles_saved_beyond, measured, SWEPT.name, kind, *designs, most=HASH_SEEDS)
        references[load, kind] = of_designs(_REFERENCES, measured, SWEPT.name, kind, at_load(load), most=HASH_SEEDS)
    title = f"{SWEPT.name}: cycles of walks that perfect MMU caches save beyond hashed tables, by load"
    findings.series.append(Series.within("§5.3", title, "points", gaps))
    title = f"{SWEPT.name}: references of a walk, by load"
    findings.series.append(Series.within("§5.3", title, "references", references))
    halvings = (USUAL_LOAD, "1/16", "1/32")
    for kind in KINDS:
        lower = [
            of_designs(_saved_by_load, measured, SWEPT.name, kind, RADIX, at_load(one), at_load(half), most=HASH_SEEDS)
            for one, half in itertools.pairwise(halvings)
        ]
        text = f"{SWEPT.name}, {kind}: a lower load of the tables closes the gap to perfect MMU caches"
        detail = "perfect ones save " + ", ".join(f"{gaps[load, kind]} (load {load})" for load in halvings)
        falls = all_hold(one.above(0) for one in lower)
        findings.claims.append(Claim("§5.3", text, falls, f"{detail} % more of the walk cycles", LOOK_UP, "order"))


def _saved_by_load(radix: Stats, full: Stats, emptier: Stats) -> float:
    return walk_cycles_saved_beyond(radix, full, emptier)


def model(measured: Measurements, findings: Findings) -> None:
    """The paper's run time, A × walk cycles + B, by our own two points: 4 KiB and 2 MiB pages."""
    cells = {
        (workload.name, kind): of_designs(_worth, measured, workload.name, kind, RADIX, LARGE)
        for workload in MODELLED
        for kind in KINDS
    }
    title = "A of the linear model, a check: a core that waits for its walks makes it about 1"
    findings.series.append(Series.within("§5.1", title, "cycles of run time per cycle of walks", cells))


def _worth(small: Stats, large: Stats) -> float:
    """A: what run time grows by per cycle of walks, from 2 MiB to 4 KiB pages."""
    return (program_time(small) - program_time(large)) / (walk_cycles(small) - walk_cycles(large))


def _misses_of_walks(stats: Stats) -> float:
    """References of walks that miss the L1 data cache, in 100 accesses."""
    return 100 * (stats["walk.refs"] - stats["walk.refs.l1"]) / stats["accesses"]


def conflicts(measured: Measurements, findings: Findings) -> None:
    groups = ("4-way L1 TLB, 8-way L1 data cache", *ASSOCIATIVE)
    labels = dict(zip(groups, ("", *ASSOCIATIVE), strict=True))

    def under(group: str) -> list[Design]:
        return [(system, labels[group]) for system in BARE]

    misses: dict[tuple[str, str], Interval] = {}
    gains: dict[tuple[str, str], Interval] = {}
    for group in groups:
        for design in under(group):
            misses[group, design[0]] = of_designs(_misses_of_walks, measured, CACTUS.name, "bare", design)
        for design in under(group)[1:]:
            pair = (under(group)[0], design)
            gains[group, design[0]] = of_designs(saved, measured, CACTUS.name, "bare", *pair)
    title = "references of walks that miss the L1 data cache"
    findings.series.append(Series.within("§5.3", f"{CACTUS.name}: {title}", "in 100 accesses", misses))
    findings.series.append(Series.within("§5.3", f"{CACTUS.name}: run time saved", "% of radix", gains))
    usual, cache, tlb = groups
    text = "cactusADM: radix entries conflict in the L1 data cache, also with perfect MMU caches; hashed ones do less"
    radix, perfect, hashed = (misses[usual, system] for system in BARE)
    fewer = all_hold(one.minus(hashed).above(0) for one in (radix, perfect))
    detail = f"misses of walks in 100 accesses: radix {radix}, perfect {perfect}, hashed {hashed}"
    findings.claims.append(Claim("§5.3", text, fewer, detail, OF_CACTUS, "order"))
    text = (
        "cactusADM: with a fully associative L1 data cache at least 90 % of the L1 misses of radix walks disappear, a "
        "bound of ours"
    )
    left = of_designs(_left, measured, CACTUS.name, "bare", under(usual)[0], under(cache)[0])
    detail = f"{left} % of them remain with 64 ways"
    findings.claims.append(Claim("§5.3", text, left.within(-1, 10), detail, OF_CACTUS, "size", ours=True))
    text = (
        "cactusADM: with it, the saving of hashed tables beyond perfect MMU caches falls to less than half, a bound of "
        "ours"
    )
    beyond = [gains[group, "hashed"].minus(gains[group, "perfect"]) for group in (usual, cache)]
    twice = Interval(*(2 * value for value in (beyond[1].low, beyond[1].value, beyond[1].high)))
    detail = f"{beyond[0]} points of run time with 8 ways, {beyond[1]} with 64"
    findings.claims.append(Claim("§5.3", text, beyond[0].minus(twice).above(0), detail, OF_CACTUS, "size", ours=True))
    findings.notes.append(
        f"{CACTUS.name} with a fully associative L1 TLB, which the paper does not try: hashed tables save "
        f"{gains[tlb, 'hashed']} %, since the pages that conflict in 4 ways then fit, and few walks remain."
    )


def _left(before: Stats, after: Stats) -> float:
    return 100 * _misses_of_walks(after) / _misses_of_walks(before)


def references(measured: Measurements, findings: Findings) -> None:
    kernels = (*GRAPHS, *GUPS)
    cells = {
        (workload.name, kind): of_designs(_REFERENCES, measured, workload.name, kind, HASHED)
        for workload in SUITE
        for kind in KINDS
    }
    for kind, paper in _PAPERS_REFERENCES.items():
        of_one = {workload.name: cells[workload.name, kind] for workload in kernels}
        rows = {"Graph500 and GUPS, mean": mean_of(list(of_one.values())), **of_one}
        for item, references_per_walk in rows.items():
            quantity = f"references of a hashed walk, {kind}"
            reason = _why(item, kind, cells)
            findings.comparisons.append(
                Comparison(
                    "§5.3",
                    item,
                    quantity,
                    "",
                    paper,
                    references_per_walk.value,
                    reason,
                    references_per_walk,
                    neutral=_WITHOUT_COLLISIONS[kind],
                    printed=(paper - _PRINTED, paper + _PRINTED),
                    unjudged=_OF_ALL if item in of_one else _OF_GRAPHS,
                )
            )
    sizes = [cells[workload.name, "bare"].value for workload in GUPS]
    findings.comparisons.append(
        Comparison(
            "§5.3",
            "GUPS",
            "references of a hashed walk, bare, most beyond the least of the sizes",
            "",
            None,
            max(sizes) - min(sizes),
            without="the same",
            unjudged="follows from tables sized to the program, whose load is the same",
        )
    )
    for title, unit, statistic in (
        ("references of a walk", "references", "walk.refs"),
        ("cycles of a walk", "cycles", "walk.cycles"),
    ):
        systems = (*BARE, *NESTED)
        figures = {
            (workload.name, system_name): figure(per_walk(statistic), measured[workload.name, system_name])
            for workload in SUITE
            for system_name in systems
        }
        findings.series.append(Series.within("Walks", f"{title}, with one hash function", unit, figures))


def mean_of(figures: list[Interval]) -> Interval:
    """The mean of independent figures."""
    value = sum(one.value for one in figures) / len(figures)
    margin = sum((one.high - one.value) ** 2 for one in figures) ** 0.5 / len(figures)
    return Interval(value - margin, value, value + margin)


def _why(item: str, kind: str, cells: dict[tuple[str, str], Interval]) -> str:
    if kind == "virtual" and (item, "bare") in cells:
        return f"(1+r)²−1 = {(1 + cells[item, 'bare'].value) ** 2 - 1:.3g} for the r of bare metal"
    if item.startswith("Graph500 and"):
        return "the paper's is such a mean"
    reason = f"linear probing takes {all_pages(1 / 8):.3g} at a load of 1/8"
    if item.startswith("Graph500"):
        reason += f"; to pages inserted last, {last_pages(1 / 8):.3g}: see the loads of {GRAPHS[0].name}"
    return reason


def all_pages(load: float) -> float:
    """References of a successful search by linear probing, on the mean of all pages (Knuth, volume 3, section 6.4)."""
    return 0.5 * (1 + 1 / (1 - load))


def last_pages(load: float) -> float:
    """The same for the page that was inserted last: those of an unsuccessful search."""
    return 0.5 * (1 + 1 / (1 - load) ** 2)


def order_of_insertion(measured: Measurements, findings: Findings) -> None:
    """Why a search takes more references than GUPS at the same load: tested at two further loads of the table."""
    graph = GRAPHS[0].name
    cells: dict[tuple[str, str], Interval] = {}
    nearer = []
    for name in sorted((*GRAPH_LOADS, USUAL_LOAD), key=lambda name: {**GRAPH_LOADS, USUAL_LOAD: 1 / 8}[name]):
        window = measured[graph, *at_load(name)]
        load = load_of(window.stats)
        references_here = figure(_REFERENCES, window)
        mean, last = all_pages(load), last_pages(load)
        cells[f"load {name}", "measured"] = references_here
        cells[f"load {name}", "theory, mean of all pages"] = Interval(mean, mean, mean)
        cells[f"load {name}", "theory, pages inserted last"] = Interval(last, last, last)
        nearer.append(abs(references_here.value - last) < abs(references_here.value - mean))
    title = f"{graph}: references of a hashed walk, by load"
    findings.series.append(Series.within("§5.3", title, "references", cells))
    start = f"{graph} walks mostly for vertices' parents, which are touched last, so their slots are inserted last. "
    findings.notes.append(
        start
        + (
            "At every load its references are nearer to those of the slots inserted last than to the mean of all "
            "slots. That is why Graph500 takes more than GUPS at the same load. References were not counted by array."
            if all(nearer)
            else "Its references do not follow those of the slots inserted last, so it is open why it takes more than "
            "GUPS."
        )
    )


def load_of(stats: Stats) -> float:
    """Share of a table's slots in use."""
    return stats["layer.native.page_table.slots.used"] / stats["layer.native.page_table.slots"]


def beyond(measured: Measurements, findings: Findings) -> None:
    names = tuple(workload.name for workload in BEYOND_SUITE)
    if not all((name, system) in measured for name in names for system in BEYOND):
        return
    waited: dict[tuple[str, str], Interval] = {}
    gains: dict[tuple[str, str], Interval] = {}
    for name in names:
        for system, (_, base) in BEYOND.items():
            window = measured[name, system]
            waited[name, system] = figure(_waited_for, window)
            gains[name, system] = figure(saved, measured[name, base], window)
    title = "references of walks that the program waits for"
    findings.series.append(Series.within("Beyond the paper", title, "per access", waited))
    findings.series.append(Series.within("Beyond the paper", "run time saved", "% of radix", gains))


def _waited_for(stats: Stats) -> float:
    return stats.get("speculation.refs.critical", stats["walk.refs"]) / stats["accesses"]
