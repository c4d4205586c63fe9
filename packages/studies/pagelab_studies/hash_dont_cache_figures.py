"""The figures and the table of "Hash, Don't Cache (the Page Table)": what designs save, and in which order."""

import itertools
from collections.abc import Callable, Collection, Sequence

from pagelab_studies.hash_dont_cache_runs import (
    CACTUS,
    CLUSTERS,
    DESIGNS,
    GRAPHS,
    GUPS,
    MCF,
    MILC,
    MORE_SEEDS,
    SUITE,
    XALAN,
    drawn,
    hash_functions,
)
from pagelab_studies.hash_dont_cache_samples import (
    CORE,
    HASHED,
    KINDS,
    LOOK_UP,
    OF_CACTUS,
    OF_MILC,
    PERFECT,
    RADIX,
    WALKS,
    Stats,
    of_designs,
    over,
    rests_on,
    share_of_saving,
    system_of,
    walk_cycles_saved,
    walk_cycles_saved_beyond,
)
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import (
    Claim,
    Comparison,
    Findings,
    Measurement,
    Measurements,
    Series,
    per_walk,
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
_PREDICTED = (
    "the paper's is a prediction for the whole run of a real program, by A × walk cycles + B, of which it prints "
    "neither A nor B"
)
"""Why its percentages are not compared."""
_OF_GRAPHS = "the window has the first levels of a search, the paper's figure the whole search"
_OF_ANALOGUES = "the paper's is of the program, ours of an analogue, which shows the order of designs alone"
_NAMES = tuple(workload.name for workload in SUITE)
# Slots of the open table in a line.
_OPEN_SLOTS = 4


def figure_6(measured: Measurements, findings: Findings) -> None:
    figures = {
        "cycles of a walk": _of_hashed(lambda _: per_walk("walk.cycles")),
        "references of a walk, in lines": _of_hashed(lambda _: per_walk("walk.refs")),
        "references of a walk, in slots": _of_hashed(_slots),
        "DRAM references of a walk": _of_hashed(lambda _: per_walk("walk.refs.dram")),
    }
    units = ("cycles", "lines", "slots", "references to DRAM")
    for (title, by_design), unit in zip(figures.items(), units, strict=True):
        cells = {(MILC.name, name): _of_milc(measured, by_design, name) for name in by_design}
        findings.series.append(Series.within("Fig 6", title, unit, cells))
        steps = [_fall(measured, by_design, *pair) for pair in itertools.pairwise(DESIGNS)]
        detail = ", ".join(f"{name} {value.value:.3g}" for (_, name), value in cells.items())
        text = f"each optimisation lowers the {title}"
        findings.claims.append(Claim("Fig 6", text, all_hold(steps), detail, OF_MILC, "order"))
    _, lines, slots, dram = figures.values()
    for text, by_design, before, after in (
        (
            "open addressing at half the load: fewer references of a walk than chains, in lines",
            lines,
            "chained",
            "open",
        ),
        (
            "open addressing at half the load: fewer references of a walk than chains, in slots",
            slots,
            "chained",
            "open",
        ),
        ("clustering: fewer DRAM references than the basic design", dram, "chained", "clustered"),
        ("compaction: fewer DRAM references than clustering", dram, "clustered", "compact"),
        ("compaction: fewer references of a walk than clustering", lines, "clustered", "compact"),
    ):
        detail = " and ".join(f"{name} {_of_milc(measured, by_design, name).value:.3g}" for name in (before, after))
        findings.claims.append(Claim("§4.3", text, _fall(measured, by_design, before, after), detail, OF_MILC, "order"))
    _barr(measured, findings)


def _of_hashed(figure_for: Callable[[str], Callable[[Stats], float]]) -> dict[str, Callable[[Stats], float]]:
    return {name: figure_for(name) for name in DESIGNS}


def _slots(design: str) -> Callable[[Stats], float]:
    """Slots that a walk probes; walks are counted in lines.

    Slots of the other designs lie in a line each: two of a chain are never neighbours but by chance. Of the open table
    four do, and the first probe is in any of them, so a quarter of the further probes reach another line.
    """
    lines = per_walk("walk.refs")
    return (lambda stats: 1 + _OPEN_SLOTS * (lines(stats) - 1)) if design == "open" else lines


def _of_milc(measured: Measurements, by_design: dict[str, Callable[[Stats], float]], design: str) -> Interval:
    return of_designs(by_design[design], measured, MILC.name, "bare", (design, ""))


def _fall(
    measured: Measurements, by_design: dict[str, Callable[[Stats], float]], before: str, after: str
) -> bool | None:
    """Whether a figure falls from one design to the next."""
    designs = ((before, ""), (after, ""))
    falls = of_designs(
        lambda one, other: by_design[before](one) - by_design[after](other), measured, MILC.name, "bare", *designs
    )
    return falls.above(0)


def _barr(measured: Measurements, findings: Findings) -> None:
    dram = per_walk("walk.refs.dram")
    chained = ("chained", "")
    radix, hashed = (of_designs(dram, measured, MILC.name, "bare", design) for design in (RADIX, chained))
    more = of_designs(lambda before, after: dram(after) - dram(before), measured, MILC.name, "bare", RADIX, chained)
    text = "Barr et al.: chained hashing makes more DRAM references than radix tables with MMU caches (up to 5 times)"
    detail = f"{hashed.value:.3g} against {radix.value:.3g} per walk"
    findings.claims.append(Claim("§4", text, more.above(0), detail, OF_MILC))
    if radix.value:
        quantity = "DRAM references of a walk, chained against radix"
        why = "the paper quotes Barr et al.'s largest over programs of SPEC; this is one analogue"
        ratio = hashed.value / radix.value
        findings.comparisons.append(Comparison("§4", MILC.name, quantity, "times", 5.0, ratio, unjudged=why))


def figure_9(measured: Measurements, findings: Findings) -> None:
    cycles = per_walk("walk.cycles")
    windows = {cluster: _of_cluster(measured, cluster) for cluster in CLUSTERS}
    cells = {
        (MILC.name, f"{cluster} pages"): over(cycles, [(one,) for one in members])
        for cluster, members in windows.items()
    }
    findings.series.append(Series.within("Fig 9", "cycles of a 2D walk by guest cluster", "cycles", cells))
    steps = [
        over(lambda before, after: cycles(before) - cycles(after), list(zip(*pair, strict=True)))
        for pair in itertools.pairwise(windows.values())
    ]
    falls = all_hold(fall.above(0) for fall in steps)
    detail = ", ".join(f"{member} {value}" for (_, member), value in cells.items())
    text = "larger guest clusters lower the cycles of a 2D walk"
    findings.claims.append(Claim("Fig 9", text, falls, detail, OF_MILC, "order"))


def _of_cluster(measured: Measurements, cluster: int) -> list[Measurement]:
    """A window for each hash function."""
    label = f"cluster {cluster}"
    functions = range(hash_functions(MILC.name, "nested hashed", label))
    return [measured[MILC.name, "nested hashed", drawn(number, label)] for number in functions]


def cycles_of_walks(measured: Measurements, findings: Findings) -> None:
    """The headline: what the walks of the same accesses take, whatever a core makes of it."""
    cells = savings(measured, figure=walk_cycles_saved)
    findings.series.append(Series.within("Walk cycles", "cycles of walks saved", "% of radix with MMU caches", cells))
    for kind in KINDS:
        for design, section in (("perfect", "§5.2"), ("hashed", "§5.3")):
            saved_here = [cells[name, f"{kind} {design}"] for name in _NAMES]
            least = min(saved_here, key=lambda one: one.low)
            text = f"{design} ({kind}): fewer cycles of walks than radix tables with MMU caches, for every workload"
            fewer = all_hold(one.above(0) for one in saved_here)
            findings.claims.append(Claim(section, text, fewer, f"{least} % at least", rests_on(WALKS, *_NAMES)))


def savings(
    measured: Measurements,
    names: Sequence[str] = _NAMES,
    figure: Callable[..., float] = saved,
    most: int = MORE_SEEDS,
    left_out: Collection[tuple[str, str]] = (),
) -> dict[tuple[str, str], Interval]:
    """What each design saves, by workload and column of Table 4, over at most so many hash functions.

    `left_out` are workloads and systems that were not run.
    """
    return {
        (name, f"{kind} {design[0]}"): of_designs(figure, measured, name, kind, RADIX, design, most=most)
        for name in names
        for kind in KINDS
        for design in (PERFECT, HASHED)
        if (name, system_of(kind, design)) not in left_out
    }


def run_times(measured: Measurements, findings: Findings) -> None:
    gains = savings(measured)
    add_gains(findings, gains, _NAMES, CORE)
    _locality(gains, findings)
    add_table_4(findings, gains)


def add_gains(findings: Findings, gains: dict[tuple[str, str], Interval], workloads: Sequence[str], core: str) -> None:
    """Figs 10 and 11: the series, and what the paper says of them. `core` is what verdicts on time rest on."""
    for number, design, title in (
        ("Fig 10", "perfect", "run time saved by perfect MMU caches"),
        ("Fig 11", "hashed", "run time saved by hashed tables"),
    ):
        members = [f"{kind} {design}" for kind in KINDS]
        cells = {key: value for key, value in gains.items() if key[1] in members}
        findings.series.append(Series.within(number, title, "% of radix with MMU caches", cells))
        both = [name for name in workloads if all((name, member) in gains for member in members)]
        more = [gains[name, members[1]].minus(gains[name, members[0]]) for name in both]
        least = min(more, key=lambda one: one.low)
        text = f"{title}: more in a virtual machine than on bare metal"
        detail = f"the difference is {least} points at least"
        holds = all_hold(one.above(0) for one in more)
        # The paper's statement is judged without the analogue of cactusADM (`hash_dont_cache_tables`).
        findings.claims.append(Claim(number, text, holds, detail, rests_on(core, *both), "order", ours=True))
        for suite, label in ((GUPS, "GUPS"), (GRAPHS, "Graph500")):
            names = [workload.name for workload in suite]
            for kind, member in zip(KINDS, members, strict=True):
                if not all((name, member) in gains for name in names):
                    continue
                row = [gains[name, member] for name in names]
                text = f"{title}: more with more memory ({label}, {kind})"
                rises = all_hold(larger.minus(smaller).above(0) for smaller, larger in itertools.pairwise(row))
                detail = ", ".join(f"{one} %" for one in row)
                findings.claims.append(Claim(number, text, rises, detail, rests_on(core, *names), "order"))


def add_table_4(findings: Findings, gains: dict[tuple[str, str], Interval]) -> None:
    """Table 4, row by row, without verdicts."""
    columns = [f"{kind} {design}" for kind in KINDS for design in ("perfect", "hashed")]
    for name, printed in TABLE_4.items():
        for column, paper in zip(columns, printed, strict=True):
            if (name, column) not in gains:
                continue
            gain = gains[name, column]
            findings.comparisons.append(
                Comparison(
                    "Table 4",
                    name,
                    f"change of run time, {column}",
                    "%",
                    float(paper),
                    -gain.value,
                    interval=Interval(-gain.high, -gain.value, -gain.low),
                    unjudged=_PREDICTED,
                )
            )


def _locality(gains: dict[tuple[str, str], Interval], findings: Findings) -> None:
    """GUPS beside searches of similar or smaller size."""
    pairs = list(itertools.product(GUPS[1:2], GRAPHS[:2])) + list(itertools.product(GUPS[2:], GRAPHS))
    for kind in KINDS:
        more = [
            gains[random.name, f"{kind} perfect"].minus(gains[graph.name, f"{kind} perfect"]) for random, graph in pairs
        ]
        least = min(more, key=lambda one: one.low)
        text = (
            "perfect MMU caches save more run time where locality is lower: GUPS compared with Graph500 of similar "
            f"or smaller size ({kind})"
        )
        detail = f"{least} points more at least"
        rests = rests_on(CORE, *(graph.name for graph in GRAPHS))
        findings.claims.append(Claim("§5.2", text, all_hold(one.above(0) for one in more), detail, rests, "order"))


def perfect_or_hashed(measured: Measurements, findings: Findings) -> None:
    """Which of them saves more, by the sign of the difference in cycles of walks: run time follows them."""
    cells = {
        (name, kind): of_designs(walk_cycles_saved_beyond, measured, name, kind, RADIX, HASHED, PERFECT)
        for name in _NAMES
        for kind in KINDS
    }
    title = "cycles of walks that perfect MMU caches save beyond hashed tables"
    findings.series.append(Series.within("§5.3", title, "points", cells))
    analogues = (MCF.name, CACTUS.name, XALAN.name)
    for (name, kind), more in cells.items():
        rests = OF_CACTUS if name == CACTUS.name else rests_on(LOOK_UP, name)
        if name in analogues:
            text = f"{name}, {kind}: hashed tables save more than perfect MMU caches"
            more = Interval(0, 0, 0).minus(more)
        else:
            text = f"{name}, {kind}: perfect MMU caches save more than hashed tables"
        detail = f"{more} % more of the walk cycles"
        perfect, hashed = TABLE_4[name][:2] if kind == "bare" else TABLE_4[name][2:]
        # Where the table rounds both to the same figure, it is the text that says so.
        figure = "§5.3" if perfect == hashed else "Table 4"
        findings.claims.append(Claim(figure, text, more.above(0), detail, rests, "order"))
    _shares(measured, findings)


def _shares(measured: Measurements, findings: Findings) -> None:
    """What hashed tables save by what perfect MMU caches do: of this the paper's A and B cancel.

    Only GUPS is the paper's own program in a window that stands for the whole run, so only its sizes are judged.
    """
    cells = {}
    whys = {**dict.fromkeys(_NAMES, _OF_ANALOGUES), **dict.fromkeys((one.name for one in GRAPHS), _OF_GRAPHS)}
    whys |= dict.fromkeys((one.name for one in GUPS), "")
    for name, printed in TABLE_4.items():
        for kind, pair in zip(KINDS, (printed[:2], printed[2:]), strict=True):
            share = of_designs(share_of_saving, measured, name, kind, RADIX, PERFECT, HASHED)
            cells[name, kind] = share
            perfect, hashed = (abs(saving) for saving in pair)
            low, high = rounded_share(perfect, hashed)
            findings.comparisons.append(
                Comparison(
                    "Table 4",
                    name,
                    f"saved by hashed tables ÷ saved by perfect MMU caches, {kind}",
                    "",
                    round(hashed / perfect, 3),
                    share.value,
                    "" if whys[name] else _allowed(share, low, high),
                    interval=share,
                    neutral=1.0,
                    printed=(low, high),
                    unjudged=whys[name],
                )
            )
    title = "cycles of walks saved by hashed tables ÷ saved by perfect MMU caches"
    findings.series.append(Series.within("Table 4", title, "share", cells))


def rounded_share(perfect: int, hashed: int) -> tuple[float, float]:
    """The least and the most that the share of two savings can be that are printed in whole per cent."""
    return (hashed - 0.5) / (perfect + 0.5), (hashed + 0.5) / (perfect - 0.5)


def _allowed(share: Interval, low: float, high: float) -> str:
    where = "within" if share.within(low, high) else "across a limit of"
    if share.low > high:
        where = "above"
    elif share.high < low:
        where = "below"
    return f"{where} {low:.3g} to {high:.3g}, which the paper's whole per cent allow"
