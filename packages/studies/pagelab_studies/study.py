"""What reproductions have in common: runs at a scale, measurements, comparisons and claims."""

import math
import os
import re
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, Protocol

import pagelab
from pagelab import _engine
from pagelab.confidence.students_t import students_t
from pagelab_studies import estimates
from pagelab_studies.interval import Interval

# Classes of cycles of a program's CPU, without those of other programs and idle ones.
BUSY = ("base", "data_stall", "translation", "fetch", "fault", "kernel", "lock_wait", "blocked", "io")
# Parts of a window. Their spread gives the confidence interval of its mean.
PARTS = 8
# Shortest window at any scale.
LEAST_ACCESSES = 1 << 18


@dataclass(frozen=True)
class Run:
    """One simulation: a window of a workload on a system."""

    workload: str
    """Name of the workload in the report."""
    spec: str
    """Its source. `{accesses}` stands for the length of the window, `{total}` for that of warm-up and window, and
    `{programs}` for the folder of recordings. Empty if the run consists of arriving processes only."""
    system: str
    """Name of the system in the report."""
    preset: str
    """Empty if nothing is replayed: the page faults of `spec`, a fault trace or process, are estimated."""
    accesses: int
    """Nominal length of the window."""
    warm_up: int = 0
    """Accesses before the window, which bring memory and tables into the state to be measured."""
    settings: tuple[str, ...] = ()
    label: str = ""
    """Distinguishes runs of the same workload and system."""
    beyond: bool = False
    """Whether it is only made on request, as a system that the paper does not measure."""
    beside: tuple[str, ...] = ()
    """Sources that run beside it, each restarted when it ends."""
    arrivals: tuple[str, ...] = ()
    """Streams of processes that arrive during it."""
    estimate: tuple[str, ...] | None = None
    """Settings of the event model of MFOE, if its page faults are also given to that model (`estimates.statistics`)."""
    more_estimates: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further settings of that model, with a name for each: statistics `model.NAME.*`."""
    contiguity_map: bool = False
    """Whether to keep the frames of its pages at the end."""
    after_touches: bool = False
    """Whether the window begins after the last first touch, at the latest after `warm_up` accesses. It must then
    contain no first touch."""
    needs_walks: bool = True
    """Whether such a window must contain walks, since they are what is measured."""
    least_accesses: int = LEAST_ACCESSES
    """Fewest accesses of the window at any scale."""
    seed: int = 1
    """Seed of all random choices: `engine.seed`."""
    in_parts: bool = True
    """Whether parts of its window are counted as well; runs with several seeds need none."""
    parts: int = PARTS
    """How many equal parts, if so."""
    settling_accesses: int = 0
    """The last accesses of `warm_up`, which bring caches into a steady state; `{accesses}` includes them."""

    def window(self, scale: float) -> int:
        """Number of accesses of its window at a scale."""
        return max(int(self.accesses * scale), self.least_accesses)

    @property
    def recording(self) -> str | None:
        """The file that it needs in the folder of recordings, if any."""
        match = re.search(r"\{programs\}/([^@,]+)", self.spec)
        return match[1] if match else None

    def made(self, scale: float) -> int:
        """Accesses after its warm-up: those of the window, or all accesses of a source with a fixed length."""
        return self.window(scale) if re.search(r"\{(accesses|total)\}", self.spec) else self.accesses

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.system, self.label


@dataclass(frozen=True)
class Cost:
    """Nanoseconds that a CPU takes for an access of a run.

    Measured: processor time of the process (`getrusage`), read where the window begins and where it ends, of one run on
    the machine that `budget.PILOT_SECONDS` is of. Other work ran on it, so that caches were shared.
    """

    window: float
    warm_up: float = 0.0
    """For each of the `Run.warm_up` accesses before the window, most of which touch a new page."""
    once: float = 0.0
    """For what depends on neither number, such as pages that the source initialises."""

    def seconds(self, warm_up: int, window: int) -> float:
        return (self.once + self.warm_up * warm_up + self.window * window) / 1e9


@dataclass(frozen=True)
class Measurement:
    """The statistics of a run's window."""

    run: Run
    window: int
    """Accesses counted."""
    stats: Mapping[str, int]
    """Statistics of the whole machine, and of the workload alone if others run beside it."""
    parts: tuple[Mapping[str, int], ...] = ()
    """The same for consecutive equal parts of the window."""
    contiguity_map: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    """If the run asks for it: `SystemResult.contiguity_map`."""

    def per_walk(self, statistic: str) -> float:
        return per_walk(statistic)(self.stats)

    def main(self, statistic: str) -> int:
        """A statistic of the workload alone; 0 where nothing was counted."""
        # Without co-runners everything belongs to the workload.
        prefix = "main." if "main.cycles" in self.stats else ""
        return self.stats.get(f"{prefix}{statistic}", 0)

    def walk_refs(self, layer: str, places: Sequence[str], *, of_all: bool = False) -> int:
        """References of the workload's walks, or those of all programs, to a layer's table that these places served."""
        prefix = "main." if "main.cycles" in self.stats and not of_all else ""
        names = (f"{prefix}walk.layer.{layer}.level{level}.refs.{place}" for level in range(1, 6) for place in places)
        return sum(self.stats.get(name, 0) for name in names)

    @property
    def cycles_per_access(self) -> float:
        """`main_cycles` by the accesses of the window."""
        return self.main_cycles / self.window

    @property
    def main_cycles(self) -> int:
        """All cycles of the workload on its CPU, including page faults, without its co-runners."""
        return sum(self.main(f"cycles.{name}") for name in BUSY)


