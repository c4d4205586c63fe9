"""Figures of `pagelab linux bench --rounds`: medians with intervals, and changes in pairs of the same round.

Models: nothing; it summarises. The settings take turns, so what drifts on the host meets all of them.
Source: the interval of a median is the sign test's (`pagelab.confidence.sign_test`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from pagelab.confidence.sign_test import FEWEST_VALUES, median_interval
from pagelab_linux.bench import Figure

MEASURES: dict[str, Callable[[Figure], float]] = {
    "per fault": lambda figure: figure.per_fault,
    "per page, second pass": lambda figure: figure.loop_per_page,
}
"""Without a virtual machine's start and end"""


@dataclass(frozen=True)
class Median:
    """A median and its 95 % interval; the range if there are fewer than six values."""

    value: float
    low: float
    high: float
    count: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Median":
        return cls(median(values), *median_interval(values), len(values))

    @property
    def is_certain(self) -> bool:
        return self.count >= FEWEST_VALUES


@dataclass(frozen=True)
class Row:
    """One measure of one setting."""

    setting: str
    workload: str
    levels: int
    measure: str
    median: Median
    change: Median | None
    """To the first setting, in per cent, of pairs of the same round; none for the first setting itself, and where no
    round has both"""


def rows(figures: Sequence[Figure]) -> list[Row]:
    """A row for each setting, workload, number of levels and measure, in the figures' order."""
    groups: dict[tuple[str, str, int], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.setting, figure.workload, figure.levels), []).append(figure)
    measures = dict(MEASURES)
    for event in dict.fromkeys(name for figure in figures for name in figure.events):
        measures[event] = _count_of(event)
    return [
        _row(group, groups, measure, value)
        for group in groups
        for measure, value in measures.items()
        if measure in MEASURES or all(measure in figure.events for figure in groups[group])
    ]


def _count_of(event: str) -> Callable[[Figure], float]:
    return lambda figure: float(figure.events[event])


def _row(
    group: tuple[str, str, int],
    groups: dict[tuple[str, str, int], list[Figure]],
    measure: str,
    value: Callable[[Figure], float],
) -> Row:
    setting, workload, levels = group
    first = next(other for other in groups if other[1:] == group[1:])
    change = None
    if first != group:
        before = {figure.round: figure for figure in groups[first] if measure in MEASURES or measure in figure.events}
        changes = [
            100 * (value(figure) / value(before[figure.round]) - 1)
            for figure in groups[group]
            if figure.round in before and value(before[figure.round])
        ]
        change = Median.from_values(changes) if changes else None
    values = [value(figure) for figure in groups[group]]
    return Row(setting, workload, levels, measure, Median.from_values(values), change)
