"""Wu and Patel, "Accelerating Fault-Triggered Page Table Walks Using Software Translation Caches", Rutgers University.

The paper patches Linux 4.19.80 in a virtual machine of a 4-core i7-7700HQ. It times `__handle_mm_fault` from its entry
to its call of `handle_pte_fault`, and to its end. Here a guest's kernel of that version does the same in simulation:
without a cache, with the correct one (whole prefixes as tags), with the published rule, and with hardware that tells
the handler where it stopped. The host's kernel has no cache. The programs touch memory that nobody has touched before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import (
    Claim,
    Comparison,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)
from pagelab_studies.walk_costs import TIMED, Saving, Walks, gains_at

PAGES = 1 << 18
"""Of 1 GiB, and the shortest window that a study measures."""
THREADS = (1, 2, 4, 8)
ALONE = "1 threads"
"""Label of the runs of a pattern by one thread in a guest."""
PATTERNS = {
    "sequential": "seq:size={size},step=4096,write=1",
    "semi-random": "semirandom:size={size},write=1",
    "random": "random:size={size},granularity=4096,write=1",
}
GUEST_ONLY = "system.layers.host.translation_cache=off"
KERNELS = {
    "no cache": ("linux-4.19-stc", ("kernel.translation_cache=null",)),
    "whole prefixes": ("linux-4.19-stc", ()),
    "as published": ("linux-4.19-stc-as-published", ()),
    "mmu-assisted": ("linux-4.19-stc", ('kernel.translation_cache={"form":"mmu-assisted"}',)),
}
CACHES = tuple(name for name in KERNELS if name != "no cache")
ARRAYS = ("whole prefixes", "as published")
"""The caches whose costs are measured."""
MATRICES = (100, 200, 400, 1000)
REGIONS = (1, 2, 4, 8, 64, 512)
ENTRIES = (4, 16, 64, 512)
BETWEEN = {"0": 0, "4 KiB": 4 << 10, "32 KiB": 32 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20}
MOST_BETWEEN = 1 << 24
"""Accesses of a run that touches other data between faults; it has fewer faults the more it touches."""
MEMORY = "machine.memory_bytes=24GiB"


@dataclass(frozen=True)
class Experiment:
    """A run that differs from one of the paper's in one thing, to see what a figure rests on."""

    workload: str
    base_label: str
    """Label of the run that it differs from."""
    threads: int = 1
    regions: str = ""
    size: str = "1GiB"
    settings: tuple[str, ...] = ()
    of_cache: tuple[str, ...] = ()
    """Settings of the translation cache."""


