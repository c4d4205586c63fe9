"""Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016.

The paper simulates walks of a Sandy Bridge processor under radix tables with MMU caches and under hashed tables, turns
walk cycles into run time by a linear model whose coefficients it does not print, and compares runs of whole
benchmarks. Here the references and the cycles of the walks are measured on windows of the same kernels (GUPS,
Graph500) or of analogues that stand for a SPEC benchmark's access pattern. What a walk cycle is worth follows from an
in-order core, and from the paper's model with coefficients from our own two points.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

from pagelab.reproduce.hash_dont_cache_runs import (
    ASSOCIATIVE,
    BARE,
    BEYOND,
    BEYOND_SUITE,
    CACTUS,
    CLUSTERS,
    DESIGNS,
    FREE_LOOKUP,
    GRAPHS,
    GUPS,
    MCF,
    MILC,
    NESTED,
    PLACEMENTS,
    SUITE,
    XALAN,
    cost,
    runs,
)
from pagelab.reproduce.interval import Interval, all_hold
from pagelab.reproduce.study import (
    Claim,
    Comparison,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Series,
    by_sections,
    error_of_mean,
    figure,
    mean,
    per_walk,
    program_time,
    saved,
)

# Table 4: change of run time in per cent, bare metal and virtual, perfect MMU caches and hashed tables.
TABLE_4 = {
    "mcf*": (-4, -6, -14, -17),
    "cactusADM*": (-7, -27, -7, -32),
    "xalancbmk*": (-1, -2, -7, -9),
    "Graph500 4GB": (-1, -1, -6, -6),
    "Graph500 8GB": (-2, -1, -8, -7),
    "Graph500 16GB": (-2, -2, -10, -8),
    "GUPS 2GB": (-6, -5, -19, -17),
    "GUPS 8GB": (-11, -8, -30, -24),
    "GUPS 32GB": (-19, -15, -35, -29),
}
_KINDS = {"bare": ("radix", "", "2M"), "virtual": ("nested radix", "nested ", "nested 2M")}

_Stats = Mapping[str, int]

# What verdicts rest on.
_COUNTED = "counts and places of references alone"
_OF_MILC = "the window of one analogue; cycles by the latencies of the preset's caches"
_WALKS = "the latencies of the preset's caches, walks that nothing overlaps; SPEC programs are analogues"
_CORE = "an in-order core that waits for each access; SPEC programs are analogues"
_LOOK_UP = "an in-order core, and the 2 cycles that the paper charges perfect MMU caches per look-up"
_CACTUS = "an analogue with the strides that the paper names, not the program"


def evaluate(measured: Measurements) -> Findings:
    findings = by_sections(
        measured,
        (
            _figure_6,
            _figure_9,
            _walk_cycles,
            _run_times,
            _perfect_or_hashed,
            _linear_model,
            _conflicts,
            _placements,
            _references,
            _beyond,
        ),
    )
    findings.notes += [
        "A figure's interval is that of its mean with 95 % confidence, by eight parts of its window, compared one by "
        "one. Of what a whole run does outside the window it says nothing.",
        "Two run times are shown: that of an in-order core that waits for each access, and that of the paper's model, "
        "run time = A × walk cycles + B, with A and B from our runs with 4 KiB and 2 MiB pages. The paper does not "
        "print its coefficients, so its per cent are not comparable with ours; walk cycles, references and orders are.",
        "A reference is a line here. Four slots of the open table lie in one, so a second probe is mostly none; the "
        "paper's Fig 6(b) counts slots.",
        "Run time here is the program's instructions, data stalls and translation, without page faults.",
        "Hashed tables are sized to the footprint: 64 bytes per page, so that the load factors are the paper's.",
        *(f"{w.name}: {w.stands_for}." for w in (*SUITE, MILC)),
        "The windows are short beside whole runs. GUPS is the same everywhere; a search's window sees its first levels "
        "alone, which visit the vertices with the most neighbours.",
    ]
    return findings


def _falls(measured: Sequence[Measurement], of: Callable[[_Stats], float]) -> bool | None:
    """Whether a figure falls from each measurement to the next."""
    pairs = itertools.pairwise(measured)
    return all_hold(figure(lambda a, b: of(a) - of(b), before, after).above(0) for before, after in pairs)


def _gain(
    measured: Measurements, name: str, kind: str, design: str, label: str = ""
) -> tuple[Measurement, Measurement]:
    """The windows that a gain is of: radix tables, and the design."""
    base, prefix, _ = _KINDS[kind]
    return measured[name, base], measured[name, f"{prefix}{design}", label]


def _figure_6(measured: Measurements, findings: Findings) -> None:
    designs = [measured[MILC.name, name] for name in DESIGNS]
    for title, unit, statistic in (
        ("cycles of a walk", "cycles", "walk.cycles"),
        ("references of a walk", "references", "walk.refs"),
        ("memory references of a walk", "references to DRAM", "walk.refs.dram"),
    ):
        figures = {(MILC.name, of.run.system): figure(per_walk(statistic), of) for of in designs}
        findings.series.append(Series.within("Fig 6", title, unit, figures))
        detail = ", ".join(f"{name} {of.value:.3g}" for (_, name), of in figures.items())
        text = f"each optimisation lowers the {title}"
        findings.claims.append(Claim("Fig 6", text, _falls(designs, per_walk(statistic)), detail, _OF_MILC))
    dram = per_walk("walk.refs.dram")
    radix, chained = measured[MILC.name, "radix"], measured[MILC.name, "chained"]
    more = figure(lambda before, after: dram(after) - dram(before), radix, chained)
    text = "Barr et al.: chained hashing makes more DRAM references than radix tables with MMU caches (up to 5 times)"
    detail = f"{dram(chained.stats):.3g} against {dram(radix.stats):.3g} per walk, {more} more"
    findings.claims.append(Claim("§4", text, more.above(0), detail, _OF_MILC))
    if dram(radix.stats):
        findings.comparisons.append(
            Comparison(
                "§4",
                MILC.name,
                "DRAM references of a walk, chained against radix",
                "times",
                5.0,
                dram(chained.stats) / dram(radix.stats),
                "the paper quotes Barr et al.'s largest; this is one analogue",
            )
        )


def _figure_9(measured: Measurements, findings: Findings) -> None:
    sizes = [measured[MILC.name, "nested hashed", f"cluster {cluster}"] for cluster in CLUSTERS]
    cycles = per_walk("walk.cycles")
    figures = {
        (MILC.name, f"{cluster} pages"): figure(cycles, size) for cluster, size in zip(CLUSTERS, sizes, strict=True)
    }
    findings.series.append(Series.within("Fig 9", "cycles of a 2D walk by guest cluster", "cycles", figures))
    detail = ", ".join(f"{member} {of.value:.4g}" for (_, member), of in figures.items())
    text = "larger guest clusters lower the cycles of a 2D walk"
    findings.claims.append(Claim("Fig 9", text, _falls(sizes, cycles), detail, _OF_MILC))


def _walk_cycles(measured: Measurements, findings: Findings) -> None:
    """The headline: what the walks of the same accesses take, whatever a core makes of it."""
    figures: dict[tuple[str, str], Interval] = {}
    for workload in SUITE:
        for kind in _KINDS:
            for design in ("perfect", "hashed"):
                windows = _gain(measured, workload.name, kind, design)
                figures[workload.name, f"{kind} {design}"] = figure(_walk_cycles_saved, *windows)
    title = "cycles of walks saved"
    findings.series.append(Series.within("Walk cycles", title, "% of radix with MMU caches", figures))
    for kind in _KINDS:
        for design in ("perfect", "hashed"):
            of = [figures[workload.name, f"{kind} {design}"] for workload in SUITE]
            text = f"{design} ({kind}): fewer cycles of walks than radix tables with MMU caches, for every workload"
            least = min(of, key=lambda one: one.low)
            fewer = all_hold(one.above(0) for one in of)
            findings.claims.append(Claim("§5", text, fewer, f"{least} % at least", _WALKS))


def _walk_cycles_saved(before: _Stats, after: _Stats) -> float:
    old, new = (stats["walk.cycles"] / stats["accesses"] for stats in (before, after))
    return 100 * (1 - new / old)


def _run_times(measured: Measurements, findings: Findings) -> None:
    names = tuple(workload.name for workload in SUITE)
    gains = {
        (name, f"{kind} {design}"): figure(saved, *_gain(measured, name, kind, design))
        for name in names
        for kind in _KINDS
        for design in ("perfect", "hashed")
    }
    for number, design, title in (
        ("Fig 10", "perfect", "run time saved by perfect MMU caches"),
        ("Fig 11", "hashed", "run time saved by hashed tables"),
    ):
        members = (f"bare {design}", f"virtual {design}")
        cells = {key: value for key, value in gains.items() if key[1] in members}
        findings.series.append(Series.within(number, title, "% of radix with MMU caches", cells))
        more = [gains[name, members[1]].minus(gains[name, members[0]]) for name in names]
        least = min(more, key=lambda of: of.low)
        text = f"{title}: more in a virtual machine than on bare metal"
        detail = f"the difference is {least} points at least"
        findings.claims.append(Claim(number, text, all_hold(of.above(0) for of in more), detail, _CORE))
        for suite, label in ((GUPS, "GUPS"), (GRAPHS, "Graph500")):
            for member in members:
                row = [gains[workload.name, member] for workload in suite]
                text = f"{title}: more the larger the memory ({label}, {member.split()[0]})"
                rises = all_hold(larger.minus(smaller).above(0) for smaller, larger in itertools.pairwise(row))
                findings.claims.append(Claim(number, text, rises, ", ".join(f"{of} %" for of in row), _CORE))
    columns = ("bare perfect", "bare hashed", "virtual perfect", "virtual hashed")
    for name, printed in TABLE_4.items():
        for column, paper in zip(columns, printed, strict=True):
            reason = "other run-time model" + (", an analogue" if name.endswith("*") else ", a window")
            of = gains[name, column]
            findings.comparisons.append(
                Comparison(
                    "Table 4",
                    name,
                    f"change of run time, {column}",
                    "%",
                    float(paper),
                    -of.value,
                    reason,
                    interval=Interval(-of.high, -of.value, -of.low),
                )
            )


def _perfect_or_hashed(measured: Measurements, findings: Findings) -> None:
    """Which saves more, with the look-up of perfect MMU caches as the paper charges it, and free."""
    figures: dict[tuple[str, str], Interval] = {}
    for workload in (*GRAPHS, *GUPS):
        for kind in _KINDS:
            verdicts = []
            for label, name in (("", "2 cycles"), (FREE_LOOKUP, "free")):
                _, perfect = _gain(measured, workload.name, kind, "perfect", label)
                base, hashed = _gain(measured, workload.name, kind, "hashed")
                more = figure(_saved_more, base, perfect, hashed)
                figures[f"{workload.name}, {kind}", name] = more
                verdicts.append(more)
            # The paper's numbers are whole per cent: as much means within half a point.
            text = f"{workload.name}, {kind}: perfect MMU caches save as much run time as hashed tables or more"
            detail = f"{verdicts[0]} points more; {verdicts[1]} if their look-up were free"
            findings.claims.append(Claim("Table 4", text, verdicts[0].above(-0.5), detail, _LOOK_UP))
    title = "run time that perfect MMU caches save beyond hashed tables, by what a look-up costs"
    findings.series.append(Series.within("Table 4", title, "points", figures))
    for workload in (MCF, CACTUS, XALAN):
        base, perfect = _gain(measured, workload.name, "bare", "perfect")
        _, hashed = _gain(measured, workload.name, "bare", "hashed")
        more = figure(_saved_more, base, hashed, perfect)
        text = f"{workload.name}, bare: hashed tables save more run time than perfect MMU caches"
        findings.claims.append(Claim("Table 4", text, more.above(0), f"{more} points more", _CORE))


def _saved_more(base: _Stats, one: _Stats, other: _Stats) -> float:
    return saved(base, one) - saved(base, other)


def _linear_model(measured: Measurements, findings: Findings) -> None:
    """The paper's run time, A × walk cycles + B, by our own two points: 4 KiB and 2 MiB pages."""
    figures: dict[tuple[str, str], Interval] = {}
    worths: dict[tuple[str, str], Interval] = {}
    for workload in SUITE:
        for kind, (_, _, large) in _KINDS.items():
            points = measured[workload.name, large]
            for design in ("perfect", "hashed"):
                base, of = _gain(measured, workload.name, kind, design)
                figures[workload.name, f"{kind} {design}"] = _by_model(base, points, of)
            value = _worth(base.stats, points.stats)
            worths[workload.name, kind] = Interval(value, value, value)
    title = "run time saved by the linear model"
    findings.series.append(Series.within("§5.1", title, "% of radix with MMU caches", figures))
    title = "A of the linear model: what a walk cycle is worth"
    findings.series.append(Series.within("§5.1", title, "cycles of run time", worths))