def per_walk(statistic: str) -> Callable[[Mapping[str, int]], float]:
    """A statistic divided by the number of walks; 0 if there is no walk."""
    return lambda stats: stats[statistic] / stats["walk.count"] if stats["walk.count"] else 0.0


def program_time(stats: Mapping[str, int]) -> float:
    """The program's own cycles per access: without page faults, which the papers' models leave out."""
    # Per access, since threads end a window, or a part of it, at other accesses under other systems.
    own = ("base", "data_stall", "translation", "fetch")
    return sum(stats.get(f"cycles.{name}", 0) for name in own) / stats["accesses"]


def saved(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Per cent of the program's cycles per access that are saved."""
    return 100 * (1 - program_time(after) / program_time(before))


def figure(quantity: Callable[..., float], *measured: Measurement) -> Interval:
    """A figure of windows that begin at the same access, with its 95 % confidence interval from their parts.

    The parts are compared one by one, so common variation does not widen the interval. If a part of a window has no
        walk, the windows are too small and the interval is unbounded.

        Args:
            quantity: The figure of the statistics of a window, or a part, of each measurement.
            measured: The measurements, in the order of its arguments.
    """
    value = quantity(*(one.stats for one in measured))
    parts = list(zip(*(one.parts for one in measured), strict=True))
    if len(parts) < 2 or not all(part["walk.count"] for of_all in parts for part in of_all):
        return Interval(-math.inf, value, math.inf)
    return _around(value, [quantity(*of_all) for of_all in parts])


def mean(values: Sequence[float]) -> Interval:
    """The mean of 2 to 8 independent samples, with its 95 % confidence interval from their spread."""
    return _around(statistics.fmean(values), values)


def _around(value: float, samples: Sequence[float]) -> Interval:
    margin = students_t(len(samples) - 1) * (standard_error(samples) or 0.0)
    return Interval(value - margin, value, value + margin)


def standard_error(parts: Sequence[float]) -> float | None:
    """Standard error of the mean of equal parts; none for fewer than two."""
    return statistics.stdev(parts) / math.sqrt(len(parts)) if len(parts) > 1 else None


Bound = Literal["", "at most", "at least"]


@dataclass(frozen=True)
class Comparison:
    """A figure of the paper and ours."""

    figure: str
    item: str
    quantity: str
    unit: str
    paper: float | None
    """None if there is no number; `without` says why."""
    ours: float
    reason: str = ""
    """Why they differ, or what the number depends on."""
    interval: Interval | None = None
    """The interval of ours, if known."""
    without: str = "not printed in the paper"
    neutral: float | None = None
    """The figure without any effect, from which the sign and the size of an effect are counted; none if the quantity
    has no sign, such as a rate."""
    ranked: str = ""
    """Names the figures of the paper that this one has an order with; empty if none."""
    printed: tuple[float, float] | None = None
    """The range that the paper gives, of which `paper` is an end, or that its rounding allows, with `paper` inside."""
    bound: Bound = ""
    """What the paper's figure bounds, if it is not a figure itself: "less than" is `at most`, "over" is `at least`."""
    unjudged: str = ""
    """Why it has no verdict although the paper prints a number: the two are not figures of the same thing, or ours
    follows from the model. Empty if it has one."""
    unsized: str = ""
    """Why its size has no verdict although its sign or order has one: the two show the same effect, on other things or
    scales. Empty if it has one."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about an order or a bound, and whether our measurements confirm it."""

    figure: str
    text: str
    holds: bool | None
    """None if the figure's interval crosses the bound: not decided."""
    detail: str
    """What was measured."""
    rests_on: str
    """The assumptions that could make the verdict wrong."""
    aspect: str = "sign"
    """What it is about: the `sign` of an effect, the `order` of figures, or a `size`."""
    ours: bool = False
    """Whether it is a question of our own, on which the paper says nothing or gives no bound. It does not count as the
    paper's."""


@dataclass(frozen=True)
class Series:
    """Bars of a picture: a value for each group and each member of it."""

    figure: str
    title: str
    unit: str
    groups: tuple[str, ...]
    members: tuple[str, ...]
    values: Mapping[tuple[str, str], float]
    intervals: Mapping[tuple[str, str], Interval] = field(default_factory=dict)
    """The intervals of the values, if known."""

    @classmethod
    def from_values(
        cls,
        figure: str,
        title: str,
        unit: str,
        cells: Mapping[tuple[str, str], float],
        groups: Iterable[str] | None = None,
        members: Iterable[str] | None = None,
    ) -> "Series":
        """Bars by their heights; groups and members come in the order of the cells unless given."""
        names = [tuple(dict.fromkeys(key[n] for key in cells)) for n in (0, 1)]
        groups, members = (
            tuple(names_given) if names_given is not None else known
            for names_given, known in zip((groups, members), names, strict=True)
        )
        return cls(figure, title, unit, groups, members, dict(cells))

    @classmethod
    def within(
        cls,
        figure: str,
        title: str,
        unit: str,
        cells: Mapping[tuple[str, str], Interval],
        groups: Iterable[str] | None = None,
        members: Iterable[str] | None = None,
    ) -> "Series":
        """Bars with their intervals."""
        plain = cls.from_values(
            figure, title, unit, {key: interval.value for key, interval in cells.items()}, groups, members
        )
        return replace(plain, intervals=dict(cells))


@dataclass(frozen=True)
class FrameMap:
    """The frames of pages: a panel for each system, with runs of adjacent pages in adjacent frames."""

    figure: str
    title: str
    panels: Mapping[str, Sequence[tuple[int, int, int]]]


@dataclass
class Findings:
    maps: list[FrameMap] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    """What is missing; the report says it first."""


class MissingRunError(KeyError):
    """A requested measurement does not exist yet."""


class Noted(Mapping[str, int]):
    """Statistics that remember which of them were read."""

    def __init__(self, stats: Mapping[str, int]) -> None:
        self._stats = stats
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> int:
        self._read.add(name)
        return self._stats[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stats)

    def __len__(self) -> int:
        return len(self._stats)

    @property
    def read(self) -> dict[str, int]:
        """The statistics that were read, by name."""
        return {name: self._stats[name] for name in sorted(self._read) if name in self._stats}


class Measurements:
    """All measurements of a study, by workload, system and label. With several seeds, this returns the first one's."""

    def __init__(self, measured: Iterable[Measurement]) -> None:
        given = list(measured)
        self._noted = [Noted(measurement.stats) for measurement in given]
        self._all = [replace(one, stats=stats) for one, stats in zip(given, self._noted, strict=True)]
        self._by_key: dict[tuple[str, str, str], Measurement] = {}
        for measurement in self._all:
            self._by_key.setdefault(measurement.run.key, measurement)

    def seeds(self, workload: str, system: str, label: str = "") -> dict[int, Measurement]:
        """The measurements that differ only in their seeds, at least one."""
        key = (workload, system, label)
        by_seed = {measurement.run.seed: measurement for measurement in self._all if measurement.run.key == key}
        if not by_seed:
            raise MissingRunError(key)
        return by_seed

    def __getitem__(self, key: tuple[str, str] | tuple[str, str, str]) -> Measurement:
        workload, system, *label = key
        full = workload, system, label[0] if label else ""
        if full not in self._by_key:
            raise MissingRunError(full)
        return self._by_key[full]

    def __contains__(self, key: tuple[str, str] | tuple[str, str, str]) -> bool:
        workload, system, *label = key
        return (workload, system, label[0] if label else "") in self._by_key

    def all(self) -> list[Measurement]:
        return list(self._all)

    def with_read(self) -> Iterator[tuple[Measurement, dict[str, int]]]:
        """Each measurement, and the statistics that figures were computed from."""
        return zip(self._all, (stats.read for stats in self._noted), strict=True)


@dataclass(frozen=True)
class Reproduction:
    """A paper's results that can be measured again."""

    name: str
    title: str
    paper: str
    machine: str
    runs: Callable[[], list[Run]]
    evaluate: Callable[[Measurements], Findings]
    cost: Callable[[Run], Cost]
    """The measured cost of making a run. It is not part of `Run`, since a kept measurement does not depend on it."""
    check: Callable[[Measurement], None] | None = None
    """Refuses a window that cannot answer the study's question, as `check` does for all studies."""
    of_tables: Callable[[Findings], None] | None = None
    """Adds statements and figures that follow from the tables alone, just made or on file."""


def evaluate(reproduction: Reproduction, measured: Measurements) -> Findings:
    """All that a study's measurements say."""
    findings = reproduction.evaluate(measured)
    if reproduction.of_tables:
        reproduction.of_tables(findings)
    return findings


def by_sections(measured: Measurements, sections: Sequence[Callable[[Measurements, Findings], None]]) -> Findings:
    """The findings of all sections whose runs are finished; a note names the others."""
    findings = Findings()
    left_out = []
    for section in sections:
        own = Findings()
        try:
            section(measured, own)
        except MissingRunError as missing:
            workload, system, label = missing.args[0]
            left_out.append(f"{workload} on {system}{f' ({label})' if label else ''}")
            continue
        for name in vars(findings):
            getattr(findings, name).extend(getattr(own, name))
    if left_out:
        findings.incomplete = [
            f"**Not complete**: {len(measured.all())} runs are finished. {len(left_out)} of {len(sections)} sections "
            f"wait for others, the first for {left_out[0]}.",
            "",
        ]
    return findings


class Store(Protocol):
    """Where finished runs are kept."""

    def find(self, run: Run, window: int) -> Measurement | None: ...

    def keep(self, measurement: Measurement) -> None: ...


class Watch:
    """Is told of a study's progress, on several threads at once except for `planned`; this one ignores it."""

    def planned(self, runs: Sequence[Run]) -> None:
        """These runs will be made; others are kept from before."""

    def begins(self, run: Run) -> None: ...

    def goes_on(self, run: Run, accesses: int) -> None:
        """A run has made this many accesses, including its warm-up."""

    def ended(self, run: Run, so_far: int, total: int) -> None:
        """A run has ended; this many of all runs are finished."""


class InterruptedStudyError(KeyboardInterrupt):
    """Ctrl-C, with all measurements made until then."""

    def __init__(self, measured: Measurements) -> None:
        super().__init__()
        self.measured = measured


def measure(
    reproduction: Reproduction,
    scale: float,
    only: Callable[[Run], bool],
    watch: Watch,
    beside: Sequence[str] = (),
    kept: Store | None = None,
    programs: Path | None = None,
) -> Measurements:
    """Makes the runs that `only` accepts, as many at a time as there are CPUs.

    Runs with co-runners also get those in `beside`. A run that is in `kept` is not repeated. `programs` is the folder
        of recordings.

        Raises:
            InterruptedStudyError: Ctrl-C; the runs under way were stopped.
    """
    runs = [
        replace(run, beside=(*run.beside, *beside)) if run.beside else run for run in reproduction.runs() if only(run)
    ]
    earlier = {index: kept.find(run, run.window(scale)) for index, run in enumerate(runs)} if kept else {}
    measured = {index: known for index, known in earlier.items() if known}
    left = [index for index in range(len(runs)) if index not in measured]
    watch.planned([runs[index] for index in left])
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        run_one = partial(_measure, reproduction, scale, watch, stop, programs)
        waiting = {pool.submit(run_one, runs[index]): index for index in left}
        try:
            for future in as_completed(waiting):
                index = waiting[future]
                measured[index] = future.result()
                if kept:
                    kept.keep(measured[index])
                watch.ended(runs[index], len(measured), len(runs))
        except BaseException as error:
            stop.set()
            for future in waiting:
                future.cancel()
            if isinstance(error, KeyboardInterrupt):
                raise InterruptedStudyError(_in_order(measured)) from None
            raise
    return _in_order(measured)


_TOUCHING = threading.Lock()


@cache
def _first_touches(spec: str, seed: int, accesses: int) -> int:
    return _engine.first_touches(spec, seed, accesses)[2]


def warm_up(run: Run) -> int:
    """Accesses of a run before its window."""
    if not run.after_touches:
        return run.warm_up
    spec = run.spec.format(accesses=run.warm_up, total=run.warm_up).rsplit("@", 1)[0]
    # Runs that differ only in their systems wait for the first of them.
    with _TOUCHING:
        return _first_touches(spec, run.seed, run.warm_up)


def _in_order(measured: Mapping[int, Measurement]) -> Measurements:
    return Measurements(measured[index] for index in sorted(measured))


def _measure(
    reproduction: Reproduction, scale: float, watch: Watch, stop: threading.Event, programs: Path | None, run: Run
) -> Measurement:
    def look(_system: str, done: int, _total: int | None) -> None:
        # Only the main thread receives Ctrl-C; this exception ends the run.
        if stop.is_set():
            raise KeyboardInterrupt
        watch.goes_on(run, done)

    watch.begins(run)
    window = run.window(scale)
    before = warm_up(run)
    source = run.spec.format(accesses=run.settling_accesses + window, total=before + window, programs=programs)
    if not run.preset:
        return Measurement(run, window, _estimates(run, source))
    with tempfile.TemporaryDirectory(prefix="pagelab-") as folder:
        faults = Path(folder, "run.faults") if run.estimate is not None else None
        results = pagelab.run(
            source or (),
            run.preset,
            machine=reproduction.machine,
            set=run.settings,
            with_=run.beside,
            arrivals=run.arrivals,
            seed=run.seed,
            warm_up=before or None,
            windows=run.parts if run.in_parts else None,
            contiguity_map=run.contiguity_map,
            faults=faults,
            threads=1,
            progress=look,
        )
        estimated = _estimates(run, faults) if faults else {}
    result = results.systems[0]
    measurement = Measurement(run, window, {**result.stats, **estimated}, result.windows, result.contiguity_map)
    check(measurement)
    if reproduction.check:
        reproduction.check(measurement)
    return measurement


def _estimates(run: Run, faults: str | Path) -> dict[str, int]:
    """All estimates that a run asks for, of a trace or a process of page faults."""
    estimated = estimates.statistics(faults, run.estimate or (), run.seed)
    for name, settings in run.more_estimates:
        estimated |= estimates.statistics(faults, settings, run.seed, name)
    return estimated


def check(measurement: Measurement) -> None:
    """Refuses a window after the first touches that still contains one, or that has no walk to measure.

        Raises:
    UsageError: names the run and a remedy.
    """
    run = measurement.run
    if not run.after_touches:
        return
    where = f"{run.workload} on {run.system}, seed {run.seed}: a window of {measurement.window:,} accesses"
    if touches := measurement.main("fault.minor.count") + measurement.main("fault.major.count"):
        raise pagelab.UsageError(
            f"{where} has {touches:,} first touches inside. It must begin after the last one, but the search for "
            f"that ended at {run.warm_up:,} accesses"
        )
    if run.needs_walks and not measurement.main("walk.count"):
        raise pagelab.UsageError(f"{where} has no page walk, so there is nothing to measure: choose a larger --scale")
