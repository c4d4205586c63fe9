"""What figures of `software_translation_cache` rest on, by one change at a time.

There two and four threads run on CPUs that are siblings of a core, all runs have 24 GiB of memory, and a fault that
maps several pages makes one walk for them, of which most are touched later. Here threads have cores of their own, the
machine has the paper's 8 GB, and most of the extra pages of a fault are never touched. Eight threads run under locks
that leave `mm->pgd` in a line which faults only read. Threads touch a quarter of the pages that they touch there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pagelab_studies.software_translation_cache import (
    GUEST_ONLY,
    KERNELS,
    MEMORY,
    PAGES,
    PATTERNS,
    SIMULATED,
    SIMULATED_REGIONS,
)
from pagelab_studies.software_translation_cache_variants import BY_PUD, PUBLISHED, hits_alone
from pagelab_studies.study import BUSY, Claim, Cost, Findings, Measurements, Reproduction, Run, Series, by_sections
from pagelab_studies.walk_costs import Saving, Walks

WITHOUT = "no cache"
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
PER_FAULT = (1, 4, 16)
WASTED = "random, most extra pages unused"
SPECS = {
    "sequential": f"seq:size=1GiB,step=4096,write=1,accesses={TOUCHES}@0",
    WASTED: f"random:size=16GiB,granularity=4096,write=1,accesses={TOUCHES}@0",
}
PUDS = 64
"""Entries of the pud that 64 GiB have, or one more if they are not aligned."""
SLOTS = 2 * PUDS
"""Enough for each of them."""
_COSTS = "48 sets of measured costs of a walk's parts; the caches of the preset"
_STAGES = (
    "the costs of all stages of a fault, of which only the sum is anchored; one walk serves all pages of a fault, and "
    "the paper's share is computed with as many walks as with one page per fault"
)
_COUNTED = "only counts, of 65,536 first touches at random"


def cost(run: Run) -> Cost:
    """What a run takes to make, as those of `software_translation_cache`."""
    if run.preset.startswith("radix@"):
        return Cost(window=SIMULATED_REGIONS["64 GiB"])
    return Cost(window=SIMULATED.get(run.accesses // TOUCHES, SIMULATED[1]))


def runs() -> list[Run]:
    """All runs."""
    return [*_cores(), *_locks(), *_hosts(), *_pages_per_fault(), *_index()]


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
        for pages in PER_FAULT:
            yield Run(
                name,
                spec,
                WITHOUT,
                f"nested-radix-cold@{preset}",
                TOUCHES,
                settings=(MEMORY, GUEST_ONLY, *usual, f"kernel.pages_per_fault={pages}"),
                label=f"{pages} per fault",
                least_accesses=TOUCHES,
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


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_by_core, _by_lock, _by_host, _shares, _index_of_pgds))
    findings.notes += [
        f"Windows of {TOUCHES:,} accesses per thread, a quarter of those of `software-translation-cache`, and "
        f"{LOCKED_TOUCHES:,} of eight threads; each table has the run without the change.",
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


def _shares(measured: Measurements, findings: Findings) -> None:
    """Figs 2 and 3, as simulated and with as many walks as with one page per fault."""
    cells: dict[tuple[str, str], float] = {}
    for name in SPECS:
        runs_of = {pages: measured[name, WITHOUT, f"{pages} per fault"].stats for pages in PER_FAULT}
        walks_of_one = runs_of[1]["fault.before_pte.cycles"]
        for pages, stats in runs_of.items():
            total = sum(stats.get(f"cycles.{kind}", 0) for kind in BUSY)
            walks = stats["fault.before_pte.cycles"]
            row = f"{name}, {pages} per fault"
            cells[row, "faults"] = 100 * (stats["fault.handling.cycles"] - walks) / total
            cells[row, "walks"] = 100 * walks / total
            cells[row, "walks, as many as with one"] = 100 * walks_of_one / (total - walks + walks_of_one)
            cells[row, "faults per touch"] = stats["fault.walk.count"] / TOUCHES
            cells[row, "M cycles"] = total / 1e6
    title = "shares of the time: faults after the walk, and walks, by pages per fault"
    findings.series.append(Series.from_values("Figs 2, 3", title, "%, faults, M cycles", cells))
    first, last = PER_FAULT[0], PER_FAULT[-1]

    def rise(name: str, member: str) -> float:
        return cells[f"{name}, {last} per fault", member] - cells[f"{name}, {first} per fault", member]

    for name, text, holds in (
        ("sequential", "rises in sequence", rise("sequential", "walks, as many as with one") > 0),
        (WASTED, "falls at random", rise(WASTED, "walks, as many as with one") < 0),
    ):
        ends = [cells[f"{name}, {pages} per fault", "walks, as many as with one"] for pages in (first, last)]
        detail = f"{ends[0]:.2g} % with {first} page per fault, {ends[1]:.2g} % with {last}"
        text = f"the share of walks {text} with the pages per fault, with as many walks as with one page"
        findings.claims.append(Claim("Fig 3", text, holds, detail, _STAGES, "order"))
    for name in SPECS:
        ends = [cells[f"{name}, {pages} per fault", "faults"] for pages in (first, last)]
        detail = f"{ends[0]:.3g} % with {first} page per fault, {ends[1]:.3g} % with {last}"
        text = f"the share of faults, without their walks, rises with the pages per fault ({name})"
        findings.claims.append(Claim("Fig 2", text, rise(name, "faults") > 0, detail, _STAGES, "order"))


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


REPRODUCTION = Reproduction(
    name="software-translation-cache-changes",
    title="Software translation caches: one change at a time",
    paper="Michael Wu and Parth A. Patel, Rutgers University",
    machine="kabylake-7700hq",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
