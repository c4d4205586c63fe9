"""Wu and Patel, "Accelerating Fault-Triggered Page Table Walks Using Software Translation Caches", Rutgers University.

The paper patches Linux 4.19.80 in a virtual machine of a 4-core i7-7700HQ. It times `__handle_mm_fault` from its entry
to its call of `handle_pte_fault`, and to its end. Here a guest's kernel of that version does the same in simulation:
without a cache, with the correct one (whole prefixes as tags), with the published rule, and with hardware that tells
the handler where it stopped. The host's kernel has no cache. The programs touch memory that nobody has touched before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from pagelab.reproduce.interval import Interval, all_hold
from pagelab.reproduce.study import (
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

PAGES = 1 << 18
"""Of 1 GiB, and the shortest window that a study measures."""
THREADS = (1, 2, 4, 8)
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
PER_FAULT = (1, 2, 4, 8, 16)
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
    of: str
    """Label of the run that it differs from."""
    threads: int = 1
    regions: str = ""
    size: str = "1GiB"
    settings: tuple[str, ...] = ()
    of_cache: tuple[str, ...] = ()
    """Settings of the translation cache."""


EXPERIMENTS = {
    "one cache per CPU": Experiment("sequential", "8 threads", 8, of_cache=("kernel.translation_cache.per=cpu",)),
    "eight cores": Experiment(
        "sequential", "8 threads apart", 8, ",regions=apart", settings=("machine.cores=8", "machine.threads_per_core=1")
    ),
    "32 MiB": Experiment("random", "1 threads", size="32MiB"),
    "room for all pmds (512 entries)": Experiment(
        "random", "1 threads", of_cache=("kernel.translation_cache.entries=512",)
    ),
    "room for all pmds, kernel data always in L1": Experiment(
        "random",
        "1 threads",
        settings=("engine.kernel_refs=off",),
        of_cache=("kernel.translation_cache.entries=512",),
    ),
}
# What verdicts rest on.
_COSTS = "the measured costs of walk, look-up, level and fill, over their whole spread; the caches of the preset"
_LINES = f"{_COSTS}; lines of one cache move between cores as the preset's coherence says"
_STAGES = "the costs of all stages of a fault, estimated from published means"
_COUNTED = "counts alone"
TIMER = 46.0
"""Cycles of a fenced reading of the time-stamp counter before an interval and one behind it, measured (44 to 49)."""


@dataclass(frozen=True)
class Costs:
    """Cycles by which the measured costs of a walk differ from those that the presets charge with all lines in the
    first-level cache: the least and the most (`pagelab calibrate`, the origins of the presets)."""

    walk: tuple[float, float]
    look_up: tuple[float, float]
    level: tuple[float, float]
    fill: tuple[float, float]

    def corners(self) -> Iterator[tuple[float, float, float, float]]:
        yield from product(self.walk, self.look_up, self.level, self.fill)


# The presets charge a walk of 4 + 3 × 4 cycles, a look-up of 4 (published: 1 + 4), a level of 1 + 4 and a fill of 4.
_WALK, _LEVEL, _FILL = (15.2 - 16, 16.9 - 16), (4.3 - 5, 4.9 - 5), (2.6 - 4, 3.4 - 4)
COSTS = {
    "whole prefixes": Costs(_WALK, (2.2 - 4, 2.9 - 4), _LEVEL, _FILL),
    "as published": Costs(_WALK, (4.0 - 5, 4.9 - 5), _LEVEL, _FILL),
    "mmu-assisted": Costs(_WALK, (0.0, 0.0), _LEVEL, (0.0, 0.0)),
}


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
        for pages in PER_FAULT[1:]:
            for kernel in ("no cache", "whole prefixes"):
                yield _run(name, pattern, kernel, f"{pages} per fault", (f"kernel.pages_per_fault={pages}",))
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
    for label, of in EXPERIMENTS.items():
        for kernel in ("no cache", *ARRAYS):
            spec = f"{PATTERNS[of.workload]},threads={of.threads}{of.regions}"
            settings = (*of.settings, *(of.of_cache if kernel != "no cache" else ()))
            yield _run(of.workload, spec, kernel, label, settings, size=of.size, threads=of.threads)
    for n in MATRICES:
        for kernel in ("no cache", *ARRAYS):
            # To completion, whatever the scale; and once without the product, whose faults are the difference.
            preset, settings = _kernel(kernel, "nested-radix")
            accesses = 2 * n**3 + 3 * n**2
            yield Run("matmul", f"matmul:n={n},init=yes@0", kernel, preset, accesses, settings=settings, label=str(n))
            spec = f"matmul:n={n},init=yes,accesses=1@0"
            label = f"{n} initialisation"
            yield Run("matmul", spec, kernel, preset, 2 * n**2 + 1, settings=settings, label=label)


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
    system: str = "nested-radix",
    size: str = "1GiB",
    threads: int = 1,
) -> Run:
    preset, more = _kernel(kernel, system, settings)
    cpus = f"0-{threads - 1}" if threads > 1 else "0"
    spec = f"{spec.format(size=size)},accesses={{accesses}}@{cpus}"
    return Run(workload, spec, kernel, preset, PAGES * threads, 0, more, label)


def _run_between(workload: str, pattern: str, kernel: str, label: str, between: int) -> Run:
    preset, settings = _kernel(kernel, "nested-radix")
    spec = f"{pattern.format(size='1GiB')},between={between},accesses={{total}}@0"
    accesses = min(PAGES * (1 + between // 64), MOST_BETWEEN)
    # Before the window the other data's own pages are touched.
    return Run(workload, spec, kernel, preset, accesses, 1 << 17, settings, f"{label} between")


def _before_pte(measurement: Measurement) -> float:
    """Cycles of a walk of the guest's kernel, from entry to the PTE."""
    return measurement.stats["fault.before_pte.cycles"] / measurement.stats["fault.walk.count"]


