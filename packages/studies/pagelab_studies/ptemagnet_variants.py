"""What "PTEMagnet" leaves open: sizes of a reservation, bare metal, and stores.

Components of a graph beside two co-runners, in aged guest memory, as in `ptemagnet`. There reservations of eight pages
cost as much as other pages; so they do here, whatever their size. Two stores in anonymous memory run instead of the
graph.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_measures import BEYOND_L2, decided, spread
from pagelab_studies.ptemagnet_runs import CC, EQUAL_CYCLES, KERNEL, MEMORY, SEEDS, Workload, aged, co_runners
from pagelab_studies.ptemagnet_runs import cost as cost_of_window
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

ORDER_0, RESERVED = "order-0", "PTEMagnet"
SIZES = (2, 4, 8, 16, 32, 64)
PAPER = 8
NATIVE, VIRTUAL = "bare metal", "virtual machine"
LAYERS = {NATIVE: "native", VIRTUAL: "guest"}
"""The layer that programs run on."""
PRESETS = {NATIVE: "radix", VIRTUAL: "nested-radix-cold"}
STORES = (
    Workload(
        "hash-table",
        "hash-table:records=1M,value=200B,load=yes,mix=b,accesses={total}",
        9_000_000,
        4_000_000,
        "a hash table of a million records as memcached has it, in 275 MiB; 95 % reads, 5 % updates, by Zipf's law",
    ),
    Workload(
        "btree",
        "btree:records=300K,memory=anonymous,load=yes,mix=b,accesses={total}",
        7_500_000,
        4_000_000,
        "a B+tree of 300,000 records in 390 MiB; 95 % reads, 5 % updates, by Zipf's law",
    ),
)
"""Stores that write all their records before the window."""
BTREE = STORES[1]
ALONE = f"{VIRTUAL}, alone"
"""Without co-runners, which evict lines of PTEs before their next use."""
_STORE_COSTS = {"hash-table": Cost(880, 1240), "btree": Cost(270, 780)}
"""Measured from runs at scale 1 and one half."""
LEVELS = (1, 2, 3, 4)
_TIME = (
    "five seeds, not the range of the model's costs; an in-order core that waits for each walk; one program of tens of "
    "MiB; how the guest's memory has been used"
)


def cost(run: Run) -> Cost:
    """As the windows of `ptemagnet`; of stores, what was measured."""
    if run.workload in _STORE_COSTS:
        return _STORE_COSTS[run.workload]
    return cost_of_window(replace(run, label=""))


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    for seed in SEEDS:
        for place in PRESETS:
            yield _run(place, ORDER_0, seed)
            yield _run(place, RESERVED, seed, PAPER)
        for pages in SIZES:
            if pages != PAPER:
                yield _run(VIRTUAL, RESERVED, seed, pages)
        for store in STORES:
            yield _run(VIRTUAL, ORDER_0, seed, workload=store)
            yield _run(VIRTUAL, RESERVED, seed, PAPER, store)
        for system, pages in ((ORDER_0, 0), (RESERVED, PAPER)):
            run = _run(VIRTUAL, system, seed, pages, BTREE)
            yield replace(run, beside=(), label=_label(ALONE, pages))


def _label(place: str, pages: int) -> str:
    return f"{place}, {pages} pages" if pages else place


def _run(place: str, system: str, seed: int, pages: int = 0, workload: Workload = CC) -> Run:
    settings = [*MEMORY, aged(seed).replace("guest", LAYERS[place], 1)]
    if pages:
        policy = f'{{"kind":"ptemagnet","group_pages":{pages},"cycles":{EQUAL_CYCLES},"instructions":350}}'
        # As in the artefact, for the measured program alone.
        layer = f"system.layers.{LAYERS[place]}"
        settings += [f"{layer}.placement={policy}", f'{layer}.placement_for=["source.0"]']
    return Run(
        workload.name,
        f"{workload.spec}@0",
        system,
        f"{PRESETS[place]}@{KERNEL}",
        workload.accesses,
        workload.settled,
        tuple(settings),
        _label(place, pages),
        beside=co_runners(seed),
        after_touches=True,
        least_accesses=workload.least,
        seed=seed,
        in_parts=False,
    )


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_sizes, _places, _stores, _walk_cycles, _levels))


def _pairs(
    measured: Measurements, place: str, pages: int, workload: Workload = CC
) -> list[tuple[Measurement, Measurement]]:
    before = measured.seeds(workload.name, ORDER_0, _label(place, 0))
    after = measured.seeds(workload.name, RESERVED, _label(place, pages))
    return [(before[seed], after[seed]) for seed in sorted(before.keys() & after.keys())]


def _gains(measured: Measurements, place: str, pages: int, workload: Workload = CC) -> list[float]:
    """Per cent of the cycles per access that reservations save, by seed."""
    pairs = _pairs(measured, place, pages, workload)
    return [100 * (1 - after.cycles_per_access / before.cycles_per_access) for before, after in pairs]


def _walk_gains(measured: Measurements, place: str, pages: int, workload: Workload = CC) -> list[float]:
    """Per cent of the walk cycles per access that reservations save, by seed."""

    def walk_cycles(one: Measurement) -> float:
        return one.main("walk.cycles") / one.window

    return [
        100 * (1 - walk_cycles(after) / walk_cycles(before))
        for before, after in _pairs(measured, place, pages, workload)
    ]


def _judged(measured: Measurements, verdict: bool | None, *labels: str) -> bool | None:
    every = [one for label in labels for one in measured.seeds(CC.name, RESERVED, label).values()]
    return decided(verdict, every)


def _sizes(measured: Measurements, findings: Findings) -> None:
    gains = {pages: _gains(measured, VIRTUAL, pages) for pages in SIZES}
    cells = {(f"{pages} pages", "time"): spread(saved_times) for pages, saved_times in gains.items()}
    cells |= {(f"{pages} pages", "walk cycles"): spread(_walk_gains(measured, VIRTUAL, pages)) for pages in SIZES}
    findings.series.append(Series.within("§4", "saved by the size of a reservation, aged memory", "%", cells))
    unused = {
        (f"{pages} pages", "peak"): spread(
            one.stats["layer.guest.reservations.peak_unused_bytes"] / (1 << 20)
            for one in measured.seeds(CC.name, RESERVED, _label(VIRTUAL, pages)).values()
        )
        for pages in SIZES
    }
    findings.series.append(
        Series.within("§4", "memory reserved and not used, by the size of a reservation", "MiB", unused)
    )
    in_walks = ", ".join(f"{cells[f'{pages} pages', 'walk cycles']} % with {pages}" for pages in (SIZES[-1], PAPER))
    fewer = spread(a - b for a, b in zip(gains[PAPER], gains[PAPER // 2], strict=True))
    more = spread(a - b for a, b in zip(gains[SIZES[-1]], gains[PAPER], strict=True))
    labels = [_label(VIRTUAL, pages) for pages in (PAPER // 2, PAPER, SIZES[-1])]
    text = "groups of 8 pages, a line of PTEs, save more time than groups of 4"
    findings.claims.append(
        Claim("§4", text, _judged(measured, fewer.above(0), *labels), f"{fewer} points", _TIME, "order")
    )
    text = "groups of 64 pages save less than 1 point more than groups of 8"
    verdict = _judged(measured, more.minus(Interval(1, 1, 1)).above(0), *labels)
    holds = None if verdict is None else not verdict
    detail = f"{more} points; walk cycles: {in_walks}"
    findings.claims.append(Claim("§4", text, holds, detail, _TIME, "size", ours=True))


def _places(measured: Measurements, findings: Findings) -> None:
    gains = {place: _gains(measured, place, PAPER) for place in PRESETS}
    cells = {(place, "time"): spread(values) for place, values in gains.items()}
    cells |= {(place, "walk cycles"): spread(_walk_gains(measured, place, PAPER)) for place in PRESETS}
    findings.series.append(Series.within("§3", "saved by reservations of 8 pages, aged memory", "%", cells))
    labels = [_label(place, PAPER) for place in PRESETS]
    native, virtual = spread(gains[NATIVE]), spread(gains[VIRTUAL])
    apart = spread(a - b for a, b in zip(gains[VIRTUAL], gains[NATIVE], strict=True))
    detail = f"{virtual} % in a virtual machine, {native} % on bare metal; {apart} points apart"
    text = "scattered frames cost time under virtualisation, and less on bare metal"
    verdict = _judged(measured, apart.above(0), *labels)
    findings.claims.append(Claim("§3", text, verdict, detail, _TIME, "order", ours=True))
    text = "on bare metal reservations change the time by less than 1 %"
    verdict = _judged(measured, native.within(-1, 1), *labels)
    findings.claims.append(Claim("§3", text, verdict, f"{native} %", _TIME, "size", ours=True))


def _stores(measured: Measurements, findings: Findings) -> None:
    cells = {}
    for store, place, where in (
        *((store, VIRTUAL, store.name) for store in STORES),
        (BTREE, ALONE, f"{BTREE.name}, without co-runners"),
    ):
        cells[where, "time"] = gain = spread(_gains(measured, place, PAPER, store))
        cells[where, "walk cycles"] = spread(_walk_gains(measured, place, PAPER, store))
        every = [one for pair in _pairs(measured, place, PAPER, store) for one in pair]
        text = f"reservations save time in a store in memory: {where}"
        findings.claims.append(Claim("§1", text, decided(gain.above(0), every), f"{gain} %", _TIME, ours=True))
    findings.series.append(Series.within("§1", "saved by reservations of 8 pages in stores, aged memory", "%", cells))


def _walk_cycles(measured: Measurements, findings: Findings) -> None:
    saved = spread(_walk_gains(measured, VIRTUAL, PAPER))
    label = _label(VIRTUAL, PAPER)
    text = "PTEMagnet reduces the cycles of walks (guest memory aged)"
    findings.claims.append(Claim("§4", text, _judged(measured, saved.above(0), label), f"{saved} %", _TIME))


def _levels(measured: Measurements, findings: Findings) -> None:
    """References beyond L2 per walk, by table and level."""
    every = measured.seeds(CC.name, ORDER_0, VIRTUAL).values()

    def per_walk(one: Measurement, layer: str, level: int) -> float:
        names = (f"walk.layer.{layer}.level{level}.refs.{place}" for place in BEYOND_L2)
        return sum(one.main(name) for name in names) / one.main("walk.count")

    cells = {
        (f"level {level}", layer): spread(per_walk(one, layer, level) for one in every)
        for level in LEVELS
        for layer in ("guest", "host")
    }
    findings.series.append(Series.within("§3", "references beyond L2 per walk, by level (1 is the leaf)", "", cells))
    for layer in ("guest", "host"):
        others = [per_walk(one, layer, 1) - sum(per_walk(one, layer, level) for level in LEVELS[1:]) for one in every]
        leaf, more = (
            f"{one.value:.2g} ({one.low:.2g} to {one.high:.2g})" for one in (cells["level 1", layer], spread(others))
        )
        detail = f"{leaf} references of the leaf per walk, {more} more than of the upper levels together"
        text = f"the leaf level has most of the misses in the {layer}'s table"
        holds = decided(spread(others).above(0), every)
        # Of the guest's table the paper only says that higher caches often serve it.
        findings.claims.append(Claim("§3", text, holds, detail, _TIME, "order", ours=layer == "guest"))


REPRODUCTION = Reproduction(
    name="ptemagnet-variants",
    title="PTEMagnet: sizes of reservations, bare metal, stores",
    paper="Artemiy Margaritov et al., ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
