"""Cycles of a whole program, from a replay of all of it or of windows.

Models: if a program is replayed in windows, its page faults, calls and waits for devices are known completely, since
    skipped stretches keep first touches and events. Its other cycles are those of the windows, multiplied by the ratio
    of the program's instructions to theirs. Windows are a systematic sample, the same one under each system. So the
    sampling error of a figure is that of a ratio estimator of each window's saving.
Source: Cochran, "Sampling Techniques" (1977), 6.4, as for `pagelab.results.windows`.
Deviations: the known costs count as exact, although caches and TLBs hold a little less after a skipped stretch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagelab.capture.length import WHOLE, Length
from pagelab.confidence.students_t import students_t
from pagelab.results.headline import busy_cycles
from pagelab.results.results import SystemResult
from pagelab.results.windows import is_sampled

_KNOWN = ("cycles.fault", "cycles.io", "cycles.kernel")


@dataclass(frozen=True)
class Window:
    """Cycles counted in a window in addition to the known costs."""

    instructions: int
    busy: int
    translation: int


@dataclass(frozen=True)
class Estimate:
    """Busy cycles of a whole program under a system, and the part of paging."""

    busy: float
    fault: float
    translation: float
    times: float = 1.0
    """The program's instructions ÷ those of the windows; 1 if everything is replayed."""
    windows: Sequence[Window] = ()

    @classmethod
    def from_result(cls, result: SystemResult, length: Length = WHOLE) -> "Estimate":
        """Of the replayed accesses; for windows, of the program until its trace ends."""
        stats = result.stats
        if not is_sampled(stats):
            return cls(busy_cycles(stats), stats.get("cycles.fault", 0), stats.get("cycles.translation", 0))
        times = length.of_traced(stats.get("instructions", 0))
        windows = [_window(counted) for counted in result.windows]
        known = sum(stats.get(f"program.{name}", 0) for name in _KNOWN)
        return cls(
            busy=times * sum(window.busy for window in windows) + known,
            fault=stats.get("program.cycles.fault", 0),
            translation=times * sum(window.translation for window in windows),
            times=times,
            windows=windows,
        )

    @property
    def paging(self) -> float:
        """Cycles of translation and of page faults."""
        return self.translation + self.fault

    def half_width(self, parts: Sequence[float], share: float) -> float:
        """Half of the 95 % interval of a share of the busy cycles, to which each window contributes.

        0 without windows, and with a single window, which has no interval.
        """
        count = len(self.windows)
        if count < 2 or not self.busy:
            return 0.0
        left = [part - share * window.busy for part, window in zip(parts, self.windows, strict=True)]
        each = sum(left) / max(sum(window.instructions for window in self.windows), 1)
        squares = sum((part - each * window.instructions) ** 2 for part, window in zip(left, self.windows, strict=True))
        error = self.times * math.sqrt(squares * count / (count - 1)) / self.busy
        return students_t(count - 1) * error


def _window(counted: Mapping[str, int]) -> Window:
    # A window cannot tell how long CPUs wait for each other.
    busy = busy_cycles(counted) - counted.get("cycles.blocked", 0)
    return Window(
        instructions=counted.get("instructions", 0),
        busy=busy - sum(counted.get(name, 0) for name in _KNOWN),
        translation=counted.get("cycles.translation", 0),
    )
