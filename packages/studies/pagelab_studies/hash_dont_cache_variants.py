"""Questions of "Hash, Don't Cache (the Page Table)" beside its figures.

Controls that hardly miss the TLB (§5.2), the optimisations of §4.3 on further programs, the linear model of run time
(§5.1) beside two cores, TLB misses of the kernel (§5.1), and what other papers say of MMU caches
(`hash_dont_cache_caches`). Workloads and tables are those of `hash_dont_cache_runs`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping

from pagelab_studies import hash_dont_cache_caches as caches
from pagelab_studies import hash_dont_cache_clusters as clusters
from pagelab_studies import hash_dont_cache_shared as shared
from pagelab_studies import hash_dont_cache_space as space
from pagelab_studies import hash_dont_cache_tables as tables
from pagelab_studies.hash_dont_cache_runs import (
    BARE,
    CACTUS,
    COSTS,
    DESIGNS,
    MCF,
    MIB,
    NESTED,
    PAGE,
    XALAN,
    Workload,
    window_of,
)
from pagelab_studies.hash_dont_cache_samples import rests_on
from pagelab_studies.hash_dont_cache_space import FIRST_TOUCHES, MODELLED
from pagelab_studies.interval import Interval, all_hold
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
    figure,
    mean,
    per_walk,
    program_time,
    saved,
)


def _control(name: str, spec: str, mib: int, stands_for: str) -> Workload:
    full = f"{spec},accesses={{accesses}},init=pages"
    # A smaller table would not hold one row of the guest's clusters.
    return Workload(name, full, max(mib, 64) * MIB, 2_000_000, mib * MIB // PAGE, stands_for)


CONTROLS = (
    _control("small working set", "zipf:size=1MiB", 1, "a program whose pages all fit the second-level TLB"),
    _control("stream", "seq:size=64MiB", 64, "a program that reads its memory word by word, in order"),
    _control("blocks", "semirandom:size=1MiB,steps=6", 1, "runs of pages within what the TLBs hold"),
)
FURTHER = (MCF, XALAN, CACTUS)
CORES = {"in order": (), "overlapping": ("machine.core=skylake",)}
MODEL_SYSTEMS = {**BARE, "2M": "radix-2m"}
_CONTROLLED = "windows of synthetic programs; an in-order core that waits for each access"
_LINEAR = "windows of two analogues; the two cores of the simulator, not a processor"


def cost(run: Run) -> Cost:
    """What a run takes: as in `hash_dont_cache_runs`, and an estimate for the others."""
    if run.workload in COSTS:
        factor = 3 if run.label == "overlapping" else 1
        kind = 2 if run.system.startswith("nested") else 0
        (window, warm_up) = (costs[kind] for costs in COSTS[run.workload])
        return Cost(factor * window, warm_up if run.warm_up else 0)
    return Cost(60, 2000 if run.warm_up else 0)


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    yield from space.runs()
    yield from shared.runs()
    for workload in CONTROLS:
        for system, preset in {**BARE, **NESTED}.items():
            yield window_of(workload, system, preset)
    for workload in FURTHER:
        for design, preset in DESIGNS.items():
            yield window_of(workload, design, preset)
    for workload in MODELLED:
        for label, settings in CORES.items():
            for system, preset in MODEL_SYSTEMS.items():
                yield window_of(workload, system, preset, label, settings)
        for system in ("radix", "hashed"):
            yield _whole(workload, system)
    yield from caches.runs()
    yield from clusters.runs()


def _whole(workload: Workload, system: str) -> Run:
    """From the first access on, with the kernel's page faults."""
    run = window_of(workload, system, BARE[system])
    return Run(run.workload, run.spec, run.system, run.preset, run.accesses, 0, run.settings, FIRST_TOUCHES)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    of_caches = (caches.kinds_gain_alike, caches.nested_walk_cache, caches.references_in_total)
    of_clusters = (
        clusters.pages_per_slot,
        clusters.half_the_memory,
        clusters.guest_and_host,
        clusters.lines_of_the_host,
    )
    beside = (space.without_mmu_caches, space.space, shared.coalesced_and_shared)
    sections = (_controls, _optimisations, _linear_model, _kernel_misses, *beside, *of_clusters, *of_caches)
    findings = by_sections(measured, sections)
    findings.notes += [
        "All runs of the study were made, in windows of their full length.",
        "cactusADM*'s entries stay in the caches, so clusters save it no misses. They collide more often than single "
        "entries (1.16 lines per walk, not 1.04). That is why its walks take more cycles with clusters.",
        "The linear model takes cycles of walks at their full price. The overlapping core hides some of them "
        "otherwise than it hides those of 2 MiB pages, so it is up to 3 points off.",
        *space.NOTES,
        *clusters.NOTES,
        *caches.NOTES,
    ]
    return findings


def _change(before: Measurement, after: Measurement) -> Interval:
    """Per cent of run time saved, with the 95 % interval of eight parts. Parts without a walk count as well."""
    parts = [saved(one, other) for one, other in zip(before.parts, after.parts, strict=True)]
    around = mean(parts)
    value = saved(before.stats, after.stats)
    return Interval(value - (around.value - around.low), value, value + (around.high - around.value))


