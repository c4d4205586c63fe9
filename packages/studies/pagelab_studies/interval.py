"""Figures with an interval, and verdicts on them: a statement holds, does not hold, or is not decided.

Models: an interval is the range in which a figure lies, from the spread of measured costs, of seeds, or of its window.
    The report of a reproduction says which of them.
Deviations: intervals of two figures that depend on the same costs are subtracted as if they were independent, so a
    difference may seem less certain than it is, but never more.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A figure and its bounds, in the figure's unit."""

    low: float
    value: float
    high: float

    @classmethod
    def from_values(cls, values: Iterable[float], value: float | None = None) -> "Interval":
        """From the lowest to the highest of some values; the figure is `value`, by default the middle."""
        known = sorted(values)
        middle = (known[0] + known[-1]) / 2
        return cls(known[0], middle if value is None else value, known[-1])

    @classmethod
    def around(cls, value: float, intervals: Iterable["Interval"]) -> "Interval":
        """A figure that may lie anywhere in some intervals, such as one for each set of costs."""
        known = list(intervals)
        return cls(min(one.low for one in known), value, max(one.high for one in known))

    @classmethod
    def mean(cls, intervals: Iterable["Interval"]) -> "Interval":
        """The mean of figures that are all low or all high at the same time."""
        known = list(intervals)
        return cls(*(sum(getattr(one, name) for one in known) / len(known) for name in ("low", "value", "high")))

    def minus(self, other: "Interval") -> "Interval":
        return Interval(self.low - other.high, self.value - other.value, self.high - other.low)

    def above(self, bound: float) -> bool | None:
        """Whether the figure is above a bound; none if the interval crosses it."""
        if self.low > bound:
            return True
        return False if self.high <= bound else None

    def within(self, low: float, high: float) -> bool | None:
        """Whether the figure is from `low` to `high`; none if the interval crosses one of them."""
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or self.low > high else None

    @property
    def is_known(self) -> bool:
        """Whether the interval is bounded."""
        return math.isfinite(self.high - self.low)

    def __str__(self) -> str:
        if not self.is_known:
            return f"{self.value:.1f} (its window is too small)"
        if self.low == self.high:
            return f"{self.value:.1f}"
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict on several statements together: does not hold if any does not, else not decided if any is not."""
    known = list(verdicts)
    if False in known:
        return False
    return None if None in known else True
