"""Samples of a run (§5.1): many short ones, spread over it as in SMARTS, beside one window of as many accesses.

The paper samples "following Wunderlich et al." and verified that its estimates are within ±5 % of the full run's with
95 % confidence. Here whole runs of two programs are counted in `PARTS` equal parts. A sample takes each k-th part; the
k samples differ in where they begin. The one window takes the parts where the windows of `hash-dont-cache` lie. All of
them take about as many accesses, so one thing is changed: where in the run they are. Caches and TLBs are always in the
state that the run leaves them in, as under SMARTS's functional warming.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pagelab_studies import hash_dont_cache_whole as whole
from pagelab_studies.hash_dont_cache_runs import MCF, SETTLE, Workload
from pagelab_studies.hash_dont_cache_samples import Stats, walk_cycles
from pagelab_studies.hash_dont_cache_tables import SAMPLED
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurement, Measurements, Run, Series, per_walk

PARTS = 1024
PROGRAMS = (MCF, whole.GRAPH)
LABEL = f"{PARTS} parts"
QUANTITIES: dict[str, Callable[[Stats], float]] = {
    "cycles of walks per access": walk_cycles,
    "cycles of a walk": per_walk("walk.cycles"),
}
_COUNTED = ("accesses", "walk.count", "walk.cycles")
_RESTS_ON = "a program that is small enough for a whole run; samples of as many accesses as the window has"


def runs() -> Iterator[Run]:
    """Whole runs, as in `hash-dont-cache-changes`, in more parts."""
    names = [workload.name for workload in PROGRAMS]
    for run in whole.runs():
        if run.label == whole.WHOLE and run.workload in names:
            yield replace(run, label=LABEL, parts=PARTS)


def cost(run: Run) -> Cost:
    """What an access takes: as there."""
    return whole.cost(run)


def every(workload: Workload, accesses: int) -> int:
    """k: one part of how many a sample takes, for about as many accesses as the window has."""
    return accesses // workload.accesses


def _sum(parts: Sequence[Stats]) -> Stats:
    return {name: sum(part[name] for part in parts) for name in _COUNTED}


def of_window(workload: Workload, whole_run: Measurement) -> Stats:
    """The parts of a run in which the one window lies."""
    length = whole_run.window / len(whole_run.parts)
    first, last = round(SETTLE / length), round((SETTLE + workload.accesses) / length)
    return _sum(whole_run.parts[first:last])


def of_samples(workload: Workload, whole_run: Measurement) -> list[Stats]:
    """Each k-th part, from each of the first k on."""
    step = every(workload, whole_run.window)
    return [_sum(whole_run.parts[first::step]) for first in range(step)]


def samples_of_a_run(measured: Measurements, findings: Findings) -> None:
    """§5.1: how far samples and windows are from the whole run."""
    for title, quantity in QUANTITIES.items():
        cells: dict[tuple[str, str], Interval] = {}
        for workload in PROGRAMS:
            for system in whole.SYSTEMS:
                run = measured[workload.name, system, LABEL]
                there = quantity(run.stats)
                errors = [100 * (quantity(sample) / there - 1) for sample in of_samples(workload, run)]
                spread = Interval.from_values(errors, max(errors, key=abs))
                window = 100 * (quantity(of_window(workload, run)) / there - 1)
                group = f"{workload.name}, {system}"
                cells[group, "samples, the worst and all"] = spread
                cells[group, "one window"] = Interval(window, window, window)
                if quantity is walk_cycles:
                    findings.claims.append(_within(group, spread, window, len(errors)))
        what = f"error of samples and of one window: {title}"
        findings.series.append(Series.within("§5.1", what, "% of the whole run", cells))


def _within(group: str, spread: Interval, window: float, samples: int) -> Claim:
    text = f"samples spread over a run give the cycles of its walks within ±{SAMPLED:g} % ({group})"
    detail = (
        f"{samples} samples: {spread.low:.2f} to {spread.high:.2f} % off; one window of as many accesses: {window:.2f}"
    )
    return Claim("§5.1", text, spread.within(-SAMPLED, SAMPLED), detail, _RESTS_ON, "size")
