"""Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016.

The paper simulates walks of a Sandy Bridge processor under radix tables with MMU caches and under hashed tables, turns
walk cycles into run time by a linear model whose coefficients it does not print, and compares runs of whole
benchmarks. Here the references and the cycles of the walks are measured on windows of the same kernels (GUPS,
Graph500) or of analogues that stand for a SPEC benchmark's access pattern; what a walk cycle is worth follows from an
in-order core.
"""

import itertools
from collections.abc import Iterator

from pagelab.reproduce.study import (
    Claim,
    Comparison,
    Findings,
    Measurements,
    Reproduction,
    Run,
    Series,
    error_of_mean,
)

GIB = 1 << 30
MIB = 1 << 20
PAGE = 4096


class _Workload:
    """A workload with what its window needs: the sizes of tables, and the stores that bring its memory in."""

    def __init__(self, name: str, spec: str, footprint: int, accesses: int, warm_up: int, stands_for: str) -> None:
        self.name, self.spec, self.footprint = name, spec, footprint
        self.accesses, self.warm_up, self.stands_for = accesses, warm_up, stands_for


def _gups(gib: int) -> _Workload:
    return _Workload(
        f"GUPS {gib}GB",
        f"gups:size={gib}GiB,accesses={{accesses}},init=pages",
        gib * GIB,
        4_000_000,
        gib * GIB // PAGE,
        "the paper's own kernel; a window of it after all pages have been touched",
    )


