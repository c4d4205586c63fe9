"""Reasons why a fitted model is not reliable, whatever its errors are.

Models: none. Each check compares a model, or the layouts that it was fitted to, with what is possible on a processor.
Parameters: the constants below. None is fitted to a program.
"""

from collections.abc import Mapping, Sequence

from pagelab.run_time.models import Fitted
from pagelab.run_time.points import Point, Points

COUNTED_BOUND = 2.0
"""Most cycles of run time per counted walk cycle: one in which the core waits for the walker, and one for the lines
that the walk's reads evicted from the caches"""
REPLAYED_BOUND = 12.0
"""The same if the processor does not count walk cycles: a nested walk reads up to 24 entries and a native one
4, so a replay without nested tables may have a sixth of a virtual machine's walk cycles"""
LEAST_WALK_DIFFERENCE = 0.05
"""Least share by which walk cycles of layouts must differ; a choice"""
LEAST_COMPARED = 2
"""Fewest layouts that all models must be tested on: one layout does not show how errors vary"""


def walk_bound(points: Points) -> float:
    """The most cycles of run time that a walk cycle of these points can cost."""
    return COUNTED_BOUND if points.walk_cycles_from == "counters" else REPLAYED_BOUND


def layouts_objection(points: Points) -> str | None:
    """Why no model can be fitted to these layouts; None if there is no objection."""
    if points.unknown_noise:
        return (
            f"{', '.join(points.unknown_noise)}: timed once, so the noise of run times is unknown; measure with "
            "--repeat 5 or more"
        )
    fewest, most = _extremes(points.points)
    if most.walk_cycles - fewest.walk_cycles < LEAST_WALK_DIFFERENCE * most.walk_cycles or not most.walk_cycles:
        return (
            f"walk cycles of the layouts differ by less than {LEAST_WALK_DIFFERENCE:.0%}, so they cannot explain the "
            "run times; measure a program that misses the TLB more, or layouts with fewer and with more huge pages"
        )
    difference = abs(most.runtime_cycles - fewest.runtime_cycles)
    noise = _noise_of_difference(fewest, most)
    if difference <= noise:
        return (
            f"run times of {most.layout} and {fewest.layout} differ by {difference / most.runtime_cycles:.1%}, which "
            f"is within the noise of ±{noise / most.runtime_cycles:.1%}; measure more runs (--repeat), on an idle "
            "machine, or a program that misses the TLB more"
        )
    return None


def model_objection(
    fitted: Fitted, parameters: int, errors: Mapping[str, float], points: Points, spread: float
) -> str | None:
    """Why this model is never the best one; None if there is no objection.

    Args:
        parameters: Coefficients that were taken from the layouts.
        errors: Relative errors for layouts that were left out of its fit.
        spread: Share by which run times of the layouts differ.
    """
    fewest, most = _extremes(points.points)
    slope = (fitted.at(most) - fitted.at(fewest)) / (most.walk_cycles - fewest.walk_cycles)
    bound = walk_bound(points)
    if slope <= 0:
        return f"its run time does not rise with walk cycles ({slope:.3g} cycles for each)"
    if slope > bound:
        return f"it takes {slope:.3g} cycles of run time for each walk cycle, and more than {bound:g} is impossible"
    if not fitted.uses("window_cycles") and (without := fitted.without_walks) <= 0:
        return f"without walks, its run time would be {without:.3g} cycles"
    if len(errors) < max(parameters, LEAST_COMPARED):
        return f"it was tested on {_layouts(len(errors))}, and at least {max(parameters, LEAST_COMPARED)} are needed"
    largest = max(map(abs, errors.values()))
    if largest >= spread:
        return f"it is off by up to {largest:.1%}, and run times of the layouts differ by {spread:.1%} only"
    return None


def spread_of(points: Sequence[Point]) -> float:
    """The share by which the slowest layout takes longer than the fastest."""
    times = [point.runtime_cycles for point in points if point.runtime_cycles]
    return max(times) / min(times) - 1 if times else 0.0


def _extremes(points: Sequence[Point]) -> tuple[Point, Point]:
    """The layouts with the fewest and with the most walk cycles."""
    ordered = sorted(points, key=lambda point: (point.walk_cycles, point.layout))
    return ordered[0], ordered[-1]


def _noise_of_difference(one: Point, other: Point) -> float:
    """Half the 95 % interval of the difference of two run times, in cycles; 0 if the noise is unknown."""
    return float(sum(((point.noise or 0.0) * point.runtime_cycles) ** 2 for point in (one, other)) ** 0.5)


def _layouts(count: int) -> str:
    return "no layout" if not count else "1 layout" if count == 1 else f"{count} layouts"
