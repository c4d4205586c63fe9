"""The size of a sample of pages for curves with a given error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.mrc.curves import Curve, MissRatioCurves
from pagelab.mrc.marks import Mark

TOO_MUCH = 0.1
"""Largest error of a sample, as a share of a curve's misses, before it counts as too small"""
_LEAST_PAGES_BELOW = 12
"""Sampled pages that a size needs for an estimate: the mean is then 3.5 standard deviations above zero"""


@dataclass(frozen=True)
class Point:
    """A size of interest on a sampled curve: that of one of a machine's TLBs or caches."""

    name: str
    curve: Curve
    entries: int

    @property
    def error(self) -> float | None:
        """The error of the misses, as a share of those of one entry; none if the sample allows no estimate."""
        curve, at = self.curve, self.curve.at(self.entries)
        if not curve.is_known(at):
            return None
        off = max(curve.most_misses[at] - curve.misses[at], curve.misses[at] - curve.least_misses[at])
        return off / max(curve.misses[0], 1)

    def pages(self, error: float) -> int:
        """Pages of a sample with an error of at most `error` here, or the fewest that allow an estimate.

        The variance of a sample of the rate R is proportional to (1 - R) / R.
        """
        rate, now = self.curve.sample_rate, self.error
        if now is None:
            needed = min(1.0, _LEAST_PAGES_BELOW / self.entries)
        else:
            variance = (1 - rate) / rate * (error / now) ** 2 if now else math.inf
            needed = 1 / (1 + variance)
        return math.ceil(needed * self.curve.first_references)


@dataclass(frozen=True)
class SampleQuality:
    """The quality of a sample at the sizes of a machine's TLBs and caches."""

    points: Sequence[Point]

    @property
    def error(self) -> float | None:
        """The largest error of sizes with an estimate; none if there are none."""
        return max((error for point in self.points if (error := point.error) is not None), default=None)

    @property
    def unknown(self) -> Sequence[str]:
        """Sizes without an estimate."""
        return list(dict.fromkeys(point.name for point in self.points if point.error is None))

    @property
    def is_too_small(self) -> bool:
        """Whether some size is unknown or has too large an error."""
        return bool(self.unknown) or (self.error or 0) > TOO_MUCH

    def pages(self, error: float) -> int:
        """Pages per curve that a sample needs for an error of at most `error` everywhere, to two digits."""
        pages = max(point.pages(error) for point in self.points)
        unit = int(10 ** max(len(str(pages)) - 2, 0))
        return -(-pages // unit) * unit


def sample_quality(curves: MissRatioCurves, marks: Sequence[Mark]) -> SampleQuality | None:
    """The quality of the sample at the marked sizes; none if all pages were analysed, and for estimates with ways."""
    points = [
        Point(mark.name, curve, mark.entries)
        for curve in curves.curves
        if curve.sample_rate < 1 and not curve.is_empty and not curve.misses_with_ways
        for mark in marks
        if mark.stream == curve.stream
        and curve.granule_bytes in mark.granules
        and mark.entries < curve.first_references
    ]
    return SampleQuality(points) if points else None