def _controls(measured: Measurements, findings: Findings) -> None:
    cells = {
        (workload.name, system): _change(measured[workload.name, f"{prefix}radix"], measured[workload.name, system])
        for workload in CONTROLS
        for prefix in ("", "nested ")
        for system in (f"{prefix}perfect", f"{prefix}hashed")
    }
    findings.series.append(Series.within("§5.2", "run time saved where the TLBs hardly miss", "%", cells))
    least, most = min(one.low for one in cells.values()), max(one.high for one in cells.values())
    unchanged = all_hold(one.within(-1, 1) for one in cells.values())
    text = "programs that hardly miss the TLBs gain or lose less than 1 % by perfect MMU caches or hashed tables"
    findings.claims.append(Claim("§5.2", text, unchanged, f"{least:.2f} to {most:.2f} %", _CONTROLLED, "size"))


def _difference(
    quantity: Callable[[Mapping[str, int]], float],
) -> Callable[[Mapping[str, int], Mapping[str, int]], float]:
    return lambda before, after: quantity(before) - quantity(after)


def _optimisations(measured: Measurements, findings: Findings) -> None:
    for title, statistic, unit in (
        ("cycles of a walk", "walk.cycles", "cycles"),
        ("references of a walk, in lines", "walk.refs", "lines"),
        ("DRAM references of a walk", "walk.refs.dram", "references to DRAM"),
    ):
        quantity = per_walk(statistic)
        cells = {
            (workload.name, design): figure(quantity, measured[workload.name, design])
            for workload in FURTHER
            for design in DESIGNS
        }
        findings.series.append(Series.within("Fig 6", f"{title}, further programs", unit, cells))
        if statistic == "walk.refs":
            continue
        for workload in FURTHER:
            windows = [measured[workload.name, design] for design in DESIGNS]
            falls = [figure(_difference(quantity), *pair).above(0) for pair in itertools.pairwise(windows)]
            detail = ", ".join(f"{design} {cells[workload.name, design].value:.3g}" for design in DESIGNS)
            text = f"each optimisation lowers the {title} ({workload.name})"
            based = rests_on("the window of one analogue, one hash function", workload.name)
            findings.claims.append(Claim("Fig 6", text, all_hold(falls), detail, based, "order"))


def _linear_model(measured: Measurements, findings: Findings) -> None:
    """Run time = A × walk cycles + B, from pages of 4 KiB and 2 MiB, beside what each core really takes."""
    cells: dict[tuple[str, str], float] = {}
    errors: dict[str, list[float]] = {}
    for workload, core in itertools.product(MODELLED, CORES):
        stats_by_system = {system: measured[workload.name, system, core].stats for system in MODEL_SYSTEMS}
        time = {system: program_time(stats) for system, stats in stats_by_system.items()}
        walks = {system: stats["walk.cycles"] / stats["accesses"] for system, stats in stats_by_system.items()}
        slope = (time["radix"] - time["2M"]) / (walks["radix"] - walks["2M"])
        for system in ("perfect", "hashed"):
            simulated = 100 * (1 - time[system] / time["radix"])
            modelled = 100 * slope * (walks["radix"] - walks[system]) / time["radix"]
            cells |= {
                (f"{workload.name}, {core}, {system}", "simulated"): simulated,
                (f"{workload.name}, {core}, {system}", "by the model"): modelled,
            }
            errors.setdefault(core, []).append(modelled - simulated)
    findings.series.append(Series.from_values("§5.1", "run time saved: simulated, and by the linear model", "%", cells))
    for core, of_core in errors.items():
        interval = Interval.from_values(of_core)
        detail = f"{interval.low:.1f} to {interval.high:.1f} points of run time"
        text = f"the linear model is within 1 point of the simulated saving, a bound of ours ({core} core)"
        findings.claims.append(Claim("§5.1", text, interval.within(-1, 1), detail, _LINEAR, "size", ours=True))


def _kernel_misses(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], float] = {}
    for workload in MODELLED:
        for system in ("radix", "hashed"):
            stats = measured[workload.name, system, FIRST_TOUCHES].stats
            programs = stats["walk.cycles"] + stats["walk.aborted.cycles"]
            kernel = stats["walk.kernel.cycles"]
            cells[f"{workload.name}, {system}", "kernel"] = 100 * kernel / (programs + kernel)
    title = "walks for the kernel's own accesses, of the cycles of all walks, first touches included"
    findings.series.append(Series.from_values("§5.1", title, "%", cells))
    detail = f"{max(cells.values()):.2f} % at most"
    text = "TLB misses of the kernel are negligible: below 1 % of the cycles of walks, a bound of ours"
    rests = "the simulated kernel's accesses, through a direct map with large pages; two analogues"
    findings.claims.append(Claim("§5.1", text, max(cells.values()) < 1, detail, rests, "size", ours=True))


REPRODUCTION = Reproduction(
    name="hash-dont-cache-variants",
    title="Hash, Don't Cache (the Page Table): controls and further questions",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
    of_tables=tables.of_variants,
)