def _by_model(base: Measurement, large: Measurement, of: Measurement) -> Interval:
    worth = _worth(base.stats, large.stats)

    def gain(before: _Stats, after: _Stats) -> float:
        old, new = (stats["walk.cycles"] / stats["accesses"] for stats in (before, after))
        return 100 * worth * (old - new) / program_time(before)

    return figure(gain, base, of)


def _worth(small: _Stats, large: _Stats) -> float:
    """A: what run time grows by per cycle of walks, from 2 MiB to 4 KiB pages."""
    walks = [stats["walk.cycles"] / stats["accesses"] for stats in (small, large)]
    return (program_time(small) - program_time(large)) / (walks[0] - walks[1])


def _misses_of_walks(stats: _Stats) -> float:
    """References of walks that miss the L1 data cache, in 100 accesses."""
    return 100 * (stats["walk.refs"] - stats["walk.refs.l1"]) / stats["accesses"]


def _conflicts(measured: Measurements, findings: Findings) -> None:
    groups = ("4-way L1 TLB, 8-way L1 data cache", *ASSOCIATIVE)
    labels = dict(zip(groups, ("", *ASSOCIATIVE), strict=True))
    of = {(group, system): measured[CACTUS.name, system, labels[group]] for group in groups for system in BARE}
    misses = {key: figure(_misses_of_walks, one) for key, one in of.items()}
    gains = {key: figure(saved, of[key[0], "radix"], one) for key, one in of.items() if key[1] != "radix"}
    title = "references of walks that miss the L1 data cache"
    findings.series.append(Series.within("§5.3", f"{CACTUS.name}: {title}", "in 100 accesses", misses))
    findings.series.append(Series.within("§5.3", f"{CACTUS.name}: run time saved", "% of radix", gains))
    usual, cache, tlb = groups
    text = "cactusADM: radix entries conflict in the L1 data cache, also with perfect MMU caches; hashed ones do less"
    radix, perfect, hashed = (misses[usual, system] for system in BARE)
    fewer = all_hold(one.minus(hashed).above(0) for one in (radix, perfect))
    detail = f"misses of walks in 100 accesses: radix {radix}, perfect {perfect}, hashed {hashed}"
    findings.claims.append(Claim("§5.3", text, fewer, detail, _CACTUS))
    text = "cactusADM: a fully associative L1 data cache removes almost all L1 misses of radix walks"
    left = figure(_left, of[usual, "radix"], of[cache, "radix"])
    detail = f"{left} % of them are left with 64 ways"
    findings.claims.append(Claim("§5.3", text, left.within(-1, 10), detail, _CACTUS))
    text = "cactusADM: what hashed tables save beyond perfect MMU caches comes from these conflicts"
    beyond = [
        figure(_saved_more, of[group, "radix"], of[group, "hashed"], of[group, "perfect"]) for group in (usual, cache)
    ]
    halves = beyond[0].minus(Interval(*(2 * value for value in (beyond[1].low, beyond[1].value, beyond[1].high))))
    detail = f"{beyond[0]} points with 8 ways, {beyond[1]} with 64"
    findings.claims.append(Claim("§5.3", text, halves.above(0), detail, _CACTUS))
    findings.notes.append(
        f"{CACTUS.name} with a fully associative L1 TLB, which the paper does not try: hashed tables save "
        f"{gains[tlb, 'hashed']} %, since the pages that conflict in 4 ways then fit, and nothing is walked for."
    )


