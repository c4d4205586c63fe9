"""Parts of long programs: which stretches are recorded, and how far figures of them may be off.

Models: recorded windows are a systematic sample of the program; a figure is a ratio of sums over them (cycles per
    instruction), and its interval is that of a ratio estimator by Student's distribution.
Source: Wunderlich, Wenisch, Falsafi and Hoe, "SMARTS" (ISCA 2003), for sampling; Cochran, "Sampling Techniques" (1977),
    6.4, for the ratio.
Deviations: windows are taken for independent draws, which periods in step with the program's own are not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagelab.counts import Count, count
from pagelab.students_t import students_t


@dataclass(frozen=True)
class Stretches:
    """Which stretches of a program are recorded, of all its processes and threads together.

    By instructions (`skip`, `windows`), or by what happens (`start_at`, `stop_at`, `start_on_signal`).
    """

    skip: Count | None = None
    """Instructions that are skipped at first, such as `"2G"`."""
    windows: str | None = None
    """`every=1G,length=20M[,warm=5M][,offset=N|random][,seed=N]`: a window of `length` instructions in each period of
    `every`; the `warm` ones before it are recorded, too, and not measured."""
    start_at: str | Sequence[str] = ()
    """Functions at whose calls recording starts: `SYMBOL`, `OBJECT:SYMBOL`, `OBJECT:0xADDRESS` or `0xADDRESS`; `#3`
    behind it for the third call alone."""
    stop_at: str | Sequence[str] = ()
    """Functions at whose calls it stops."""
    start_on_signal: bool = False
    """SIGUSR1 to the recording process starts it, SIGUSR2 stops it."""

    def to_json(self) -> str:
        """What the recorder takes.

        Raises:
            UsageError: `skip` is no count.
        """
        return json.dumps(
            {
                "skip": count("skip", self.skip, least=1),
                "windows": self.windows,
                "start_at": _several(self.start_at),
                "stop_at": _several(self.stop_at),
                "start_on_signal": self.start_on_signal,
            }
        )


def _several(functions: str | Sequence[str]) -> list[str]:
    return [functions] if isinstance(functions, str) else list(functions)


@dataclass(frozen=True)
class StretchTotals:
    """What the stretches of a recording came to."""

    windows: int
    """Recorded stretches that are to be measured."""
    measured_instructions: int
    warming_instructions: int
    """Instructions recorded before them, to warm up."""
    skipped_instructions: int
    skipped_accesses: int
    """Accesses of skipped stretches that were left out: all but first touches."""

    def describe(self) -> str:
        """In a sentence: so many windows, so much of the program."""
        total = self.measured_instructions + self.warming_instructions + self.skipped_instructions
        share = 100 * self.measured_instructions / total if total else 0
        warm = f", {self.warming_instructions:,} before them to warm up" if self.warming_instructions else ""
        return (
            f"{self.windows:,} window{'s' * (self.windows != 1)} of {self.measured_instructions:,} instructions, "
            f"{share:.3g} % of the program's {total:,}{warm}"
        )


@dataclass(frozen=True)
class Figure:
    """A headline figure of recorded windows."""

    name: str
    value: float
    """Over all windows together."""
    half_width: float | None
    """Of its 95 % interval; none with a single window."""

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.half_width is None else f"{self.value:.4g} ± {self.half_width:.2g}"


_FIGURES = (
    ("cycles per instruction", "cycles", "instructions", 1),
    ("walks per 1,000 instructions", "walk.count", "instructions", 1000),
    ("walk cycles per instruction", "walk.cycles", "instructions", 1),
    ("% of cycles in translation", "cycles.translation", "cycles", 100),
)


def is_sampled(stats: Mapping[str, int]) -> bool:
    """Whether stretches of the program were skipped, by the statistics of a result."""
    return "program.fault.minor.count" in stats


def figures(windows: Sequence[Mapping[str, int]]) -> list[Figure]:
    """The headline figures over recorded windows, each with its 95 % interval."""
    found = []
    for name, part, whole, scale in _FIGURES:
        pairs = [(window[part], window[whole]) for window in windows if part in window and whole in window]
        if total := sum(of for _, of in pairs):
            value = sum(of for of, _ in pairs) / total
            half = _half_width(pairs, value)
            found.append(Figure(name, scale * value, None if half is None else scale * half))
    return found


def scope(windows: int) -> str:
    """What figures of so many recorded windows are of, in a sentence."""
    what = "1 recorded window" if windows == 1 else f"{windows:,} recorded windows, with 95 % intervals over them"
    return f"Figures are of {what}; faults of the whole program are apart."


def program_faults(stats: Mapping[str, int]) -> int:
    """Page faults of the whole program, its skipped stretches included."""
    return sum(stats.get(f"program.fault.{kind}.count", 0) for kind in ("minor", "major"))


def _half_width(pairs: Sequence[tuple[int, int]], ratio: float) -> float | None:
    """Half of the 95 % interval of a ratio of sums."""
    number = len(pairs)
    if number < 2:
        return None
    mean = sum(whole for _, whole in pairs) / number
    squares = sum((part - ratio * whole) ** 2 for part, whole in pairs)
    return students_t(number - 1) * math.sqrt(squares / (number - 1) / number) / mean
