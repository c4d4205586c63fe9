"""Samples of a run (§5.1): many short ones, spread over it as in SMARTS, beside one window of as many accesses.

The paper samples "following Wunderlich et al." and verified that its estimates are within ±5 % of the full run's with
95 % confidence. Here whole runs of two programs are counted in `PARTS` equal parts. A sample takes each k-th part; the
k samples differ in where they begin. The one window takes the parts where the windows of `hash-dont-cache` lie. All of
them take about as many accesses, so one thing is changed: where in the run they are. Caches and TLBs are always in the
state that the run leaves them in, as under SMARTS's functional warming.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from pagelab.results.windows import Ratio
from pagelab_studies import hash_dont_cache_whole as whole
from pagelab_studies.hash_dont_cache_runs import MCF, SETTLE, Workload
from pagelab_studies.hash_dont_cache_samples import Stats
from pagelab_studies.hash_dont_cache_tables import SAMPLED
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurement, Measurements, Run, Series

PARTS = 1024
PROGRAMS = (MCF, whole.GRAPH)
LABEL = f"{PARTS} parts"
QUANTITIES = {
    "cycles of walks per access": ("walk.cycles", "accesses"),
    "cycles of a walk": ("walk.cycles", "walk.count"),
}
"""Ratios of two statistics."""
_RESTS_ON = "a program that is small enough for a whole run; samples of as many accesses as the window has"

NOTES = (
    "A sample's own 95 % interval is that of a ratio over its parts. A sample of a search, which has many phases, is "
    "nearer to the whole run than this interval says. Of the analogue of mcf only about ten parts at the beginning "
    "differ, in which caches settle; there the interval has the whole run's figure less often than in 95 % (§5.1).",
)


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


def of_window(workload: Workload, whole_run: Measurement) -> Sequence[Stats]:
    """The parts of a run in which the one window lies."""
    length = whole_run.window / len(whole_run.parts)
    first, last = round(SETTLE / length), round((SETTLE + workload.accesses) / length)
    return whole_run.parts[first:last]


def of_samples(workload: Workload, whole_run: Measurement) -> list[Sequence[Stats]]:
    """Each k-th part, from each of the first k on."""
    step = every(workload, whole_run.window)
    return [whole_run.parts[first::step] for first in range(step)]


def samples_of_a_run(measured: Measurements, findings: Findings) -> None:
    """§5.1: how far samples and windows are from the whole run, and what samples say of that themselves."""
    for what, names in QUANTITIES.items():
        errors: dict[tuple[str, str], Interval] = {}
        intervals: dict[tuple[str, str], float] = {}
        for workload, system in product(PROGRAMS, whole.SYSTEMS):
            run = measured[workload.name, system, LABEL]
            there, window = _ratio([run.stats], names).value, _ratio(of_window(workload, run), names)
            samples = [_ratio(sample, names) for sample in of_samples(workload, run)]
            off = [100 * (sample.value / there - 1) for sample in (*samples, window)]
            margins = [100 * (sample.half_width() or 0.0) / there for sample in samples]
            spread = Interval.from_values(off[:-1], max(off[:-1], key=abs))
            group = f"{workload.name}, {system}"
            errors[group, "samples, the worst and all"] = spread
            errors[group, "one window"] = Interval(off[-1], off[-1], off[-1])
            intervals[group, "half of the widest, %"] = max(margins)
            inside = sum(abs(error) <= margin for error, margin in zip(off, margins, strict=False))
            intervals[group, "have the whole run's figure, %"] = 100 * inside / len(samples)
            if names[1] == "accesses":
                findings.claims.append(_within(group, spread, off[-1], len(samples)))
        title = f"error of samples and of one window: {what}"
        findings.series.append(Series.within("§5.1", title, "% of the whole run", errors))
        title = f"95 % intervals of samples by themselves: {what}"
        findings.series.append(Series.from_values("§5.1", title, "%", intervals))


def _ratio(parts: Sequence[Stats], names: tuple[str, str]) -> Ratio:
    part, among = names
    ratio = Ratio.from_pairs([(one[part], one[among]) for one in parts])
    assert ratio is not None, "each part has accesses and walks"
    return ratio


def _within(group: str, spread: Interval, window: float, samples: int) -> Claim:
    text = f"samples spread over a run give the cycles of its walks within ±{SAMPLED:g} % ({group})"
    detail = (
        f"{samples} samples: {spread.low:.2f} to {spread.high:.2f} % off; one window of as many accesses: {window:.2f}"
    )
    return Claim("§5.1", text, spread.within(-SAMPLED, SAMPLED), detail, _RESTS_ON, "size")