@dataclass(frozen=True)
class Walks:
    """Sums over the walks of some faults."""

    count: int
    cycles: int
    skipped: int = 0
    """Levels."""
    look_ups: int = 0
    fills: int = 0

    @classmethod
    def of(cls, measurement: Measurement) -> "Walks":
        stats = measurement.stats
        names = ("fault.walk.count", "fault.before_pte.cycles", "stc.refs.spared", "stc.lookups", "stc.fills")
        return cls(*(stats.get(name, 0) for name in names))

    def without(self, other: "Walks") -> "Walks":
        return Walks(*(mine - theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def mean(self, walk: float, look_up: float, level: float, fill: float) -> float:
        """Cycles per walk if the costs are so many cycles larger: they are sums, so nothing needs to run again."""
        more = walk * self.count + look_up * self.look_ups - level * self.skipped + fill * self.fills
        return (self.cycles + more) / self.count


def _saving(kernel: str, before: Walks, after: Walks, timer: float = 0.0) -> Interval:
    """Per cent of the walk's cycles that a cache saves, over the measured costs."""
    corners = COSTS[kernel].corners()
    return Interval.of(100 * (1 - (after.mean(*more) + timer) / (before.mean(*more) + timer)) for more in corners)


def _saved(measured: Measurements, workload: str, kernel: str, label: str, timer: float = 0.0) -> Interval:
    return _saving(
        kernel, Walks.of(measured[workload, "no cache", label]), Walks.of(measured[workload, kernel, label]), timer
    )


def _product(measured: Measurements, kernel: str, n: str) -> Walks:
    """Walks of the faults of the product alone."""
    whole, begun = (measured["matmul", kernel, label] for label in (n, f"{n} initialisation"))
    return Walks.of(whole).without(Walks.of(begun))


def _false(measurement: Measurement) -> float:
    """Per cent of the hits of pmds that were another address's."""
    hits = measurement.stats["stc.hits.pmd"]
    return 100 * measurement.stats["stc.false_hits.pmd"] / hits if hits else 0.0


def evaluate(measured: Measurements) -> Findings:
    sections = (_patterns, _threads, _experiments, _between, _shares, _matrices, _regions)
    findings = by_sections(measured, sections)
    findings.notes += [
        "A walk is what the guest's kernel spends from the entry of `__handle_mm_fault` to `handle_pte_fault`: "
        "look-up, entries of pgd, pud and pmd, fills, tables of pud and pmd.",
        "The timer's own time is not in it, unless a title says so. A fenced reading before and one behind take "
        "46 cycles. Which timer the paper has, and whether it takes its time off, it does not say.",
        "Brackets span the measured costs of walk, look-up, level and fill (`pagelab calibrate` on a server "
        "processor). They say nothing of how far a replica in user space is from a kernel, or that processor from "
        "the paper's.",
        "The guest's kernel has the cache, the host's has none. What the host does about a guest's fault is not "
        "in the walk.",
        "As published: wrong hits are counted, and the walk is made from the root beside the look-up. What the "
        "rule would have saved by going on from wrong entries is not.",
        "Arrays are touched by stores, once per page where the pattern allows, in windows of 262,144 accesses per "
        "thread. As in the paper's program nothing else is touched between two faults, unless a title says so.",
        "Regions of threads are neighbours, which the kernel makes one mapping of, with one cache. Those that are "
        "apart have one each.",
        "Matrices: both factors are written first. All runs go on until the product is done.",
    ]
    return findings


def _compare(figure: str, item: str, paper: float | None, ours: Interval, reason: str = "") -> Comparison:
    return Comparison(figure, item, "walk time saved", "%", paper, ours.value, reason, interval=ours)


def _patterns(measured: Measurements, findings: Findings) -> None:
    one = {name: _saved(measured, name, "as published", "1 threads") for name in PATTERNS}
    correct = {name: _saved(measured, name, "whole prefixes", "1 threads") for name in PATTERNS}
    spared = "the abstract says 20, section 5 about 25; here the mean of the three patterns by one thread"
    findings.comparisons.append(_compare("abstract", "mean", 20.0, Interval.mean(one.values()), spared))
    for name, paper in (("sequential", 20.0), ("semi-random", 19.0), ("random", 15.0)):
        reason = "20 less about one point" if name == "semi-random" else ""
        findings.comparisons.append(_compare("§5.1", f"{name}, 1 thread", paper, one[name], reason))
    order = all_hold(
        (one["sequential"].minus(one["semi-random"]).above(0), one["semi-random"].minus(one["random"]).above(0))
    )
    for form, saved in (("as published", one), ("whole prefixes", correct)):
        detail = ", ".join(f"{name} {value} %" for name, value in saved.items())
        gains = all_hold(value.above(0) for value in saved.values())
        findings.claims.append(Claim("§5.1", f"all three patterns gain ({form})", gains, detail, _COSTS))
    detail = ", ".join(f"{name} {value} %" for name, value in one.items())
    findings.claims.append(Claim("§5.1", "sequential accesses gain most, random ones least", order, detail, _COSTS))
    for timer, text in ((0.0, "net"), (TIMER, f"with a timer of {TIMER:.0f} cycles in the interval")):
        cells = {
            (name, kernel): _saved(measured, name, kernel, "1 threads", timer) for name in PATTERNS for kernel in CACHES
        }
        title = f"walk time saved by one thread, {text}"
        findings.series.append(Series.within("Fig 6", title, "%", cells, PATTERNS, CACHES))
    cells = {(name, kernel): _saved(measured, name, kernel, "bare metal") for name in PATTERNS for kernel in CACHES}
    title = "walk time saved by one thread on bare metal"
    findings.series.append(Series.within("beyond", title, "%", cells, PATTERNS, CACHES))
    walks = {
        (name, kernel): _before_pte(measured[name, kernel, "1 threads"]) for name in PATTERNS for kernel in KERNELS
    }
    title = "walks by one thread"
    findings.series.append(Series("beyond", title, "cycles", tuple(PATTERNS), tuple(KERNELS), walks))
    sizes = tuple(f"{entries} entries" for entries in ENTRIES)
    cells = {
        (label, name): _saving(
            "whole prefixes",
            Walks.of(measured[name, "no cache", "1 threads"]),
            Walks.of(measured[name, "whole prefixes", label]),
        )
        for label in sizes
        for name in ("semi-random", "random")
    }
    title = "walk time saved by the cache's size, whole prefixes"
    findings.series.append(Series.within("beyond", title, "%", cells, sizes, ("semi-random", "random")))


def _threads(measured: Measurements, findings: Findings) -> None:
    for name, paper in (("sequential", 28.0), ("semi-random", 28.0), ("random", 22.0)):
        for regions in ("", " apart"):
            ours = _saved(measured, name, "as published", f"8 threads{regions}")
            reason = "a cache for each thread's region" if regions else "one cache for all threads' regions"
            findings.comparisons.append(_compare("§5.2", f"{name}, 8 threads{regions}", paper, ours, reason))
    for regions, text in (("", "regions in one mapping"), (" apart", "regions in mappings of their own")):
        one = {name: _saved(measured, name, "as published", "1 threads") for name in PATTERNS}
        eight = {name: _saved(measured, name, "as published", f"8 threads{regions}") for name in PATTERNS}
        rising = all_hold(eight[name].minus(one[name]).above(0) for name in PATTERNS)
        detail = ", ".join(f"{name} {eight[name]} %" for name in PATTERNS) + " with eight"
        findings.claims.append(Claim("§5.2", f"more threads gain more, {text}", rising, detail, _LINES))
        for form in ARRAYS:
            labels = tuple(f"{threads} threads{regions if threads > 1 else ''}" for threads in THREADS)
            cells = {(label, name): _saved(measured, name, form, label) for label in labels for name in PATTERNS}
            title = f"walk time saved by threads, {text}, {form}"
            findings.series.append(Series.within("Fig 6", title, "%", cells, labels, PATTERNS))


def _experiments(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], Interval] = {}
    groups: list[str] = []
    for label, of in EXPERIMENTS.items():
        for text, which in ((f"{of.workload}, {of.of}", of.of), (f"{of.workload}, {of.of}: {label}", label)):
            if text not in groups:
                groups.append(text)
            cells |= {(text, form): _saved(measured, of.workload, form, which) for form in ARRAYS}
    title = "walk time saved, and what it is with one thing changed"
    findings.series.append(Series.within("beyond", title, "%", cells, groups, ARRAYS))


def _between(measured: Measurements, findings: Findings) -> None:
    labels = {text: f"{text} between" if between else "1 threads" for text, between in BETWEEN.items()}
    for form in ARRAYS:
        cells = {
            (text, name): _saved(measured, name, form, label) for text, label in labels.items() for name in PATTERNS
        }
        title = f"walk time saved with other data touched between faults, {form}"
        findings.series.append(Series.within("beyond", title, "%", cells, labels, PATTERNS))
    walks = {
        (text, name): _before_pte(measured[name, "no cache", label])
        for text, label in labels.items()
        for name in PATTERNS
    }
    title = "walks without a cache, with other data touched between faults"
    findings.series.append(Series("beyond", title, "cycles", tuple(labels), tuple(PATTERNS), walks))


def _total_cycles(measurement: Measurement) -> int:
    """Of execution: all CPUs' without idle time."""
    classes = ("base", "data_stall", "translation", "fault", "kernel", "lock_wait", "blocked", "io")
    return sum(measurement.stats.get(f"cycles.{name}", 0) for name in classes)


def _shares(measured: Measurements, findings: Findings) -> None:
    labels = {"1 threads": "1", **{f"{pages} per fault": str(pages) for pages in PER_FAULT[1:]}}
    for figure, statistic, title in (
        ("Fig 2", "fault.handling.cycles", "faults (`__handle_mm_fault`)"),
        ("Fig 3", "fault.before_pte.cycles", "walks"),
    ):
        cells = {
            (text, name): 100 * measured[name, "no cache", label].stats[statistic] / total
            for label, text in labels.items()
            for name in PATTERNS
            if (total := _total_cycles(measured[name, "no cache", label]))
        }
        text = f"share of {title} in the time of execution, by pages per fault"
        findings.series.append(Series(figure, text, "%", tuple(labels.values()), tuple(PATTERNS), cells))
        one, most = ({name: cells[pages, name] for name in PATTERNS} for pages in ("1", str(PER_FAULT[-1])))
        detail = ", ".join(f"{name} {one[name]:.2g} to {most[name]:.2g} %" for name in PATTERNS)
        if figure == "Fig 2":
            rising = all(most[name] > one[name] for name in PATTERNS)
            text = "the share of faults rises with the pages per fault"
            findings.claims.append(Claim(figure, text, rising, detail, _STAGES))
        else:
            apart = most["sequential"] > one["sequential"] and most["random"] < one["random"]
            text = "the share of walks rises with the pages per fault in sequence and falls at random"
            findings.claims.append(Claim(figure, text, apart, detail, _STAGES))
            larger = min(one["random"], one["semi-random"]) > one["sequential"]
            text = "walks have a larger share at random and half at random than in sequence"
            findings.claims.append(Claim(figure, text, larger, detail, _STAGES))


def _matrices(measured: Measurements, findings: Findings) -> None:
    sizes = tuple(str(n) for n in MATRICES)
    shares = {
        (n, text): 100 * (before + timer) / (whole + 2 * timer)
        for n in sizes
        for stats in (measured["matmul", "no cache", n].stats,)
        for before in (stats["fault.before_pte.cycles"] / stats["fault.walk.count"],)
        for whole in (stats["fault.handling.cycles"] / stats["fault.walk.count"],)
        for text, timer in (("net", 0.0), ("with timers", TIMER))
    }
    title = "share of walks in the time of faults (`__handle_mm_fault`), matmul"
    findings.series.append(Series("Fig 4", title, "%", sizes, ("net", "with timers"), shares))
    # Net, and with the timers that the paper may have counted.
    interval = Interval.of(shares.values())
    text = "walks of matmul are 8 to 10 % of the time of faults"
    detail = f"{interval} %, the timers' own time in or out"
    findings.claims.append(Claim("Fig 4", text, interval.within(8, 10), detail, _STAGES))
    all_faults = {(n, kernel): _saved(measured, "matmul", kernel, n) for n in sizes for kernel in ARRAYS}
    of_product = {
        (n, kernel): _saving(kernel, _product(measured, "no cache", n), _product(measured, kernel, n))
        for n in sizes
        for kernel in ARRAYS
    }
    for text, cells in (("all faults", all_faults), ("faults of the product", of_product)):
        findings.series.append(Series.within("Fig 7", f"walk time saved, matmul, {text}", "%", cells, sizes, ARRAYS))
    counts = {
        (n, text): float(walks.count)
        for n in sizes
        for text, walks in (
            ("all", Walks.of(measured["matmul", "no cache", n])),
            ("of the product", _product(measured, "no cache", n)),
        )
    }
    title = "walks of faults in matmul"
    findings.series.append(Series("beyond", title, "walks", sizes, ("all", "of the product"), counts))
    mean = Interval.mean(all_faults[n, "as published"] for n in sizes)
    for n, paper in (("100", 30.0), ("1000", 37.0)):
        for text, cells in (("all faults", all_faults), ("product", of_product)):
            count = f"{counts[n, 'all' if text == 'all faults' else 'of the product']:.0f} faults"
            item = f"matmul {n}², {text}"
            findings.comparisons.append(_compare("§5.3", item, paper, cells[n, "as published"], count))
    findings.comparisons.append(_compare("§5.3", "matmul, mean of the sizes", 34.0, mean))
    most = _saved(measured, "sequential", "as published", "1 threads")
    for text, cells in (("all faults", all_faults), ("faults of the product", of_product)):
        more = Interval.mean(cells[n, "as published"] for n in sizes)
        detail = f"{more} % and {most} %"
        holds = more.minus(most).above(0)
        text = f"matmul gains more than sequential accesses, {text}"
        findings.claims.append(Claim("§5.3", text, holds, detail, _COSTS))


def _regions(measured: Measurements, findings: Findings) -> None:
    labels = tuple(f"{region} GiB" for region in REGIONS)
    cells = {(label, "false"): _false(measured["random", "as published", label]) for label in labels}
    findings.series.append(
        Series(
            "beyond",
            "hits of pmds by the published rule that are wrong, on bare metal",
            "% of them",
            labels,
            ("false",),
            cells,
        )
    )
    never = cells["1 GiB", "false"] == 0
    wrong = all(value > 0 for (label, _), value in cells.items() if label != "1 GiB")
    detail = ", ".join(f"{label} {value:.0f} %" for (label, _), value in cells.items())
    findings.claims += [
        Claim("§4.1", "a hit at all levels above avoids false positives: in 1 GiB", never, detail, _COUNTED),
        Claim("§4.1", "and in larger regions", not wrong, detail, _COUNTED),
    ]
    saved = {(label, kernel): _saved(measured, "random", kernel, label) for label in labels for kernel in CACHES}
    title = "walk time saved on bare metal, random pages of larger regions"
    findings.series.append(Series.within("§5.1", title, "%", saved, labels, CACHES))
    small, large = saved["1 GiB", "whole prefixes"], saved["512 GiB", "whole prefixes"]
    detail = f"{small} % in 1 GiB, {large} % in 512 GiB"
    less = small.minus(large).above(0)
    findings.claims.append(Claim("§5.1", "random accesses gain less in 512 GiB than in 1 GiB", less, detail, _COSTS))


REPRODUCTION = Reproduction(
    name="software-translation-cache",
    title="Software translation caches for the walks of page faults",
    paper="Michael Wu and Parth A. Patel, Rutgers University",
    machine="kabylake-7700hq",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
