"""The change of a figure between two versions, with a 95 % interval if there is more than one value.

Source: Student, "The probable error of a mean" (1908), for pairs; Welch, "The generalization of Student's problem when
    several different population variances are involved", Biometrika 34 (1947), for independent values; Cochran,
    "Sampling Techniques" (1977), 6.4, for the ratio of two means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.confidence.students_t import students_t

Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    error: float | None = None
    """None if only one value is known."""
    freedom: int = 0
    """Degrees of freedom of the error."""

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Estimate":
        """The mean of independent values."""
        count = len(values)
        if count < 2:
            return cls(values[0])
        mean = math.fsum(values) / count
        squares = math.fsum((value - mean) ** 2 for value in values)
        return cls(mean, math.sqrt(squares / (count - 1) / count), count - 1)


@dataclass(frozen=True)
class Change:
    """A figure of A and of B."""

    a: float
    b: float
    interval: Interval | None = None
    """The 95 % confidence interval of the difference"""
    relative_interval: Interval | None = None
    """The same as a share of A's figure; none if that is 0."""

    @property
    def difference(self) -> float:
        return self.b - self.a

    @property
    def relative(self) -> float | None:
        """The difference as a share of A's figure; none if only that is 0."""
        if self.a:
            return self.difference / self.a
        return None if self.b else 0.0

    @classmethod
    def from_pairs(cls, a: Sequence[float], b: Sequence[float]) -> "Change":
        """From values that form pairs by their place, such as replays with the same seed."""
        before, after = Estimate.from_values(a).value, Estimate.from_values(b).value
        if len(a) < 2:
            return cls(before, after)
        differences = Estimate.from_values([y - x for x, y in zip(a, b, strict=True)])
        interval = _around(after - before, differences)
        if not before:
            return cls(before, after, interval)
        ratio = after / before
        residuals = Estimate.from_values([y - ratio * x for x, y in zip(a, b, strict=True)])
        return cls(before, after, interval, _around(ratio - 1, residuals, before))

    @classmethod
    def from_independent(cls, a: Estimate, b: Estimate) -> "Change":
        """From two independent estimates."""
        if a.error is None or b.error is None:
            return cls(a.value, b.value)
        interval = _around(b.value - a.value, _combined(a.error, a.freedom, b.error, b.freedom))
        if not a.value:
            return cls(a.value, b.value, interval)
        ratio = b.value / a.value
        error = _combined(ratio * a.error, a.freedom, b.error, b.freedom)
        return cls(a.value, b.value, interval, _around(ratio - 1, error, a.value))


def _combined(a: float, freedom_a: int, b: float, freedom_b: int) -> Estimate:
    """The error of a difference, with Welch's degrees of freedom, rounded down."""
    if not a and not b:
        return Estimate(0, 0.0, min(freedom_a, freedom_b))
    freedom = (a**2 + b**2) ** 2 / (a**4 / freedom_a + b**4 / freedom_b)
    return Estimate(0, math.hypot(a, b), max(int(freedom), 1))


def _around(middle: float, spread: Estimate, unit: float = 1.0) -> Interval:
    half = students_t(spread.freedom) * (spread.error or 0.0) / abs(unit)
    return middle - half, middle + half
