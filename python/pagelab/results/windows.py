"""Figures of parts of long programs, with their errors.

Models: windows, recorded or replayed, are a systematic sample of the program; a figure is a ratio of sums over them
    (cycles per instruction), and its interval is that of a ratio estimator by Student's distribution. The
    effect of a longer warm-up is the difference of two such ratios.
Source: Wunderlich, Wenisch, Falsafi and Hoe, "SMARTS" (ISCA 2003), for sampling; Cochran, "Sampling Techniques" (1977),
    6.4, for the ratio.
Deviations: windows are treated as independent draws, which they are not if the program repeats in step with them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab.confidence.students_t import students_t
from pagelab.results.headline import busy_cycles


@dataclass(frozen=True)
class Sample:
    """How the source of a run was sampled, in instructions of all its threads."""

    every: int
    """Of a period."""
    length: int
    """Of its window."""
    warm: int
    """Replayed before each window, to warm up."""
    offset: int
    """From the start of a period to its window."""
    longer_warm: int
    """Most instructions replayed before the windows of `longer`."""
    longer: tuple[int, ...]
    """Numbers of the windows that are warmed up for longer."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Sample":
        """From results."""
        return cls(**{**values, "longer": tuple(values["longer"])})

    def describe(self, number: int) -> str:
        """What so many of its windows are."""
        warm = f" after {self.warm:,} that warm up" if self.warm else ""
        return f"{number:,} {self.length:,}-instruction window{'s' * (number != 1)}, one in each {self.every:,}{warm}"


@dataclass(frozen=True)
class Longer:
    """The difference of a figure between windows with a longer warm-up and the others."""

    difference: float
    half_width: float
    """Of its 95 % interval."""


@dataclass(frozen=True)
class Figure:
    """A headline figure of recorded or sampled windows."""

    name: str
    value: float
    """Over all windows together."""
    half_width: float | None
    """Of its 95 % interval; none with a single window."""
    longer: Longer | None = None
    """For a sample, the change by a longer warm-up; none with less than two such windows."""

    def __str__(self) -> str:
        if self.half_width is None:
            return digits(self.value, 4)
        if self.half_width == 0:
            return f"{digits(self.value, 4)} ± 0"
        # Both are rounded to the second digit of the error.
        places = 1 - math.floor(math.log10(self.half_width))
        value, half = (f"{round(number, places):,.{max(places, 0)}f}" for number in (self.value, self.half_width))
        return f"{value} ± {half}"


def digits(value: float, number: int, sign: str = "") -> str:
    """A value with this many digits, without powers of ten."""
    text = f"{value:{sign}.{number}g}"
    return f"{float(text):{sign},.0f}" if "e+" in text else text


_BUSY = "busy cycles"
"""Cycles of working CPUs: windows do not show how long others are idle or wait for them."""

WALK_CYCLES = "walk cycles per instruction"
FEW_WINDOWS = 30
"""Fewer windows have unreliable intervals, as in `crates/pagelab-engine/src/run/sample.rs`."""

_FIGURES = (
    ("cycles per instruction", _BUSY, "instructions", 1),
    ("walks per 1,000 instructions", "walk.count", "instructions", 1000),
    (WALK_CYCLES, "walk.cycles", "instructions", 1),
    ("L2 TLB misses per 1,000 instructions", "dtlb.l2.misses", "instructions", 1000),
    ("memory references per 1,000 instructions", "l3.misses", "instructions", 1000),
    ("% of cycles in translation", "cycles.translation", _BUSY, 100),
)


def is_sampled(stats: Mapping[str, int]) -> bool:
    """Whether stretches of the program were skipped, by the statistics of a result."""
    return "program.fault.minor.count" in stats


def figures(windows: Sequence[Mapping[str, int]], longer: Collection[int] = ()) -> list[Figure]:
    """The headline figures over windows, each with its 95 % interval; `longer` are those warmed up for longer."""
    windows = [{**window, _BUSY: _busy(window)} for window in windows]
    listed = []
    for name, part, whole, scale in _FIGURES:
        numbers = [number for number, window in enumerate(windows) if part in window and whole in window]
        pairs = {number: (windows[number][part], windows[number][whole]) for number in numbers}
        ratio = Ratio.from_pairs(list(pairs.values()))
        if ratio is None:
            continue
        half = ratio.half_width()
        some = [pair for number, pair in pairs.items() if number in longer]
        rest = [pair for number, pair in pairs.items() if number not in longer]
        listed.append(
            Figure(name, scale * ratio.value, None if half is None else scale * half, _difference(some, rest, scale))
        )
    return listed


def _busy(window: Mapping[str, int]) -> int:
    return busy_cycles(window) - window.get("cycles.blocked", 0)


def scope(windows: int, sample: str | None = None) -> str:
    """A sentence about the windows that the figures cover: recorded ones, or those of a `sample`."""
    what = sample or f"{windows:,} recorded window{'s' * (windows != 1)}"
    intervals = ", with 95 % intervals over them" if windows > 1 else ""
    return f"The figures cover {what}{intervals}; faults of the whole program are listed separately."


def program_faults(stats: Mapping[str, int]) -> int:
    """Page faults of the whole program, including skipped stretches."""
    return sum(stats.get(f"program.fault.{kind}.count", 0) for kind in ("minor", "major"))


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums over windows."""

    value: float
    number: int
    error: float | None
    """Its standard error; none with a single window."""

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[int, int]]) -> "Ratio | None":
        """None if there is nothing to divide by."""
        number, total = len(pairs), sum(whole for _, whole in pairs)
        if not total:
            return None
        value = sum(part for part, _ in pairs) / total
        if number < 2:
            return cls(value, number, None)
        squares = sum((part - value * whole) ** 2 for part, whole in pairs)
        return cls(value, number, math.sqrt(squares / (number - 1) / number) * number / total)

    def half_width(self) -> float | None:
        """Half of its 95 % interval."""
        return None if self.error is None else students_t(self.number - 1) * self.error


def _difference(longer: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], scale: float) -> Longer | None:
    """The difference between the ratios of two sets of windows, with the degrees of freedom of the smaller set."""
    some, rest = Ratio.from_pairs(longer), Ratio.from_pairs(others)
    if some is None or rest is None or some.error is None or rest.error is None:
        return None
    half = students_t(min(some.number, rest.number) - 1) * math.hypot(some.error, rest.error)
    return Longer(scale * (some.value - rest.value), scale * half)