def _graph(gb: int, scale: int) -> _Workload:
    vertices = 1 << scale
    # Offsets, 34 neighbours of 8 bytes, a parent, and eight queues of which the search fills one's worth.
    neighbours = (vertices * 32 // 16 * 17 + 1024) * 8
    pages = (neighbours + vertices * 8) // PAGE
    warm_up = pages + vertices
    spec = f"bfs:graph=kronecker,vertices={vertices},degree=32,index=8,threads=8,init=pages,accesses={{total}}"
    return _Workload(
        f"Graph500 {gb}GB",
        spec,
        neighbours + 24 * vertices,
        6_000_000,
        warm_up,
        "breadth-first search by eight threads over a Kronecker graph, its neighbours drawn where they are looked at",
    )


GUPS = (_gups(2), _gups(8), _gups(32))
GRAPHS = (_graph(4, 24), _graph(8, 25), _graph(16, 26))
MCF = _Workload(
    "mcf*",
    "chase:size=1GiB,node=64,accesses={accesses},init=pages",
    GIB,
    3_000_000,
    GIB // PAGE,
    "analogue: a pointer chain of 64-byte nodes in random order over 1 GiB",
)
CACTUS = _Workload(
    "cactusADM*",
    f"stride:size=640MiB,stride={18 * MIB + 64},accesses={{accesses}},init=pages",
    640 * MIB,
    3_000_000,
    640 * MIB // PAGE,
    "analogue: one element of each of 35 arrays of 18 MiB in turn, a line more than that apart: a large constant "
    "stride, by which pages fall into one set of each TLB and radix entries into two sets of the L1 data cache, but "
    "data and page-directory entries into many",
)
XALAN = _Workload(
    "xalancbmk*",
    "zipf:size=384MiB,accesses={accesses},init=pages",
    384 * MIB,
    3_000_000,
    384 * MIB // PAGE,
    "analogue: words of 384 MiB by Zipf's law",
)
MILC = _Workload(
    "milc*",
    "semirandom:size=640MiB,steps=6,accesses={accesses},init=pages",
    640 * MIB,
    3_000_000,
    640 * MIB // PAGE,
    "analogue: a random page of 640 MiB and the six that follow it",
)
SUITE = (MCF, CACTUS, XALAN, *GRAPHS, *GUPS)
# What fits the segments of the presets.
BEYOND_SUITE = (MCF, CACTUS, XALAN, GUPS[0])

BARE = {"radix": "radix", "perfect": "radix-perfect-mmu-cache", "hashed": "hashed-compact"}
NESTED = {
    "nested radix": "nested-radix",
    "nested perfect": "nested-radix-perfect-mmu-cache",
    "nested hashed": "nested-hashed-compact",
}
DESIGNS = {
    "chained": "hashed-chained",
    "open": "hashed-open",
    "clustered": "hashed-clustered",
    "compact": "hashed-compact",
}
CLUSTERS = (8, 512, 4096)
# What the paper discusses as related work (sections 6.2, 6.3), beside its own designs, and what each is set against.
BEYOND = {
    "hashed": ("hashed-compact", "radix"),
    "direct segment": ("direct-segment", "radix"),
    "nested hashed": ("nested-hashed-compact", "nested radix"),
    "nested VMM direct": ("nested-vmm-direct", "nested radix"),
    "nested guest direct": ("nested-guest-direct", "nested radix"),
    "nested dual direct": ("nested-dual-direct", "nested radix"),
    "nested speculative": ("nested-radix-speculative", "nested radix"),
}

# The experiment of section 5.3: the paper's is of the data cache. That of the TLB tells the conflicts of pages from
# those of their entries.
DATA_CACHE, TLB = "64-way L1 data cache", "fully associative L1 TLB"
ASSOCIATIVE = {
    # The most ways that a cache may have here: 16 sets in place of 128.
    DATA_CACHE: ("machine.cache.l1.ways=64",),
    TLB: (
        'machine.tlb.l1d=[{"pages":["4K"],"entries":64,"ways":64},{"pages":["2M"],"entries":32,"ways":4},'
        '{"pages":["1G"],"entries":4,"ways":4}]',
    ),
}

# Table 4: change of run time in per cent, bare metal and virtual, perfect MMU caches and hashed tables; the rows whose
# numbers are known here.
TABLE_4 = {
    "mcf*": (-4, -6, -14, -17),
    "xalancbmk*": (-1, -2, -7, -9),
    "Graph500 4GB": (-1, -1, -6, -6),
    "GUPS 2GB": (-6, -5, -19, -17),
}


def _table_settings(preset: str, footprint: int) -> tuple[str, ...]:
    """Tables sized to the footprint: the paper's load factors are those of memory that is full."""
    # 64 bytes for each page, and up to 2 MiB for what is mapped besides, in multiples of 2 MiB; the guest's memory
    # holds its own table too.
    table = (footprint // 64 + (2 << 20)) >> 21 << 21
    if preset == "nested-hashed-compact":
        host = (table + table // 64 + (2 << 20)) >> 21 << 21
        return (
            f"system.layers.guest.page_table.table_bytes={table}",
            f"system.layers.host.page_table.table_bytes={host}",
        )
    if preset.startswith("hashed"):
        return (f"system.layers.native.page_table.table_bytes={table}",)
    return ()


def _run(
    workload: _Workload, system: str, preset: str, label: str = "", more: tuple[str, ...] = (), beyond: bool = False
) -> Run:
    # Neither files nor processes beside it: the machine's 96 GiB are there for the largest.
    return Run(
        workload.name,
        workload.spec,
        system,
        preset,
        workload.accesses,
        workload.warm_up,
        (*_table_settings(preset, workload.footprint), *more),
        label,
        beyond,
    )


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    # The longest first, so that none is left alone at the end.
    for workload in reversed(SUITE):
        for system, preset in {**BARE, **NESTED}.items():
            yield _run(workload, system, preset)
    for system, preset in {"radix": "radix", **DESIGNS}.items():
        yield _run(MILC, system, preset)
    for cluster in CLUSTERS:
        more = (f"system.layers.guest.page_table.cluster={cluster}",)
        yield _run(MILC, "nested hashed", "nested-hashed-compact", f"cluster {cluster}", more)
    for workload in BEYOND_SUITE:
        for system, (preset, _) in BEYOND.items():
            if system not in {**BARE, **NESTED}:
                yield _run(workload, system, preset, beyond=True)
    for label, more in ASSOCIATIVE.items():
        for system, preset in BARE.items():
            yield _run(CACTUS, system, preset, label, more)


def evaluate(measured: Measurements) -> Findings:
    findings = Findings()
    _figure_6(measured, findings)
    _figure_9(measured, findings)
    _figures_10_and_11(measured, findings)
    _conflicts(measured, findings)
    _references(measured, findings)
    _beyond(measured, findings)
    findings.notes += [
        "The coefficients of the paper's run-time model (A and B) are unpublished, so its per cent are not comparable "
        "with ours, which follow from an in-order core that waits for each access; references, walk cycles and "
        "orders are.",
        "A reference is a line here. Four slots of the open table lie in one, so a second probe is mostly none; the "
        "paper's Fig 6(b) counts slots.",
        "Run time here is the program's instructions, data stalls and translation, without page faults.",
        "Hashed tables are sized to the footprint: 64 bytes per page, so that the load factors are the paper's.",
        *(f"{w.name}: {w.stands_for}." for w in (*SUITE, MILC)),
        "The windows are short beside whole runs. GUPS is the same everywhere; a search's window sees its first levels "
        "alone, which visit the vertices with the most neighbours.",
    ]
    return findings


def _falls(values: list[float]) -> bool:
    return all(a >= b for a, b in itertools.pairwise(values))


def _figure_6(measured: Measurements, findings: Findings) -> None:
    for title, unit, statistic in (
        ("cycles of a walk", "cycles", "walk.cycles"),
        ("references of a walk", "references", "walk.refs"),
        ("memory references of a walk", "references to DRAM", "walk.refs.dram"),
    ):
        values = {name: measured[MILC.name, name].per_walk(statistic) for name in DESIGNS}
        cells = {(MILC.name, name): value for name, value in values.items()}
        errors = {(MILC.name, name): measured[MILC.name, name].per_walk_error(statistic) for name in DESIGNS}
        findings.series.append(Series("Fig 6", title, unit, (MILC.name,), tuple(DESIGNS), cells, errors))
        detail = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
        text = f"each optimisation lowers the {title}"
        findings.claims.append(Claim("Fig 6", text, _falls(list(values.values())), detail))
    radix, chained = (measured[MILC.name, name].per_walk("walk.refs.dram") for name in ("radix", "chained"))
    ratio = chained / radix if radix else float("inf")
    text = "Barr et al.: chained hashing makes more DRAM references than radix tables with MMU caches (up to 5 times)"
    detail = f"{chained:.3g} against {radix:.3g} a walk, {ratio:.3g} times"
    findings.claims.append(Claim("§4", text, ratio > 1, detail))
    findings.comparisons.append(
        Comparison(
            "§4",
            MILC.name,
            "DRAM references of a walk, chained against radix",
            "times",
            5.0,
            ratio,
            "the paper quotes Barr et al.'s largest; this is one analogue",
        )
    )


def _figure_9(measured: Measurements, findings: Findings) -> None:
    sizes = [measured[MILC.name, "nested hashed", f"cluster {cluster}"] for cluster in CLUSTERS]
    values = [size.per_walk("walk.cycles") for size in sizes]
    members = tuple(f"{cluster} pages" for cluster in CLUSTERS)
    cells = {(MILC.name, member): value for member, value in zip(members, values, strict=True)}
    errors = {(MILC.name, m): size.per_walk_error("walk.cycles") for m, size in zip(members, sizes, strict=True)}
    findings.series.append(
        Series("Fig 9", "cycles of a 2D walk by guest cluster", "cycles", (MILC.name,), members, cells, errors)
    )
    detail = ", ".join(f"{member} {value:.4g}" for member, value in zip(members, values, strict=True))
    findings.claims.append(
        Claim("Fig 9", "larger guest clusters lower the cycles of a 2D walk", _falls(values), detail)
    )


def _figures_10_and_11(measured: Measurements, findings: Findings) -> None:
    names = tuple(workload.name for workload in SUITE)
    gains: dict[tuple[str, str], float] = {}
    errors: dict[tuple[str, str], float | None] = {}
    for name in names:
        for kind, base, prefix in (("bare", "radix", ""), ("virtual", "nested radix", "nested ")):
            for design in ("perfect", "hashed"):
                before, after = measured[name, base], measured[name, f"{prefix}{design}"]
                gains[name, f"{kind} {design}"] = after.saved(before)
                errors[name, f"{kind} {design}"] = after.saved_error(before)
    for figure, design, title in (
        ("Fig 10", "perfect", "run time saved by perfect MMU caches"),
        ("Fig 11", "hashed", "run time saved by hashed tables"),
    ):
        members = (f"bare {design}", f"virtual {design}")
        cells = {key: value for key, value in gains.items() if key[1] in members}
        findings.series.append(Series(figure, title, "% of radix with MMU caches", names, members, cells, errors))
        virtual = all(gains[name, members[1]] >= gains[name, members[0]] for name in names)
        least = min(gains[name, members[1]] - gains[name, members[0]] for name in names)
        text = f"{title}: more in a virtual machine than on bare metal"
        findings.claims.append(Claim(figure, text, virtual, f"the difference is {least:.3g} points at least"))
        for suite, label in ((GUPS, "GUPS"), (GRAPHS, "Graph500")):
            for member in members:
                row = [gains[workload.name, member] for workload in suite]
                text = f"{title}: more the larger the memory ({label}, {member.split()[0]})"
                detail = ", ".join(f"{value:.3g} %" for value in row)
                findings.claims.append(Claim(figure, text, _falls(row[::-1]), detail))
    for workload in (*GRAPHS, *GUPS):
        for kind in ("bare", "virtual"):
            perfect, hashed = gains[workload.name, f"{kind} perfect"], gains[workload.name, f"{kind} hashed"]
            text = f"{workload.name}, {kind}: perfect MMU caches save as much as hashed tables or more"
            findings.claims.append(Claim("Table 4", text, perfect >= hashed, f"{perfect:.3g} % and {hashed:.3g} %"))
    for workload in (MCF, CACTUS, XALAN):
        perfect, hashed = gains[workload.name, "bare perfect"], gains[workload.name, "bare hashed"]
        text = f"{workload.name}, bare: hashed tables save more than perfect MMU caches"
        findings.claims.append(Claim("Table 4", text, hashed > perfect, f"{hashed:.3g} % and {perfect:.3g} %"))
    columns = ("bare perfect", "bare hashed", "virtual perfect", "virtual hashed")
    for name, printed in TABLE_4.items():
        for column, paper in zip(columns, printed, strict=True):
            reason = "other run-time model" + (", an analogue" if name.endswith("*") else ", a window")
            findings.comparisons.append(
                Comparison(
                    "Table 4",
                    name,
                    f"change of run time, {column}",
                    "%",
                    float(paper),
                    -gains[name, column],
                    reason,
                    errors[name, column],
                )
            )


def _conflicts(measured: Measurements, findings: Findings) -> None:
    groups = ("4-way L1 TLB, 8-way L1 data cache", *ASSOCIATIVE)
    misses: dict[tuple[str, str], float] = {}
    gains: dict[tuple[str, str], float] = {}
    for group, label in zip(groups, ("", *ASSOCIATIVE), strict=True):
        for system in BARE:
            of = measured[CACTUS.name, system, label]
            missed = of.stats["walk.refs"] - of.stats["walk.refs.l1"]
            misses[group, system] = 100 * missed / of.stats["accesses"]
            if system != "radix":
                gains[group, system] = of.saved(measured[CACTUS.name, "radix", label])
    title = "references of walks that miss the L1 data cache"
    findings.series.append(Series("§5.3", f"{CACTUS.name}: {title}", "in 100 accesses", groups, tuple(BARE), misses))
    title = "run time saved"
    findings.series.append(
        Series("§5.3", f"{CACTUS.name}: {title}", "% of radix", groups, ("perfect", "hashed"), gains)
    )
    usual, cache, tlb = groups
    text = "cactusADM: radix entries conflict in the L1 data cache, also with perfect MMU caches; hashed ones do less"
    radix, perfect, hashed = (misses[usual, system] for system in BARE)
    detail = f"misses of walks in 100 accesses: radix {radix:.3g}, perfect {perfect:.3g}, hashed {hashed:.3g}"
    findings.claims.append(Claim("§5.3", text, min(radix, perfect) > hashed, detail))
    text = "cactusADM: a fully associative L1 data cache removes almost all L1 misses of radix walks"
    detail = f"{radix:.3g} in 100 accesses with 8 ways, {misses[cache, 'radix']:.3g} with 64"
    findings.claims.append(Claim("§5.3", text, misses[cache, "radix"] < radix / 10, detail))
    text = "cactusADM: what hashed tables save beyond perfect MMU caches comes from these conflicts"
    beyond = [gains[group, "hashed"] - gains[group, "perfect"] for group in (usual, cache)]
    detail = f"{beyond[0]:.3g} points with 8 ways, {beyond[1]:.3g} with 64"
    findings.claims.append(Claim("§5.3", text, beyond[0] > 2 * abs(beyond[1]), detail))
    for system, paper in (("perfect", -7.0), ("hashed", -27.0)):
        findings.comparisons.append(
            Comparison(
                "§5.3",
                CACTUS.name,
                f"change of run time, bare {system}",
                "%",
                paper,
                -gains[usual, system],
                "other run-time model, and an analogue that does nothing but stride",
                measured[CACTUS.name, system].saved_error(measured[CACTUS.name, "radix"]),
            )
        )
    findings.notes.append(
        f"{CACTUS.name} with a fully associative L1 TLB, which the paper does not try: hashed tables save "
        f"{gains[tlb, 'hashed']:.3g} %, since the pages that conflict in 4 ways then fit, and nothing is walked for."
    )
    findings.notes.append(
        f"{CACTUS.name} in a virtual machine: hosts give frames in the order of first touch, which depends on what "
        "walks read, so its few page-table entries come to lie in other sets of the L2 cache under perfect MMU caches. "
        "What that costs is the placement's, not the design's."
    )


def _references(measured: Measurements, findings: Findings) -> None:
    names = [workload.name for workload in SUITE]
    bare, nested = (
        [measured[name, system].per_walk("walk.refs") for name in names] for system in ("hashed", "nested hashed")
    )
    mean = sum(bare) / len(bare)
    error, nested_error = (
        error_of_mean([measured[name, system].per_walk_error("walk.refs") for name in names])
        for system in ("hashed", "nested hashed")
    )
    reason = (
        "linear probing at a load of 1/8 gives ½(1+1/(1−1/8)) = 1.07; the footprint fills the table to a little less"
    )
    findings.comparisons.append(
        Comparison("§5.3", "hashed, mean", "references of a walk, bare", "", 1.08, mean, reason, error)
    )
    nested_mean = sum(nested) / len(nested)
    reason = f"(1+r)²−1 = {(1 + mean) ** 2 - 1:.3g} for the r of bare metal"
    findings.comparisons.append(
        Comparison("§5.3", "hashed, mean", "references of a walk, 2D", "", None, nested_mean, reason, nested_error)
    )
    for system, limit in (("perfect", 1.0), ("nested perfect", 3.0)):
        worst = max(measured[name, system].per_walk("walk.refs") for name in names)
        text = f"perfect MMU caches leave {limit:g} reference{'s' if limit > 1 else ''} of a walk ({system})"
        findings.claims.append(Claim("§5.2", text, abs(worst - limit) < 1e-9, f"{worst:.6g} at most"))
    systems = (*BARE, *NESTED)
    for title, unit, statistic in (
        ("references of a walk", "references", "walk.refs"),
        ("cycles of a walk", "cycles", "walk.cycles"),
    ):
        cells = {(name, system): measured[name, system].per_walk(statistic) for name in names for system in systems}
        errors = {key: measured[key].per_walk_error(statistic) for key in cells}
        findings.series.append(Series("Walks", title, unit, tuple(names), systems, cells, errors))


def _beyond(measured: Measurements, findings: Findings) -> None:
    names = tuple(workload.name for workload in BEYOND_SUITE)
    if not all((name, system) in measured for name in names for system in BEYOND):
        return
    waited: dict[tuple[str, str], float] = {}
    gains: dict[tuple[str, str], float] = {}
    errors: dict[tuple[str, str], float | None] = {}
    for name in names:
        for system, (_, base) in BEYOND.items():
            of, before = measured[name, system], measured[name, base]
            refs = of.stats.get("speculation.refs.critical", of.stats["walk.refs"])
            waited[name, system] = refs / of.stats["accesses"]
            gains[name, system] = of.saved(before)
            errors[name, system] = of.saved_error(before)
    title = "references of walks that the program waits for"
    findings.series.append(Series("Beyond the paper", title, "per access", names, tuple(BEYOND), waited))
    title = "run time saved"
    findings.series.append(Series("Beyond the paper", title, "% of radix", names, tuple(BEYOND), gains, errors))


REPRODUCTION = Reproduction(
    name="hash-dont-cache",
    title="Hash, Don't Cache (the Page Table)",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    # Estimated: the 24 longest of the 68 runs took 6 minutes of processor time beside other work, the others as much.
    nominal_minutes=8,
    runs=runs,
    evaluate=evaluate,
)
