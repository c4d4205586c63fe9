"""How long all replays of a program will take, printed once it can be estimated."""

import re
import sys
import time
from collections.abc import Callable

from pagelab.cli.terminal import Report

_LOOKS_SECONDS = 5.0
"""Seconds of replaying after which the rate is known"""
_LONG_SECONDS = 60.0
_WINDOWS = 100
_RECORDED = 20
"""One part in this many of each period is a window, and another part of the same length warms it up"""
_OF = re.compile(r"replay (\d+) of (\d+): ")
_SECOND_HALF = 4
"""How many times as long the later half of the replays takes, which overlaps accesses and keeps profiles: 3.8 times for
46 M accesses of sort, 5.9 s of CPU time instead of 1.5"""


class Outlook:
    """Progress of replays named `replay K of N: …`, with one line about all of them if they take over a minute."""

    def __init__(self, report: Report, instructions: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Passes progress on to `report`; `instructions` are the program's, if windows would be enough."""
        self._report, self._instructions, self._clock = report, instructions, clock
        self._began: float | None = None
        self._done: dict[str, int] = {}
        self._told = False

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Called by whatever replays, about ten times a second."""
        now = self._clock()
        if self._began is None:
            self._began = now
        self._done[name] = self._weight(name) * done
        if not self._told and total is not None and now - self._began >= _LOOKS_SECONDS:
            self._told = True
            self._tell(name, total, now - self._began)
        self._report(name, done, total)

    def _weight(self, name: str) -> int:
        match = _OF.match(name)
        return _SECOND_HALF if match and 2 * int(match[1]) > int(match[2]) else 1

    def _tell(self, name: str, total: int, seconds: float) -> None:
        match, done = _OF.match(name), sum(self._done.values())
        if not match or not done:
            return
        replays = int(match[2])
        left = seconds * (replays / 2 * (1 + _SECOND_HALF) * total / done - 1)
        if left < _LONG_SECONDS:
            return
        less = f"; {windows_option(self._instructions)} records a tenth of the program" if self._instructions else ""
        print(f"{replays} replays of {total / 1e6:,.0f} M accesses: about {left / 60:.0f} min{less}", file=sys.stderr)


def windows_option(instructions: int) -> str:
    """Windows for a program with this many instructions, in round numbers."""
    every = _round(instructions / _WINDOWS)
    part = _round(every / _RECORDED)
    return f"--windows every={_short(every)},length={_short(part)},warm={_short(part)}"


def _round(value: float) -> int:
    """To one digit, and at least one."""
    return max(int(float(f"{value:.0e}")), 1)


def _short(value: int) -> str:
    for factor, letter in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if value % factor == 0:
            return f"{value // factor}{letter}"
    return str(value)
