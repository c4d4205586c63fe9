"""What Wu and Patel's paper on software translation caches rejects, or leaves to future work.

Section 4.2 rejects one index for all levels. Section 6 names sizes, associativity and granularity as future work, and a
counter that is sometimes wrong with several threads. The abstract speaks of five accesses, which a table of four levels
does not make. Runs are as in `software_translation_cache`: a guest of one gigabyte per thread, first touches alone.
"""

import math
from collections.abc import Iterator

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.published_rule import Fate, Region, fates, refaults
from pagelab_studies.software_translation_cache import GUEST_ONLY, KERNELS, MEMORY, PAGES, PATTERNS, SIMULATED
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
from pagelab_studies.walk_costs import Saving, Walks

CACHE = "kernel.translation_cache"
ENTRIES = {f"{entries} entries": (f"{CACHE}.entries={entries}",) for entries in (4, 16, 64, 512)}
WAYS = {f"16 entries, {ways} ways": (f"{CACHE}.ways={ways}",) for ways in (2, 4, 8)}
OWNERS = {f"per {owner}": (f"{CACHE}.per={owner}",) for owner in ("vma", "mm", "cpu")}
WITHOUT, WHOLE, PUBLISHED, BY_PUD = "no cache", "whole prefixes", "as published", "pud index"
TWO_THREADS = "2 threads apart"
FIVE = "five levels"
FIVE_LEVELS = ("system.layers.guest.page_table.levels=5",)
LARGE = "64 GiB"
"""Has more entries of the pud than the arrays, which have 16."""
_BY_PUD = {16: "16 entries", 512: "512 entries"}
NO_MORE = 0.1
"""Points of a hit rate that count as no difference."""
_COUNTED = "only counts, of 262,144 first touches at random; brackets: the 95 % interval of a share"
_COSTS = (
    "48 sets of measured costs of a walk's parts, of which a fifth level is one more; the caches of the preset; 16 "
    "entries per level of the translation cache, of which the paper states no number"
)
RULE_THREADS = (1, 2, 4, 8)
REFAULTING = (1, 2, 4)
"""Threads of the model in which instructions fault again; eight take seconds."""
RULE_PAGES = 1 << 16
"""First touches of each thread in the model of the published rule."""
RULE_START = (0x7F12_3456_7000 >> 12) - 8 * PAGES
"""First page of its mapping: below others, as mmap places it, and aligned to pages only."""


