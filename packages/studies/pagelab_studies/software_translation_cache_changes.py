"""What figures of `software_translation_cache` rest on, by one change at a time, and Figs 2 and 3.

There two and four threads run on CPUs that are siblings of a core, all runs have 24 GiB of memory, and all levels of a
cache have as many entries. Here threads have cores of their own, the machine has the paper's 8 GB, and the array of the
pud alone has a slot for each pud. Eight threads run under locks that leave `mm->pgd` in a line which faults only read.
Threads touch a quarter of the pages that they touch there.

Figs 2 and 3 change the pages that a fault of the guest maps; the host's faults map one page, as in Linux. A fault that
maps several pages makes one walk for them. So further rows have as many walks as with one page, as the paper says that
its kernel has, and most extra pages of one workload are never touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.software_translation_cache import (
    GUEST_ONLY,
    KERNELS,
    MEMORY,
    PAGES,
    PATTERNS,
    SIMULATED,
    SIMULATED_REGIONS,
    each_doubling,
)
from pagelab_studies.software_translation_cache_variants import BY_PUD, PUBLISHED, hits_alone
from pagelab_studies.study import BUSY, Claim, Cost, Findings, Measurements, Reproduction, Run, Series, by_sections
from pagelab_studies.walk_costs import Saving, Walks, gains_at

WITHOUT, WHOLE = "no cache", "whole prefixes"
TOUCHES = PAGES // 4
"""Accesses of a thread, nearly all of which touch a new page."""
LOCKED_TOUCHES = TOUCHES // 4
"""The same of eight threads, whose runs take long."""
SIBLINGS, OWN = "on siblings of a core", "on cores of their own"
CPUS = {(2, SIBLINGS): "0-1", (2, OWN): "0,2", (4, SIBLINGS): "0-3", (4, OWN): "0,2,4,6"}
"""Of 4 cores with two hardware threads each."""
CACHE = "kernel.translation_cache"
_PER_CPU = (f"{CACHE}.per=cpu",)


@dataclass(frozen=True)
class Lock:
    """How eight threads lock their address space or mappings."""

    regions: str
    settings: tuple[str, ...] = ()
    of_cache: tuple[str, ...] = ()


_BY_VMA = ("kernel.fault_lock=vma",)
LOCKS = {
    "mm's lock, mappings apart": Lock("apart"),
    "locks of mappings, mappings apart": Lock("apart", _BY_VMA),
    "mm's lock, one mapping": Lock("own", of_cache=_PER_CPU),
    "lock of the mapping, one mapping": Lock("own", _BY_VMA, _PER_CPU),
}
"""With `vma`, faults only read the line of `mm->pgd`. In one mapping, all threads still write the line of one lock, so
the last two rows differ in that line alone; they have a cache per CPU, so that threads share none."""
EIGHT = 8
SMALL = "8 GiB"
HOSTS = {"24 GiB": MEMORY, SMALL: "machine.memory_bytes=8GiB"}
PER_FAULT = (1, 2, 4, 8, 16)
MOST = PER_FAULT[-1]
WASTED = "random, most extra pages unused"
SPECS = {
    **{name: f"{spec.format(size='1GiB')},accesses={PAGES}@0" for name, spec in PATTERNS.items()},
    WASTED: f"random:size=16GiB,granularity=4096,write=1,accesses={TOUCHES}@0",
}
HOST_TOO = f"{MOST} per fault, host too"
PER_FAULT_SETTINGS = {
    **{f"{pages} per fault": f"system.layers.guest.pages_per_fault={pages}" for pages in PER_FAULT},
    HOST_TOO: f"kernel.pages_per_fault={MOST}",
}
AFTER, WALKS, CORRECTED = "faults after the walk", "walks", "walks, as many as with one"
REGIONS = ("1 GiB", "512 GiB")
PUD_SLOTS = {"16 entries": (), "512 entries of the pud": (f"{CACHE}.pud_entries=512",)}
PLACES = {
    "bare metal": ("radix", ()),
    "kernel data always in L1": ("radix", ("engine.kernel_refs=off",)),
    "in a guest": ("nested-radix-cold", (GUEST_ONLY,)),
}
"""Where random pages of larger regions are touched: system and settings."""
PUDS = 64
"""Entries of the pud that 64 GiB have, or one more if they are not aligned."""
SLOTS = 2 * PUDS
"""Enough for each of them."""
_COSTS = "48 sets of measured costs of a walk's parts; the caches of the preset"
_ENTRIES = "16 entries per level of the translation cache, of which the paper states no number"
_STAGES = (
    "48 sets of measured costs of a walk's parts; the costs of all stages of a fault, of which only the sum is "
    "anchored; one walk serves all pages of a fault"
)
_COUNTED = "only counts, of 65,536 first touches at random"


def cost(run: Run) -> Cost:
    """What a run takes to make, as those of `software_translation_cache`."""
    if run.label.startswith(REGIONS[-1]):
        return Cost(window=SIMULATED_REGIONS[REGIONS[-1]])
    if run.preset.startswith("radix@"):
        return Cost(window=SIMULATED_REGIONS["64 GiB"])
    if run.label in PER_FAULT_SETTINGS:
        return Cost(window=SIMULATED[1])
    return Cost(window=SIMULATED.get(run.accesses // TOUCHES, SIMULATED[1]))


def runs() -> list[Run]:
    """All runs."""
    return [*_cores(), *_locks(), *_hosts(), *_pages_per_fault(), *_index(), *_pud_slots()]


def _cores() -> Iterator[Run]:
    for (threads, where), cpus in CPUS.items():
        for name in PATTERNS:
            for kernel in (WITHOUT, PUBLISHED):
                yield _run(name, kernel, f"{threads} threads {where}", threads=threads, cpus=cpus)


def _locks() -> Iterator[Run]:
    for label, lock in LOCKS.items():
        for kernel in (WITHOUT, PUBLISHED):
            cache = lock.of_cache if kernel != WITHOUT else ()
            settings = (*lock.settings, *cache)
            cpus = f"0-{EIGHT - 1}"
            run = _run("sequential", kernel, label, settings, threads=EIGHT, cpus=cpus, regions=lock.regions)
            # Sequential accesses are in a steady state from the start.
            accesses = EIGHT * LOCKED_TOUCHES
            spec = run.spec.replace(f"accesses={run.accesses}", f"accesses={accesses}")
            yield replace(run, spec=spec, accesses=accesses, least_accesses=accesses)


def _hosts() -> Iterator[Run]:
    for host, memory in HOSTS.items():
        for name in PATTERNS:
            for kernel in (WITHOUT, PUBLISHED):
                yield _run(name, kernel, f"1 thread, {host}", memory=memory)


def _run(
    workload: str,
    kernel: str,
    label: str,
    settings: tuple[str, ...] = (),
    *,
    threads: int = 1,
    cpus: str = "0",
    regions: str = "apart",
    memory: str = MEMORY,
) -> Run:
    preset, usual = KERNELS[kernel]
    several = f",threads={threads},regions={regions}" if threads > 1 else ""
    accesses = TOUCHES * threads
    spec = f"{PATTERNS[workload].format(size='1GiB')}{several},accesses={accesses}@{cpus}"
    every = (memory, GUEST_ONLY, *usual, *settings)
    system = f"nested-radix-cold@{preset}"
    return Run(workload, spec, kernel, system, accesses, 0, every, label, least_accesses=accesses, in_parts=False)


def _pages_per_fault() -> Iterator[Run]:
    preset, usual = KERNELS[WITHOUT]
    for name, spec in SPECS.items():
        for label, pages in PER_FAULT_SETTINGS.items():
            accesses = TOUCHES if name == WASTED else PAGES
            yield Run(
                name,
                spec,
                WITHOUT,
                f"nested-radix-cold@{preset}",
                accesses,
                settings=(MEMORY, GUEST_ONLY, *usual, pages),
                label=label,
                least_accesses=accesses,
                in_parts=False,
            )


def _index() -> Iterator[Run]:
    """On bare metal, with fewer slots than puds, and with as many."""
    preset, usual = KERNELS[PUBLISHED]
    spec = f"random:size={PUDS}GiB,granularity=4096,write=1,accesses={TOUCHES}@0"
    for entries in (16, SLOTS):
        for cache, form in ((PUBLISHED, "as-published"), (BY_PUD, "pud-index")):
            settings = (MEMORY, *usual, f'{CACHE}={{"form":"{form}","entries":{entries}}}')
            label = f"{entries} entries"
            yield Run(
                "random",
                spec,
                cache,
                f"radix@{preset}",
                TOUCHES,
                settings=settings,
                label=label,
                least_accesses=TOUCHES,
                in_parts=False,
            )


def _pud_slots() -> Iterator[Run]:
    """Random pages of a small and of a large region, with 16 slots for its puds and with one for each."""
    for place, (system, settings) in PLACES.items():
        for region in REGIONS:
            spec = f"{PATTERNS['random'].format(size=region.replace(' ', ''))},accesses={TOUCHES}@0"
            for kernel, slots, of_cache in ((WITHOUT, "", ()), *((WHOLE, *known) for known in PUD_SLOTS.items())):
                preset, usual = KERNELS[kernel]
                yield Run(
                    "random",
                    spec,
                    kernel,
                    f"{system}@{preset}",
                    TOUCHES,
                    settings=(MEMORY, *settings, *usual, *of_cache),
                    label=_where(region, place, slots),
                    least_accesses=TOUCHES,
                    in_parts=False,
                )


def _where(region: str, place: str, slots: str = "") -> str:
    return ", ".join(part for part in (region, place, slots) if part)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    sections = (
        _by_core,
        _by_lock,
        _by_host,
        _shares,
        _run_times,
        _host_faults,
        _corrected,
        _index_of_pgds,
        _loss_of_large_regions,
    )
    findings = by_sections(measured, sections)
    findings.notes += [
        f"Windows of {TOUCHES:,} accesses per thread, a quarter of those of `software-translation-cache`, and "
        f"{LOCKED_TOUCHES:,} of eight threads; each table has the run without the change. Figs 2 and 3 have {PAGES:,} "
        "accesses, as there.",
        "Caches have 16 entries per level unless a title or a row says otherwise. The paper states no number.",
        "A cache per CPU has no wrong hits in one mapping, since each thread has a CPU and a region of its own.",
    ]
    return findings


def _saved(measured: Measurements, name: str, kernel: str, label: str) -> Saving:
    before, after = (Walks.from_measurement(measured[name, which, label]) for which in (WITHOUT, kernel))
    return Saving.between(kernel, before, after)


def _walk(measured: Measurements, name: str, label: str) -> float:
    """Cycles of a walk without a cache."""
    stats = measured[name, WITHOUT, label].stats
    return stats["fault.before_pte.cycles"] / stats["fault.walk.count"]


def _by_core(measured: Measurements, findings: Findings) -> None:
    labels = [f"{threads} threads {where}" for threads, where in CPUS]
    cells = {(label, name): _saved(measured, name, PUBLISHED, label).interval for label in labels for name in PATTERNS}
    title = "walk time saved by where threads run, mappings apart, as published"
    findings.series.append(Series.within("§5.2", title, "%", cells))
    walks = {(label, name): _walk(measured, name, label) for label in labels for name in PATTERNS}
    title = "walks without a cache, by where threads run, mappings apart"
    findings.series.append(Series.from_values("§5.2", title, "cycles", walks))
    own = ("1 thread, 24 GiB", *(label for label in labels if label.endswith(OWN)))
    saved = {name: [_saved(measured, name, PUBLISHED, label) for label in own] for name in PATTERNS}
    rising, detail = each_doubling(saved)
    text = f"each doubling of the threads gains more, up to 4 {OWN}, regions in separate mappings (as published)"
    rests_on = f"the paper's text names one and eight threads only; {_COSTS}; {_ENTRIES}"
    findings.claims.append(Claim("§5.2", text, rising, detail, rests_on, "order", ours=True))


def _by_lock(measured: Measurements, findings: Findings) -> None:
    cells = {(label, PUBLISHED): _saved(measured, "sequential", PUBLISHED, label).interval for label in LOCKS}
    title = "walk time saved by lock, eight threads, sequential"
    findings.series.append(Series.within("§5.2", title, "%", cells))
    walks = {(label, "cycles"): _walk(measured, "sequential", label) for label in LOCKS}
    title = "walks without a cache by lock, eight threads, sequential"
    findings.series.append(Series.from_values("§5.2", title, "cycles", walks))


def _by_host(measured: Measurements, findings: Findings) -> None:
    cells = {
        (name, host): _saved(measured, name, PUBLISHED, f"1 thread, {host}").interval
        for name in PATTERNS
        for host in HOSTS
    }
    findings.series.append(Series.within("§5", "walk time saved by the host's memory, one thread", "%", cells))


def _execution(measured: Measurements, name: str, label: str) -> tuple[Walks, int, int]:
    """The walks of a run without a cache, the cycles of its faults after them, and its cycles without idle time."""
    run = measured[name, WITHOUT, label]
    walks = Walks.from_measurement(run)
    after = run.stats["fault.handling.cycles"] - run.stats["fault.before_pte.cycles"]
    return walks, after, sum(run.stats.get(f"cycles.{kind}", 0) for kind in BUSY)


def _time_at_every_cost(measured: Measurements, name: str, label: str) -> tuple[float, ...]:
    """Cycles of the execution, at the costs of `Walks.at_every_cost`."""
    walks, _, total = _execution(measured, name, label)
    return tuple(total - walks.cycles + cycles for cycles in walks.at_every_cost)


def _shares_at_every_cost(measured: Measurements, name: str, label: str) -> dict[str, tuple[float, ...]]:
    """Per cent of the time of execution, at the costs of `Walks.at_every_cost`."""
    walks, after, total = _execution(measured, name, label)
    first, _, _ = _execution(measured, name, f"{PER_FAULT[0]} per fault")
    totals = _time_at_every_cost(measured, name, label)
    return {
        AFTER: tuple(100 * after / total_at for total_at in totals),
        WALKS: tuple(100 * cycles / at for cycles, at in zip(walks.at_every_cost, totals, strict=True)),
        CORRECTED: tuple(100 * cycles / (total - walks.cycles + cycles) for cycles in first.at_every_cost),
    }


def _more(less: tuple[float, ...], more: tuple[float, ...]) -> Interval:
    """By how many points one share is above another at the same costs."""
    differences = [larger - smaller for smaller, larger in zip(less, more, strict=True)]
    return Interval.from_values(differences, differences[0])


def _rises(shares: list[tuple[float, ...]]) -> bool | None:
    """Whether each share is above the one before it, at all costs."""
    return all_hold(_more(*pair).above(0) for pair in pairwise(shares))


def _falls(shares: list[tuple[float, ...]]) -> bool | None:
    return _rises(shares[::-1])


def _series(figure: str, title: str, shares: dict[tuple[str, str], tuple[float, ...]]) -> Series:
    cells = {key: Interval.from_values(values, values[0]) for key, values in shares.items()}
    return Series.within(figure, title, "%", cells)


def _detail(shares: list[tuple[float, ...]]) -> str:
    values = ", ".join(f"{share[0]:.3g}" for share in shares)
    return f"{values} % with {', '.join(map(str, PER_FAULT))} pages per fault"


def _shares(measured: Measurements, findings: Findings) -> None:
    """Figs 2 and 3, with the guest's pages per fault alone."""
    at = {
        (pages, name): _shares_at_every_cost(measured, name, f"{pages} per fault")
        for pages in PER_FAULT
        for name in PATTERNS
    }
    for figure, what in (("Fig 2", AFTER), ("Fig 3", WALKS)):
        cells = {(str(pages), name): shares[what] for (pages, name), shares in at.items()}
        findings.series.append(_series(figure, f"share of {what} in the time of execution, by pages per fault", cells))
    for name in PATTERNS:
        shares = [at[pages, name][AFTER] for pages in PER_FAULT]
        text = f"the share of faults after the walk rises with the pages per fault ({name})"
        findings.claims.append(Claim("Fig 2", text, _rises(shares), _detail(shares), _STAGES, "order"))
    for name in PATTERNS:
        shares = [at[pages, name][WALKS] for pages in PER_FAULT]
        moves, holds = ("rises", _rises(shares)) if name == "sequential" else ("falls", _falls(shares))
        text = f"the share of walks {moves} with the pages per fault ({name})"
        findings.claims.append(Claim("Fig 3", text, holds, _detail(shares), _STAGES, "order"))
    apart = {
        name: [_more(at[pages, "sequential"][WALKS], at[pages, name][WALKS]) for pages in PER_FAULT]
        for name in ("random", "semi-random")
    }
    detail = "; ".join(
        f"{name} {', '.join(f'{points.value:.3f}' for points in of_name)} points more"
        for name, of_name in apart.items()
    )
    text = "walks have a larger share at random and half at random than in sequence"
    larger = all_hold(points.above(0) for of_name in apart.values() for points in of_name)
    findings.claims.append(
        Claim(
            "Fig 3", text, larger, f"{detail}, with {', '.join(map(str, PER_FAULT))} pages per fault", _STAGES, "order"
        )
    )