def _left(before: _Stats, after: _Stats) -> float:
    return 100 * _misses_of_walks(after) / _misses_of_walks(before)


def _placements(measured: Measurements, findings: Findings) -> None:
    """Frames are given in the order of first touch, which depends on what walks read: a placement is one sample."""
    figures = {}
    for design in ("perfect", "hashed"):
        pairs = [_gain_of_placement(measured, design, number + 1) for number in range(PLACEMENTS)]
        figures[CACTUS.name, design] = mean([saved(before.stats, after.stats) for before, after in pairs])
        before, after = _gain(measured, CACTUS.name, "virtual", design)
        figures["fresh memory, one placement", design] = figure(saved, before, after)
    title = f"{CACTUS.name} in a virtual machine: run time saved, mean of {PLACEMENTS} placements of frames"
    findings.series.append(Series.within("§5.3", title, "% of nested radix", figures))
    perfect, hashed = figures[CACTUS.name, "perfect"], figures[CACTUS.name, "hashed"]
    text = f"{CACTUS.name}, virtual: hashed tables save more run time than perfect MMU caches"
    detail = f"{hashed} % and {perfect} %, over {PLACEMENTS} placements of frames"
    findings.claims.append(Claim("Table 4", text, hashed.minus(perfect).above(0), detail, _CACTUS))


