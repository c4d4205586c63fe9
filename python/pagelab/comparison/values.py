"""Values of a figure in all runs of both sides, and the change that they show.

Replays with several seeds of one recording each are pairs. Several recordings are independent of each other; the
replays of one recording count as one value, their mean. Of samples, windows give the interval.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pagelab.comparison.intervals import Change, Estimate
from pagelab.comparison.metrics import Metric
from pagelab.results.results import SystemResult
from pagelab.results.windows import Ratio, is_sampled

PER_INSTRUCTIONS = 1000
"""Counts of samples are given per so many instructions."""


@dataclass(frozen=True)
class Runs:
    """The results of one system on one side: by recording, then by seed."""

    recordings: tuple[tuple[SystemResult, ...], ...]

    @property
    def first(self) -> SystemResult:
        return self.recordings[0][0]

    @property
    def all(self) -> list[SystemResult]:
        return [result for recording in self.recordings for result in recording]

    @property
    def seeds(self) -> list[int]:
        return [result.seed for result in self.recordings[0]]

    @property
    def is_sampled(self) -> bool:
        return is_sampled(self.first.stats)


def are_pairs(a: Runs, b: Runs) -> bool:
    """Whether each replay of one side has a counterpart with the same seed on the other."""
    return len(a.recordings) == len(b.recordings) == 1 and len(a.seeds) > 1 and a.seeds == b.seeds


def change(a: Runs, b: Runs, value: Callable[[SystemResult], float | None]) -> Change | None:
    """How far a figure changed; none if a run of either side does not have it."""
    values = [[[value(result) for result in recording] for recording in side.recordings] for side in (a, b)]
    known = [_complete(side) for side in values]
    before, after = known
    if before is None or after is None:
        return None
    if are_pairs(a, b):
        return Change.from_pairs(before[0], after[0])
    several = max(len(before), len(after)) > 1
    return Change.from_independent(_estimate(before, several=several), _estimate(after, several=several))


def _complete(values: Iterable[Sequence[float | None]]) -> list[list[float]] | None:
    known = [[value for value in recording if value is not None] for recording in values]
    return known if all(len(k) == len(v) for k, v in zip(known, values, strict=True)) else None


def _estimate(recordings: Sequence[Sequence[float]], *, several: bool) -> Estimate:
    if several:
        return Estimate.from_values([Estimate.from_values(seeds).value for seeds in recordings])
    return Estimate.from_values(recordings[0])


def change_of_metric(a: Runs, b: Runs, metric: Metric) -> Change | None:
    """The same of a metric; of samples it is a rate."""
    if a.is_sampled and b.is_sampled:
        estimates = [_from_windows(side.first, metric) for side in (a, b)]
        before, after = estimates
        return None if before is None or after is None else Change.from_independent(before, after)
    return change(a, b, lambda result: metric.evaluate(result.stats))


def _from_windows(result: SystemResult, metric: Metric) -> Estimate | None:
    """The metric over the windows of a sample, per 1,000 instructions unless it is a ratio itself."""
    pairs = []
    for window in result.windows:
        part = metric.value(window)
        whole = metric.divisor(window) if metric.divisor else window.get("instructions")
        if part is None or whole is None:
            return None
        pairs.append((part, whole))
    ratio = Ratio.from_pairs(pairs)
    if ratio is None:
        return None
    scale = 1 if metric.divisor else PER_INSTRUCTIONS
    error = None if ratio.error is None else scale * ratio.error
    return Estimate(scale * ratio.value, error, ratio.number - 1)


def scale(result: SystemResult) -> float:
    """What costs at a place are multiplied by, so that those of samples are per 1,000 instructions."""
    if not is_sampled(result.stats):
        return 1.0
    return PER_INSTRUCTIONS / max(result.stats.get("instructions", 0), 1)