def _run_times(measured: Measurements, findings: Findings) -> None:
    """§3: the run time, with the guest's pages per fault alone."""
    for name in PATTERNS:
        times = [_time_at_every_cost(measured, name, f"{pages} per fault") for pages in PER_FAULT]
        moves, holds = ("falls", _falls(times)) if name == "sequential" else ("rises", _rises(times))
        values = ", ".join(f"{time[0] / 1e6:,.0f}" for time in times)
        detail = f"{values} M cycles with {', '.join(map(str, PER_FAULT))} pages per fault"
        text = f"the run time {moves} with the pages per fault ({name})"
        findings.claims.append(Claim("§3", text, holds, detail, _STAGES, "order"))


def _host_faults(measured: Measurements, findings: Findings) -> None:
    """The same if the host's faults map several pages, too."""
    cells: dict[tuple[str, str], float] = {}
    for name in SPECS:
        for label in (f"{PER_FAULT[0]} per fault", f"{MOST} per fault", HOST_TOO):
            walks, after, total = _execution(measured, name, label)
            row = f"{name}, {label}"
            cells[row, AFTER], cells[row, WALKS] = 100 * after / total, 100 * walks.cycles / total
            cells[row, "faults of the guest"] = walks.count
            cells[row, "faults of the host"] = measured[name, WITHOUT, label].stats["fault.nested.count"]
            cells[row, "M cycles"] = total / 1e6
    title = "shares of the time with several pages per fault in the guest alone, and in the host, too"
    findings.series.append(Series.from_values("Figs 2, 3", title, "%, counts, M cycles", cells))