def _gain_of_placement(measured: Measurements, design: str, number: int) -> tuple[Measurement, Measurement]:
    before, after = (measured[CACTUS.name, f"nested {of}", f"placement {number}"] for of in ("radix", design))
    return before, after


def _references(measured: Measurements, findings: Findings) -> None:
    names = [workload.name for workload in SUITE]
    bare, nested = (
        [measured[name, system].per_walk("walk.refs") for name in names] for system in ("hashed", "nested hashed")
    )
    mean_refs = sum(bare) / len(bare)
    error, nested_error = (
        error_of_mean([measured[name, system].per_walk_error("walk.refs") for name in names])
        for system in ("hashed", "nested hashed")
    )
    reason = (
        "linear probing at a load of 1/8 gives ½(1+1/(1−1/8)) = 1.07; the footprint fills the table to a little less"
    )
    findings.comparisons.append(
        Comparison("§5.3", "hashed, mean", "references of a walk, bare", "", 1.08, mean_refs, reason, error)
    )
    nested_mean = sum(nested) / len(nested)
    reason = f"(1+r)²−1 = {(1 + mean_refs) ** 2 - 1:.3g} for the r of bare metal"
    findings.comparisons.append(
        Comparison("§5.3", "hashed, mean", "references of a walk, 2D", "", 3.33, nested_mean, reason, nested_error)
    )
    for system, limit in (("perfect", 1.0), ("nested perfect", 3.0)):
        worst = max(measured[name, system].per_walk("walk.refs") for name in names)
        text = f"perfect MMU caches leave {limit:g} reference{'s' if limit > 1 else ''} of a walk ({system})"
        exactly = abs(worst - limit) < 1e-9
        findings.claims.append(Claim("§5.2", text, exactly, f"{worst:.6g} at most", _COUNTED))
    for title, unit, statistic in (
        ("references of a walk", "references", "walk.refs"),
        ("cycles of a walk", "cycles", "walk.cycles"),
    ):
        systems = (*BARE, *NESTED)
        figures = {(name, of): figure(per_walk(statistic), measured[name, of]) for name in names for of in systems}
        findings.series.append(Series.within("Walks", title, unit, figures))


def _beyond(measured: Measurements, findings: Findings) -> None:
    names = tuple(workload.name for workload in BEYOND_SUITE)
    if not all((name, system) in measured for name in names for system in BEYOND):
        return
    waited: dict[tuple[str, str], Interval] = {}
    gains: dict[tuple[str, str], Interval] = {}
    for name in names:
        for system, (_, base) in BEYOND.items():
            of = measured[name, system]
            waited[name, system] = figure(_waited_for, of)
            gains[name, system] = figure(saved, measured[name, base], of)
    title = "references of walks that the program waits for"
    findings.series.append(Series.within("Beyond the paper", title, "per access", waited))
    findings.series.append(Series.within("Beyond the paper", "run time saved", "% of radix", gains))


def _waited_for(stats: _Stats) -> float:
    return stats.get("speculation.refs.critical", stats["walk.refs"]) / stats["accesses"]


REPRODUCTION = Reproduction(
    name="hash-dont-cache",
    title="Hash, Don't Cache (the Page Table)",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