def cost(run: Run) -> Cost:
    """What a run takes to make: as the same run of `software_translation_cache`."""
    return Cost(window=5600 if run.label == LARGE else SIMULATED[max(run.accesses // PAGES, 1)])


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    for name in PATTERNS:
        yield _run(name, WITHOUT, "1 thread")
        for label, settings in {**ENTRIES, **WAYS}.items():
            yield _run(name, WHOLE, label, settings)
        for entries, label in _BY_PUD.items():
            yield _run(name, BY_PUD, label, (f'{CACHE}={{"form":"pud-index","entries":{entries}}}',))
            yield _run(name, PUBLISHED, label, (f"{CACHE}.entries={entries}",))
        yield _run(name, WITHOUT, TWO_THREADS, threads=2)
        for label, settings in OWNERS.items():
            yield _run(name, WHOLE, f"{TWO_THREADS}, {label}", settings, threads=2)
        for kernel in (WITHOUT, WHOLE, PUBLISHED):
            yield _run(name, kernel, FIVE, FIVE_LEVELS)
    yield _run("random", PUBLISHED, LARGE, size="64GiB", system="radix")
    yield _run("random", BY_PUD, LARGE, (f'{CACHE}={{"form":"pud-index"}}',), size="64GiB", system="radix")


def _run(
    workload: str,
    cache: str,
    label: str,
    settings: tuple[str, ...] = (),
    *,
    system: str = "nested-radix-cold",
    size: str = "1GiB",
    threads: int = 1,
) -> Run:
    preset, usual = KERNELS[PUBLISHED if cache == BY_PUD else cache]
    guest_only = (GUEST_ONLY,) if system.startswith("nested") else ()
    apart = ",regions=apart" if threads > 1 else ""
    cpus = f"0-{threads - 1}" if threads > 1 else "0"
    spec = f"{PATTERNS[workload].format(size=size)},threads={threads}{apart},accesses={{accesses}}@{cpus}"
    every = (MEMORY, *guest_only, *usual, *settings)
    return Run(workload, spec, cache, f"{system}@{preset}", PAGES * threads, 0, every, label)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    sections = (_sizes, _owners, _index_of_pmds, _index_of_pgds, _five_levels, _counters)
    findings = by_sections(measured, sections)
    findings.notes += [
        "Cycles and brackets are those of the study `software-translation-cache`: 48 sets of measured costs.",
        "Sizes, ways and owners are those of whole prefixes, the correct form.",
    ]
    return findings


def _saved(measured: Measurements, name: str, cache: str, label: str, without: str, levels: int = 4) -> Saving:
    before, after = (
        Walks.from_measurement(measured[name, WITHOUT, without]),
        Walks.from_measurement(measured[name, cache, label]),
    )
    return Saving.between(cache, before, after, further_levels=levels - 4)


def _sizes(measured: Measurements, findings: Findings) -> None:
    for title, labels in (("entries per level", ENTRIES), ("ways", {"16 entries": (), **WAYS})):
        cells = {
            (label, name): _saved(measured, name, WHOLE, label, "1 thread").interval
            for label in labels
            for name in PATTERNS
        }
        findings.series.append(
            Series.within("§6", f"walk time saved by {title}, one thread", "%", cells, labels, PATTERNS)
        )


def _owners(measured: Measurements, findings: Findings) -> None:
    labels = {label: f"{TWO_THREADS}, {label}" for label in OWNERS}
    cells = {
        (text, name): _saved(measured, name, WHOLE, label, TWO_THREADS).interval
        for text, label in labels.items()
        for name in PATTERNS
    }
    title = "walk time saved by what has a cache of its own, two threads with a mapping each"
    findings.series.append(Series.within("§6", title, "%", cells, labels, PATTERNS))


def _share(count: int, total: int) -> Interval:
    """Per cent, with the 95 % interval of a share of N independent cases."""
    share = count / total
    margin = 1.96 * math.sqrt(share * (1 - share) / total)
    return Interval(100 * (share - margin), 100 * share, 100 * (share + margin))


def _hits(measurement: Measurement, level: str) -> int:
    return measurement.stats.get(f"stc.hits.{level}", 0)


def hits_alone(measurement: Measurement) -> float:
    """The part of the look-ups that hit the pgd and nothing below it."""
    return _hits(measurement, "pgd") / measurement.stats["stc.lookups"]


def _index_of_pmds(measured: Measurements, findings: Findings) -> None:
    cells = {
        (f"{name}, {label}", cache): _share(_hits(run, "pmd"), run.stats["stc.lookups"])
        for name in PATTERNS
        for label in _BY_PUD.values()
        for cache in (PUBLISHED, BY_PUD)
        for run in (measured[name, cache, label],)
    }
    title = "look-ups that hit the pmd, by its own index and by that of the pud"
    findings.series.append(Series.within("§4.2", title, "%", cells))
    few, many = (cells[f"random, {label}", BY_PUD] for label in _BY_PUD.values())
    own_few, own_many = (cells[f"random, {label}", PUBLISHED] for label in _BY_PUD.values())
    detail = f"random: {few} % with 16 and {many} % with 512 entries; by its own index {own_few} and {own_many} %"
    text = "indexed by the pud's offset, the pmd cache is one entry for each pud: more entries give no more hits"
    alike = many.minus(few).within(-NO_MORE, NO_MORE)
    rests_on = f"{_COUNTED}; a difference of up to {NO_MORE:g} points counts as none"
    findings.claims.append(
        Claim("§4.2", text, all_hold((alike, own_many.minus(own_few).above(0))), detail, rests_on, "order")
    )


def _index_of_pgds(measured: Measurements, findings: Findings) -> None:
    missed, counts = {}, {}
    for cache in (PUBLISHED, BY_PUD):
        run = measured["random", cache, LARGE]
        hits = sum(_hits(run, level) for level in ("pgd", "p4d", "pud", "pmd"))
        counts[cache] = run.stats["stc.lookups"] - hits
        missed[cache] = _share(counts[cache], run.stats["stc.lookups"])
    detail = (
        f"{counts[BY_PUD]} look-ups miss even the pgd in {LARGE}, {missed[BY_PUD].value:.3f} %; {counts[PUBLISHED]} by "
        "its own index. All slots have the tag of the same pgd, so only the first use of a slot misses"
    )
    text = "indexed by the pud's offset, with 16 slots in which 64 puds collide: over half of the look-ups miss the pgd"
    findings.claims.append(Claim("§4.2", text, missed[BY_PUD].above(50), detail, _COUNTED, "size", ours=True))


def _five_levels(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    more = []
    for name in PATTERNS:
        for cache in (WHOLE, PUBLISHED):
            five = _saved(measured, name, cache, FIVE, FIVE, 5)
            four = _saved(measured, name, cache, "16 entries", "1 thread")
            cells |= {(f"{name}, five levels", cache): five.interval, (f"{name}, four levels", cache): four.interval}
            if cache == WHOLE:
                more.append((name, five.minus(four)))
    findings.series.append(Series.within("abstract", "walk time saved with five and four levels", "%", cells))
    detail = ", ".join(f"{name} {points} points" for name, points in more)
    text = "with five levels of tables a cache saves a larger share of a walk (whole prefixes)"
    holds = all_hold(points.above(0) for _, points in more)
    findings.claims.append(Claim("abstract", text, holds, detail, _COSTS, "order", ours=True))


def _counters(_: Measurements, findings: Findings) -> None:
    """What the published rule would do to page tables, by a model of the rule alone."""
    cells: dict[tuple[str, str], float] = {}
    lost = 0
    for threads in RULE_THREADS:
        counts = fates(Region(RULE_START, PAGES * threads), threads, RULE_PAGES)
        cells |= {(f"{threads} threads", fate.value): 1e6 * counts[fate] / counts.total() for fate in Fate}
        lost += counts[Fate.OUTSIDE]
    title = "first touches at random if the kernel continues from wrong entries, threads' regions in one mapping"
    findings.series.append(Series.from_values("§6", title, "of a million", cells))
    again = {threads: refaults(Region(RULE_START, PAGES * threads), threads, RULE_PAGES) for threads in REFAULTING}
    repeated = {
        (f"{threads} threads", name): value
        for threads, one in again.items()
        for name, value in (
            ("touches that end", float(one.done)),
            ("faults", float(one.faults)),
            ("pages mapped at another address", float(one.misplaced)),
            ("hangs (1: yes)", float(one.hangs)),
        )
    }
    title = "the same touches if an instruction faults again until its page is mapped"
    findings.series.append(Series.from_values("§6", title, "counts", repeated))
    findings.notes.append(
        "A wrong entry of the pmd stays until another fault takes its slot. An instruction whose page was mapped "
        "elsewhere faults again, finds the same entry and a page in its place, and so on. With 1, 2 and 4 threads this "
        f"ends with all threads in such a loop, after {', '.join(str(one.done) for one in again.values())} touches. "
        "The paper reports no loop, so its kernel did not do exactly this, or its region was aligned."
    )
    findings.notes.append(
        "The paper's resident-set counter is sometimes wrong with several threads. The table of §6 shows one way: a "
        "wrong entry of the pmd leads to another page's place. If that place is empty, the page is counted and mapped "
        "at another address. At the ends of a mapping that is not aligned to 2 MiB, the place may belong to no "
        f"mapping: here {lost} touches in all. Nothing unmaps such a page, so the counter is not zero when the process "
        "ends. With one thread and an aligned gigabyte nothing is wrong. This is a model of the rule, not of the "
        "paper's kernel: what went wrong there is not known."
    )


REPRODUCTION = Reproduction(
    name="software-translation-cache-variants",
    title="Software translation caches: what the paper rejects or leaves open",
    paper="Michael Wu and Parth A. Patel, Rutgers University",
    machine="kabylake-7700hq",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