_EIGHT_CORES = ("machine.cores=8", "machine.threads_per_core=1")
EXPERIMENTS = {
    "one cache per CPU": Experiment("sequential", "8 threads", 8, of_cache=("kernel.translation_cache.per=cpu",)),
    "eight ways": Experiment("sequential", "8 threads", 8, of_cache=("kernel.translation_cache.ways=8",)),
    "eight cores": Experiment("sequential", "8 threads apart", 8, ",regions=apart", settings=_EIGHT_CORES),
    "eight cores, L3 not inclusive": Experiment(
        "sequential",
        "8 threads apart",
        8,
        ",regions=apart",
        settings=(*_EIGHT_CORES, "machine.cache.l3.inclusion=non-inclusive"),
    ),
    "eight cores, L3 of 48 MiB": Experiment(
        "sequential",
        "8 threads apart",
        8,
        ",regions=apart",
        settings=(*_EIGHT_CORES, "machine.cache.l3.size_bytes=48MiB"),
    ),
    "32 MiB": Experiment("random", ALONE, size="32MiB"),
    "room for all pmds (512 entries)": Experiment("random", ALONE, of_cache=("kernel.translation_cache.entries=512",)),
    "room for all pmds, kernel data always in L1": Experiment(
        "random",
        ALONE,
        settings=("engine.kernel_refs=off",),
        of_cache=("kernel.translation_cache.entries=512",),
    ),
}
_HOST_2M = "system.layers.host.page_size=2M"
_L3_24M = "machine.cache.l3.size_bytes=24MiB"
OF_PRODUCT = {"": (), "host 2 MiB": (_HOST_2M,), "L3 24 MiB": (_L3_24M,), "both": (_HOST_2M, _L3_24M)}
"""Settings of the products of the largest matrices."""
LARGEST = 1000
# What verdicts rest on.
_COSTS = (
    "the costs of walk, root, level, look-up and fill, in 48 sets from replicas in user space, on three other "
    "processors than the paper's, with fills in the timed interval or after it; the caches of the preset; 16 entries "
    "per level of the translation cache, of which the paper states no number"
)
_ONE_THREAD = f"{_COSTS}; the replicas' measurements of the whole pattern"
_LINES = f"{_COSTS}; lines of one cache move between cores as the preset's coherence says, and a fill waits for them"
_SIBLINGS = (
    "the paper's text names one and eight threads only; two and four run on siblings of one and two cores; for cores "
    "of their own see software-translation-cache-changes"
)
_FALSE = "the paper's kernel uses wrong hits and the simulator does not, so its gain and its errors are not simulated"
_SIZES = f"{_COSTS}; the size of the host's pages and of the L3 cache, which the paper does not state"
_COUNTED = "only counts, with 16 entries per level; the paper states no number"
PUBLISHED_SHARES = (8.0, 10.0)
"""Per cent of the faults' time that walks take at all sizes of matrices, in Fig 4."""
TIMER = 46.0
"""Cycles of a fenced reading of the time-stamp counter before an interval and one behind it, measured (44 to 75)."""


# What an access takes to simulate, in nanoseconds; most of them fault. Measured as `study.Cost` says, at a quarter of
# the window, under whole prefixes: by threads in a virtual machine, on bare metal, and there by the size of the region
# (2 and 4 GiB as 8).
SIMULATED = {1: 4600, 2: 6100, 4: 10_400, 8: 12_500}
SIMULATED_BARE = 2300
SIMULATED_REGIONS = {"1 GiB": 2200, "2 GiB": 3600, "4 GiB": 3600, "8 GiB": 3600, "64 GiB": 5600, "512 GiB": 12_400}