def _corrected(measured: Measurements, findings: Findings) -> None:
    """Questions of our own: as many walks as with one page, and extra pages that are never touched."""
    at = {
        (name, pages): _shares_at_every_cost(measured, name, f"{pages} per fault")
        for name in SPECS
        for pages in PER_FAULT
    }
    cells = {
        (f"{name}, {pages} per fault", what): values
        for (name, pages), one in at.items()
        for what, values in one.items()
    }
    title = "shares of the time, with the walks that are made and with as many as with one page per fault"
    findings.series.append(_series("Figs 2, 3", title, cells))
    for name in SPECS:
        shares = [at[name, pages][CORRECTED] for pages in PER_FAULT]
        moves, holds = ("rises", _rises(shares)) if name == "sequential" else ("falls", _falls(shares))
        text = f"with as many walks as with one page, their share {moves} with the pages per fault ({name})"
        findings.claims.append(Claim("Fig 3", text, holds, _detail(shares), _STAGES, "order", ours=True))
    shares = [at[WASTED, pages][AFTER] for pages in PER_FAULT]
    text = f"the share of faults after the walk rises with the pages per fault ({WASTED})"
    findings.claims.append(Claim("Fig 2", text, _rises(shares), _detail(shares), _STAGES, "order", ours=True))


def _index_of_pgds(measured: Measurements, findings: Findings) -> None:
    """§4.2: hits that end at the pgd, if slots are shared by puds, and if each pud has one."""
    cells = {
        (f"{entries} entries", cache): 100 * share
        for entries in (16, SLOTS)
        for cache in (PUBLISHED, BY_PUD)
        for share in (hits_alone(measured["random", cache, f"{entries} entries"]),)
    }
    title = f"look-ups that hit the pgd and nothing below it, {PUDS} GiB"
    findings.series.append(Series.from_values("§4.2", title, "%", cells))
    own, by_pud = (cells[f"{SLOTS} entries", cache] for cache in (PUBLISHED, BY_PUD))
    detail = (
        f"{by_pud:.3f} % of the look-ups hit the pgd alone, {own:.3f} % by its own index; with 16 slots "
        f"{cells['16 entries', BY_PUD]:.1f} %, all by collisions of puds"
    )
    text = (
        "indexed by the pud's offset with a slot for each pud, the caches of pgd and p4d are useless: none hits alone"
    )
    findings.claims.append(Claim("§4.2", text, by_pud == 0, detail, _COUNTED, "size"))


