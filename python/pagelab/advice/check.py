"""Checks a prediction against the program: alternating native runs without and with huge pages.

Models: the median over pairs of runs, and its interval from their ranks (`sign_test`).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagelab.confidence.sign_test import FEWEST_VALUES, median_interval
from pagelab.run_time.measuring import Plan, measure

_LAYOUTS = ("4k", "thp")


@dataclass(frozen=True)
class Checked:
    """What huge pages save natively."""

    saved: tuple[float, ...]
    """Shares of the CPU time, one of each pair of runs."""
    small_seconds: float
    """Median CPU time without huge pages."""
    huge_seconds: float
    """With the heap and all anonymous memory in huge pages."""
    huge_share: float
    """Share of the anonymous memory that became huge."""
    warnings: tuple[str, ...]

    @property
    def median(self) -> float:
        """The share that the median pair saves."""
        return statistics.median(self.saved)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median; None with too few pairs."""
        return median_interval(self.saved) if len(self.saved) >= FEWEST_VALUES else None

    @property
    def is_clear(self) -> bool:
        """Whether huge pages change anything for certain."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


@dataclass(frozen=True)
class Unchecked:
    """Nothing was measured."""

    why: str


def check(program: Sequence[str], repeat: int, report: Callable[[str], object] = lambda _: None) -> Checked:
    """Runs a program natively, `repeat` times in each way. It gets no input, and its output is discarded.

    Raises:
        UsageError: it fails, or is too short to be timed.
    """
    measured = measure(program, Plan(layouts=_LAYOUTS, repeat=repeat, any_status=True), report)
    small, huge = measured.layouts
    pairs = zip(small.runs, huge.runs, strict=True)
    return Checked(
        saved=tuple(1 - with_.cpu_seconds / without.cpu_seconds for without, with_ in pairs),
        small_seconds=small.figure(lambda run: run.cpu_seconds).median,
        huge_seconds=huge.figure(lambda run: run.cpu_seconds).median,
        huge_share=huge.memory.huge_share,
        warnings=tuple(measured.warnings),
    )