def cost(run: Run) -> Cost:
    """What a run takes to make."""
    if run.workload == "matmul":
        return Cost(window=40)
    if run.label.endswith("between"):
        # Most accesses are to the other data.
        return Cost(window=110, warm_up=300) if run.label.startswith("4 KiB") else Cost(window=30, warm_up=80)
    if run.label == "32 MiB":
        return Cost(window=460)
    if run.preset.startswith("radix@"):
        return Cost(SIMULATED_REGIONS.get(run.label, SIMULATED_BARE))
    return Cost(SIMULATED[run.accesses // PAGES])


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    for name, pattern in PATTERNS.items():
        for threads in THREADS:
            for kernel in KERNELS if threads == 1 else ("no cache", *ARRAYS):
                yield _run(name, f"{pattern},threads={threads}", kernel, f"{threads} threads", threads=threads)
                if threads > 1:
                    spec = f"{pattern},threads={threads},regions=apart"
                    yield _run(name, spec, kernel, f"{threads} threads apart", threads=threads)
        for kernel in KERNELS:
            yield _run(name, pattern, kernel, "bare metal", system="radix")
        for label, between in list(BETWEEN.items())[1:]:
            for kernel in ("no cache", *ARRAYS):
                yield _run_between(name, pattern, kernel, label, between)
    for entries in ENTRIES:
        size = (f"kernel.translation_cache.entries={entries}",)
        for name in ("random", "semi-random"):
            yield _run(name, PATTERNS[name], "whole prefixes", f"{entries} entries", size)
    for region in REGIONS:
        for kernel in KERNELS:
            # On bare metal, where the size of the guest's memory does not matter.
            yield _run("random", PATTERNS["random"], kernel, f"{region} GiB", size=f"{region}GiB", system="radix")
    for label, experiment in EXPERIMENTS.items():
        for kernel in ("no cache", *ARRAYS):
            spec = f"{PATTERNS[experiment.workload]},threads={experiment.threads}{experiment.regions}"
            settings = (*experiment.settings, *(experiment.of_cache if kernel != "no cache" else ()))
            yield _run(
                experiment.workload, spec, kernel, label, settings, size=experiment.size, threads=experiment.threads
            )
    for kernel in ("no cache", *ARRAYS):
        yield _run("random", PATTERNS["random"], kernel, "512 GiB, virtual", size="512GiB")
    for n in MATRICES:
        for name, more in OF_PRODUCT.items() if n == LARGEST else [("", ())]:
            for kernel in ("no cache", *ARRAYS):
                yield from _products(n, kernel, name, more)


_whole = partial(Run, in_parts=False)
"""Figures are of whole windows: what varies is the costs."""


def _products(n: int, kernel: str, name: str, more: tuple[str, ...]) -> Iterator[Run]:
    """A product of matrices, whatever the scale, and what comes before it, whose faults are not the product's."""
    preset, settings = _kernel(kernel, "nested-radix-cold", more)
    begun = 2 * n**2
    product = 2 * n**3 + n**2
    label = f"{n} {name}".strip()
    # The workload counts its accesses after the initialisation.
    spec = f"matmul:n={n},init=yes,accesses={product}@0"
    yield _whole("matmul", spec, kernel, preset, begun + product, 0, settings, label)
    spec = f"matmul:n={n},init=yes,accesses=1@0"
    yield _whole("matmul", spec, kernel, preset, begun + 1, 0, settings, f"{label} initialisation")


def _kernel(kernel: str, system: str, settings: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    preset, more = KERNELS[kernel]
    guest_only = (GUEST_ONLY,) if system.startswith("nested") else ()
    return f"{system}@{preset}", (MEMORY, *guest_only, *more, *settings)


def _run(
    workload: str,
    spec: str,
    kernel: str,
    label: str,
    settings: tuple[str, ...] = (),
    system: str = "nested-radix-cold",
    size: str = "1GiB",
    threads: int = 1,
) -> Run:
    preset, more = _kernel(kernel, system, settings)
    cpus = f"0-{threads - 1}" if threads > 1 else "0"
    spec = f"{spec.format(size=size)},accesses={{accesses}}@{cpus}"
    return _whole(workload, spec, kernel, preset, PAGES * threads, 0, more, label)


def _run_between(workload: str, pattern: str, kernel: str, label: str, between: int) -> Run:
    preset, settings = _kernel(kernel, "nested-radix-cold")
    spec = f"{pattern.format(size='1GiB')},between={between},accesses={{total}}@0"
    accesses = min(PAGES * (1 + between // 64), MOST_BETWEEN)
    # Before the window the other data's own pages are touched.
    return _whole(workload, spec, kernel, preset, accesses, 1 << 17, settings, f"{label} between")


def _before_pte(measurement: Measurement) -> float:
    """Cycles of a walk of the guest's kernel, from entry to the PTE."""
    return measurement.stats["fault.before_pte.cycles"] / measurement.stats["fault.walk.count"]


def _saved(measured: Measurements, workload: str, kernel: str, label: str, timer: float = 0.0) -> Saving:
    before, after = (Walks.from_measurement(measured[workload, which, label]) for which in ("no cache", kernel))
    timed = TIMED.get((workload, kernel), ()) if label == ALONE and not timer else ()
    return Saving.between(kernel, before, after, timer, timed)


def _by_one(measured: Measurements, kernel: str) -> dict[str, Saving]:
    """What each pattern saves by one thread."""
    return {name: _saved(measured, name, kernel, ALONE) for name in PATTERNS}


def _product(measured: Measurements, kernel: str, label: str) -> Walks:
    """Walks of the faults of a product alone, as far as it was run."""
    whole, begun = (measured["matmul", kernel, which] for which in (label, f"{label} initialisation"))
    return Walks.from_measurement(whole).plus(Walks.from_measurement(begun), -1)


def _all_walks(measured: Measurements, kernel: str, n: str) -> Walks:
    """Walks of the initialisation and of the whole product."""
    begun = Walks.from_measurement(measured["matmul", kernel, f"{n} initialisation"])
    return begun.plus(_product(measured, kernel, n))


def _false(measurement: Measurement) -> float:
    """Per cent of the hits of pmds that were another address's."""
    hits = measurement.stats["stc.hits.pmd"]
    return 100 * measurement.stats["stc.false_hits.pmd"] / hits if hits else 0.0


def evaluate(measured: Measurements) -> Findings:
    sections = (_patterns, _threads, _experiments, _between, _matrices, _all_tests, _regions, _virtual_regions)
    findings = by_sections(measured, sections)
    findings.notes += [
        "A walk is what the guest's kernel spends from the entry of `__handle_mm_fault` to `handle_pte_fault`: "
        "look-up, `mm->pgd`, entries of pgd, pud and pmd, fills, tables of pud and pmd.",
        "The timer's own time is excluded, unless a title says otherwise. A fenced reading before and one after "
        "take 46 cycles. The paper does not say which timer it uses, and whether it subtracts the timer's time.",
        "Brackets span 48 sets of measured costs (a replica of the walk on three server processors, two ways to "
        "compile the handler), each with fills in the timed interval and after it: the paper's timer stops before "
        "`handle_pte_fault`, and its cache is filled when the walk is complete, which fits both. Those of the patterns "
        "by one thread in a guest, without a timer, also span the replicas' measurements of the whole pattern. They do "
        "not say how much a replica in user space differs from a kernel, or those processors from the paper's.",
        "The guest's kernel has the cache, the host's has none. What the host does about a guest's fault is not "
        "in the walk.",
        "As published: wrong hits are counted, and the walk is made from the root in addition to the look-up. What "
        "the rule would save by continuing from wrong entries is not counted.",
        "Arrays are touched by stores, once per page where the pattern allows, in windows of 262,144 accesses per "
        "thread. As in the paper's program nothing else is touched between two faults, unless a title says otherwise.",
        "The threads' regions are adjacent, so the kernel merges them into one mapping, with one cache. Separate "
        "mappings have a cache each.",
        "Matrices: both factors are written first, and products run to their end.",
        "Caches have 16 entries per level unless a title says otherwise. The paper states no number.",
        "Figs 2 and 3 are in the study `software-translation-cache-changes`.",
    ]
    return findings


def _compare(figure: str, item: str, paper: float, saving: Saving, reason: str = "", ranked: str = "") -> Comparison:
    quantity, ours = "walk time saved", saving.interval
    if ours.above(0) is None:
        reason = "; ".join(part for part in (reason, f"a gain: {gains_at([saving])}") if part)
    return Comparison(figure, item, quantity, "%", paper, ours.value, reason, ours, neutral=0.0, ranked=ranked)


def _not_judged(row: Comparison) -> Comparison:
    """A figure of the paper's kernel that goes on from wrong entries, which is not simulated."""
    return replace(row, paper=None, without=f"{row.paper:g} {row.unit}, not judged: wrong hits are not simulated")


def _unless_decided(verdict: bool | None, detail: str, *savings: Saving) -> str:
    """What was measured, and where the costs decide what all of them together do not."""
    return detail if verdict is not None else f"{detail}; {gains_at(savings)}"


def _within(
    figure: str,
    title: str,
    cells: dict[tuple[str, str], Saving],
    groups: Iterable[str] | None = None,
    members: Iterable[str] | None = None,
) -> Series:
    return Series.within(figure, title, "%", {key: saving.interval for key, saving in cells.items()}, groups, members)


def _patterns(measured: Measurements, findings: Findings) -> None:
    one, correct = (_by_one(measured, kernel) for kernel in ("as published", "whole prefixes"))
    for name, paper in (("sequential", 20.0), ("semi-random", 19.0), ("random", 15.0)):
        reason = "20 less about one point" if name == "semi-random" else ""
        findings.comparisons.append(_compare("§5.1", f"{name}, 1 thread", paper, one[name], reason, "one thread"))
    for form, saved in (("as published", one), ("whole prefixes", correct)):
        detail = ", ".join(f"{name} {saving.interval} %" for name, saving in saved.items())
        gains = all_hold(saving.interval.above(0) for saving in saved.values())
        detail = _unless_decided(gains, detail, *saved.values())
        findings.claims.append(Claim("§5.1", f"all three patterns gain ({form})", gains, detail, _ONE_THREAD))
    orders = [one["sequential"].minus(one["semi-random"]), one["semi-random"].minus(one["random"])]
    detail = ", ".join(f"{name} {saving.interval.value:.1f} %" for name, saving in one.items())
    detail += f"; differences at the same costs {orders[0]} and {orders[1]} points"
    order = all_hold(difference.above(0) for difference in orders)
    findings.claims.append(
        Claim("§5.1", "sequential accesses gain most, random ones least", order, detail, _COSTS, "order")
    )
    for timer, text in ((0.0, "net"), (TIMER, f"with a timer of {TIMER:.0f} cycles in the interval")):
        cells = {(name, kernel): _saved(measured, name, kernel, ALONE, timer) for name in PATTERNS for kernel in CACHES}
        findings.series.append(_within("Fig 6", f"walk time saved by one thread, {text}", cells, PATTERNS, CACHES))
    cells = {(name, kernel): _saved(measured, name, kernel, "bare metal") for name in PATTERNS for kernel in CACHES}
    findings.series.append(_within("beyond", "walk time saved by one thread on bare metal", cells, PATTERNS, CACHES))
    walks = {(name, kernel): _before_pte(measured[name, kernel, ALONE]) for name in PATTERNS for kernel in KERNELS}
    title = "walks by one thread"
    findings.series.append(Series("beyond", title, "cycles", tuple(PATTERNS), tuple(KERNELS), walks))
    sizes = tuple(f"{entries} entries" for entries in ENTRIES)
    cells = {
        (label, name): Saving.between(
            "whole prefixes",
            Walks.from_measurement(measured[name, "no cache", ALONE]),
            Walks.from_measurement(measured[name, "whole prefixes", label]),
        )
        for label in sizes
        for name in ("semi-random", "random")
    }
    title = "walk time saved by the cache's size, whole prefixes"
    findings.series.append(_within("beyond", title, cells, sizes, ("semi-random", "random")))


def _by_threads(regions: str) -> tuple[str, ...]:
    return tuple(f"{threads} threads{regions if threads > 1 else ''}" for threads in THREADS)


def each_doubling(saved: Mapping[str, Sequence[Saving]]) -> tuple[bool | None, str]:
    """Whether each pattern gains more by each doubling of the threads, from one on, and what was measured."""
    steps = {name: [more.beyond(fewer) for fewer, more in pairwise(by_threads)] for name, by_threads in saved.items()}
    parts = [
        f"{name} {', '.join(f'{one.interval.value:.1f}' for one in saved[name])} %, steps of "
        f"{', '.join(str(step.interval) for step in known)} points"
        for name, known in steps.items()
    ]
    counts = ", ".join(map(str, THREADS[: len(next(iter(saved.values())))]))
    rising = all_hold(step.interval.above(0) for known in steps.values() for step in known)
    return rising, f"with {counts} threads: {'; '.join(parts)}"


def _most_threads(saved: Mapping[str, Sequence[Saving]]) -> tuple[bool | None, str]:
    """Whether each pattern gains more by the most threads than by one, and what was measured."""
    more = {name: most.beyond(one) for name, (one, *_, most) in saved.items()}
    rising = all_hold(points.interval.above(0) for points in more.values())
    detail = "; ".join(
        f"{name} {saved[name][0].interval.value:.1f} and {saved[name][-1].interval.value:.1f} %, at the same costs "
        f"{points.interval} points more"
        for name, points in more.items()
    )
    return rising, _unless_decided(rising, detail, *more.values())


def _threads(measured: Measurements, findings: Findings) -> None:
    for name, paper in (("sequential", 28.0), ("semi-random", 28.0), ("random", 22.0)):
        for regions in ("", " apart"):
            ours = _saved(measured, name, "as published", f"8 threads{regions}")
            false = _false(measured[name, "as published", f"8 threads{regions}"])
            reason = "a cache for each thread's region" if regions else "one cache for all threads' regions"
            reason += f"; {false:.0f} % of pmd hits false, followed by full walks" if false else ""
            row = _compare("§5.2", f"{name}, 8 threads{regions}", paper, ours, reason, f"8 threads{regions}")
            findings.comparisons.append(_not_judged(row) if false else row)
    for regions, text in (("", "regions in one mapping"), (" apart", "regions in separate mappings")):
        for form in ARRAYS:
            labels = _by_threads(regions)
            cells = {(label, name): _saved(measured, name, form, label) for label in labels for name in PATTERNS}
            findings.series.append(
                _within("Fig 6", f"walk time saved by threads, {text}, {form}", cells, labels, PATTERNS)
            )
            by_threads = {name: [cells[label, name] for label in labels] for name in PATTERNS}
            for judge, statement, rests_on, asked in (
                (_most_threads, "eight threads gain more than one", _LINES, False),
                (each_doubling, "each doubling of the threads gains more", f"{_LINES}; {_SIBLINGS}", True),
            ):
                rising, detail = judge(by_threads)
                if form == "as published" and not regions:
                    shares = ", ".join(f"{name} {_false(measured[name, form, labels[-1]]):.0f}" for name in PATTERNS)
                    detail += f"; per cent of pmd hits that are false: {shares}"
                    rising, rests_on = None, _FALSE
                where = f"{text} ({form})"
                findings.claims.append(Claim("§5.2", f"{statement}, {where}", rising, detail, rests_on, "order", asked))
    shares_by = {
        (label, name): _false(measured[name, "as published", label]) for label in _by_threads("") for name in PATTERNS
    }
    title = "wrong pmd hits by the published rule, threads' regions in one mapping"
    findings.series.append(Series("beyond", title, "% of them", _by_threads(""), tuple(PATTERNS), shares_by))


def _experiments(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Saving] = {}
    groups: list[str] = []
    for label, experiment in EXPERIMENTS.items():
        usual = f"{experiment.workload}, {experiment.base_label}"
        for text, which in ((usual, experiment.base_label), (f"{usual}: {label}", label)):
            if text not in groups:
                groups.append(text)
            cells |= {(text, form): _saved(measured, experiment.workload, form, which) for form in ARRAYS}
    title = "walk time saved, with one thing changed per row"
    findings.series.append(_within("beyond", title, cells, groups, ARRAYS))


def _between(measured: Measurements, findings: Findings) -> None:
    labels = {text: f"{text} between" if between else ALONE for text, between in BETWEEN.items()}
    for form in ARRAYS:
        cells = {
            (text, name): _saved(measured, name, form, label) for text, label in labels.items() for name in PATTERNS
        }
        title = f"walk time saved with other data touched between faults, {form}"
        findings.series.append(_within("beyond", title, cells, labels, PATTERNS))
    walks = {
        (text, name): _before_pte(measured[name, "no cache", label])
        for text, label in labels.items()
        for name in PATTERNS
    }
    title = "walks without a cache, with other data touched between faults"
    findings.series.append(Series("beyond", title, "cycles", tuple(labels), tuple(PATTERNS), walks))


def _matrices(measured: Measurements, findings: Findings) -> None:
    sizes = tuple(str(n) for n in MATRICES)
    _matrix_shares(measured, findings, sizes)
    everything = {
        (n, kernel): Saving.between(kernel, _all_walks(measured, "no cache", n), _all_walks(measured, kernel, n))
        for n in sizes
        for kernel in ARRAYS
    }
    labels = (*sizes, *(f"{LARGEST} {name}" for name in OF_PRODUCT if name))
    of_product = {
        (n, kernel): Saving.between(kernel, _product(measured, "no cache", n), _product(measured, kernel, n))
        for n in labels
        for kernel in ARRAYS
    }
    findings.series.append(_within("Fig 7", "walk time saved, matmul, all faults", everything, sizes, ARRAYS))
    findings.series.append(
        _within("Fig 7", "walk time saved, matmul, faults of the product", of_product, labels, ARRAYS)
    )
    title = "walks without a cache, matmul, faults of the product"
    without = {n: _product(measured, "no cache", n) for n in labels}
    walks = {(n, "cycles"): product.cycles / product.count for n, product in without.items()}
    findings.series.append(Series("beyond", title, "cycles", labels, ("cycles",), walks))
    for n, paper in (("100", 30.0), ("1000", 37.0)):
        for text, cells, walks_for in (("all faults", everything, _all_walks), ("product", of_product, _product)):
            count = f"{walks_for(measured, 'no cache', n).count:.0f} faults"
            item = f"matmul {n}², {text}"
            ours = cells[n, "as published"]
            findings.comparisons.append(_compare("Fig 7", item, paper, ours, count, f"matmul, {text}"))
    mean = Saving.mean_of(everything[n, "as published"] for n in sizes)
    findings.comparisons.append(_compare("Fig 7", "matmul, mean of our sizes", 34.0, mean, "all faults"))
    most = _saved(measured, "sequential", "as published", ALONE)
    for text, cells in (("all faults", everything), ("faults of the product", of_product)):
        more = Saving.mean_of(cells[n, "as published"] for n in sizes)
        beyond = more.beyond(most)
        difference = beyond.interval
        detail = f"{more.interval.value:.1f} % and {most.interval.value:.1f} %; at the same costs {difference} points"
        detail = _unless_decided(difference.above(0), detail, beyond)
        title = f"matmul gains more than sequential accesses, {text}"
        findings.claims.append(Claim("§5.3", title, difference.above(0), detail, _COSTS, "order"))
        grown = cells[sizes[-1], "as published"].beyond(cells[sizes[0], "as published"])
        growth = grown.interval
        detail = ", ".join(f"{n}² {cells[n, 'as published'].interval.value:.1f} %" for n in sizes)
        detail += f"; from the smallest to the largest {growth} points"
        detail = _unless_decided(growth.above(0), detail, grown)
        title = f"the benefits increase with the working set, {text}"
        findings.claims.append(Claim("§5.3", title, growth.above(0), detail, _SIZES, "order"))


def _matrix_shares(measured: Measurements, findings: Findings, sizes: tuple[str, ...]) -> None:
    """Fig 4: of all faults and of the product's, with and without the timers, at all measured costs of walks."""
    shares: dict[tuple[str, str], Interval] = {}
    for n in sizes:
        every, begun = (measured["matmul", "no cache", label] for label in (n, f"{n} initialisation"))
        handling, of_begun = (one.stats["fault.handling.cycles"] for one in (every, begun))
        for text, walks, whole in (
            ("all faults", Walks.from_measurement(every), handling),
            ("product", _product(measured, "no cache", n), handling - of_begun),
        ):
            for timers, timer in (("net", 0.0), ("with timers", TIMER * walks.count)):
                values = [
                    100 * (cycles + timer) / (whole - walks.cycles + cycles + 2 * timer)
                    for cycles in walks.at_every_cost
                ]
                shares[n, f"{text}, {timers}"] = Interval.from_values(values, values[0])
    members = tuple(dict.fromkeys(member for _, member in shares))
    title = "share of walks in the time of faults (`__handle_mm_fault`), matmul"
    findings.series.append(Series.within("Fig 4", title, "%", shares, sizes, members))
    low, high = PUBLISHED_SHARES
    for n in sizes:
        interval = Interval.around(shares[n, members[0]].value, (shares[n, member] for member in members))
        findings.comparisons.append(
            Comparison(
                "Fig 4",
                f"matmul {n}²",
                "walks' share of the time of faults",
                "%",
                (low + high) / 2,
                interval.value,
                f"the paper: {low:g} to {high:g} %, at all sizes; all faults or the product's, with or without the "
                "timers' own time; how a fault divides into stages is a guess",
                interval,
                printed=PUBLISHED_SHARES,
            )
        )


def _all_tests(measured: Measurements, findings: Findings) -> None:
    """The paper's figures over several tests; which tests, it does not say, so the choice is ours."""
    form = "as published"
    labels = (*_by_threads(" apart"),)
    patterns = [_saved(measured, name, form, label) for label in labels for name in PATTERNS]
    matrices = [
        Saving.between(form, _all_walks(measured, "no cache", str(n)), _all_walks(measured, form, str(n)))
        for n in MATRICES
    ]
    mean = Saving.mean_of([*patterns, *matrices])
    tests = "our choice: patterns by 1 to 8 threads, regions apart, and all faults of the matrices"
    for figure, paper in (("abstract", 20.0), ("§5", 25.0)):
        findings.comparisons.append(_compare(figure, "mean of all tests", paper, mean, tests))
    highest = max((*patterns, *matrices), key=lambda one: one.interval.value)
    findings.comparisons.append(_compare("§5", "the most of all tests", 37.0, highest, tests))
    mean = Saving.mean_of(_saved(measured, "random", form, label) for label in labels)
    reason = "mean of 1 to 8 threads, regions apart"
    findings.comparisons.append(_compare("Fig 6", "random, average", 18.0, mean, reason))


def _regions(measured: Measurements, findings: Findings) -> None:
    labels = tuple(f"{region} GiB" for region in REGIONS)
    cells = {(label, "false"): _false(measured["random", "as published", label]) for label in labels}
    title = "wrong pmd hits by the published rule, on bare metal"
    findings.series.append(Series("beyond", title, "% of them", labels, ("false",), cells))
    detail = ", ".join(f"{label} {value:.0f} %" for (label, _), value in cells.items())
    text = "a hit at all levels above avoids false positives"
    findings.claims.append(Claim("§4.1", text, not any(cells.values()), detail, _COUNTED, "size"))
    saved = {(label, kernel): _saved(measured, "random", kernel, label) for label in labels for kernel in CACHES}
    title = "walk time saved on bare metal, random pages of larger regions"
    findings.series.append(_within("beyond", title, saved, labels, CACHES))
    _larger(
        findings,
        "beyond",
        "whole prefixes, bare metal",
        saved["1 GiB", "whole prefixes"],
        saved["512 GiB", "whole prefixes"],
    )


def _virtual_regions(measured: Measurements, findings: Findings) -> None:
    """The paper's expectation, in its form and place."""
    small, large = ALONE, "512 GiB, virtual"
    for form in ARRAYS:
        of_small, of_large = (_saved(measured, "random", form, label) for label in (small, large))
        false = f"; {_false(measured['random', form, large]):.0f} % of pmd hits false" if form == "as published" else ""
        _larger(findings, "§5.1", f"{form}, in the guest", of_small, of_large, false)


def _larger(findings: Findings, figure: str, where: str, small: Saving, large: Saving, more: str = "") -> None:
    lost = small.beyond(large)
    less = lost.interval
    detail = f"{small.interval.value:.1f} % in 1 GiB, {large.interval.value:.1f} % in 512 GiB"
    detail += f"; at the same costs {less} points less"
    detail = _unless_decided(less.above(0), detail, lost)
    text = f"random accesses gain less in 512 GiB than in 1 GiB ({where})"
    holds, rests_on = (None, _FALSE) if more else (less.above(0), _COSTS)
    findings.claims.append(Claim(figure, text, holds, detail + more, rests_on, "order", ours=figure == "beyond"))


REPRODUCTION = Reproduction(
    name="software-translation-cache",
    title="Software translation caches for the walks of page faults",
    paper="Michael Wu and Parth A. Patel, Rutgers University",
    machine="kabylake-7700hq",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