def _loss_of_large_regions(measured: Measurements, findings: Findings) -> None:
    """§5.1: why random accesses gain less in 512 GiB, by the array of the pud alone."""
    saved = {
        (region, place, slots): Saving.between(
            WHOLE,
            Walks.from_measurement(measured["random", WITHOUT, _where(region, place)]),
            Walks.from_measurement(measured["random", WHOLE, _where(region, place, slots)]),
        )
        for place in PLACES
        for region in REGIONS
        for slots in PUD_SLOTS
    }
    cells = {(_where(region, place), slots): one.interval for (region, place, slots), one in saved.items()}
    title = "walk time saved at random by entries of the pud alone, whole prefixes"
    findings.series.append(Series.within("§5.1", title, "%", cells))
    hits = {
        (_where(region, place, slots), level): 100 * run.stats.get(f"stc.hits.{level}", 0) / run.stats["stc.lookups"]
        for region, place, slots in saved
        for run in (measured["random", WHOLE, _where(region, place, slots)],)
        for level in ("pgd", "pud", "pmd")
    }
    findings.series.append(Series.from_values("§5.1", "look-ups that hit, by the deepest level that does", "%", hits))
    small, large = REGIONS
    few, many = PUD_SLOTS
    for place in PLACES:
        lost = saved[small, place, few].beyond(saved[large, place, few])
        regained = saved[large, place, many].beyond(saved[large, place, few])
        half = Saving(tuple(more - less / 2 for more, less in zip(regained.values, lost.values, strict=True)))
        detail = f"{lost.interval} points less with {few}, of which a slot for each pud gives back {regained.interval}"
        holds = half.interval.above(0)
        if holds is None:
            detail += f"; {gains_at([half])}"
        text = f"a slot for each pud gives back more than half of the loss in {large} ({place})"
        findings.claims.append(Claim("§5.1", text, holds, detail, _COSTS, "size", ours=True))


REPRODUCTION = Reproduction(
    name="software-translation-cache-changes",
    title="Software translation caches: one change at a time",
    paper="Michael Wu and Parth A. Patel, Rutgers University",
    machine="kabylake-7700hq",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
