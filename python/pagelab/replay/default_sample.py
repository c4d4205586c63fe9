"""The windows of a long recording that are replayed by default instead of the whole recording.

Models: about a hundred periods, each with a window after a warm-up of the same length (`docs/sampling.md`). Between
    windows, the sample keeps events, first touches, and last touches, as far back as caches reach. Programs that
    keep using new memory have large samples. They get thirty longer periods.
Deviations: these are choices, which `docs/advice.md` compares with whole replays. Recordings of ten million accesses or
    more are sampled. A window is a fiftieth of its period, between 20,000 and 50,000 instructions, but at least a
    thousandth. The first tenth of a recording shows whether its sample becomes large.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.capture.traces import save_sample, trace_info
from pagelab.results.windows import FEW_WINDOWS

LEAST_ACCESSES = 10_000_000
"""Shorter recordings are replayed in seconds"""
PERIODS = 100
_LARGE_SHARE = 0.1
"""A sample of more of the accesses than this has fewer periods"""
_PROBED = 10
"""One part in this many of a recording is sampled first, to estimate the size of its sample"""
_LEAST_WINDOW, _MOST_WINDOW = 20_000, 50_000
_WINDOW, _LONG_WINDOW = 50, 1000
"""A window is one part in the first number of its period, and in a long period at least one in the second"""


def windows_of(instructions: int, periods: int = PERIODS) -> str:
    """The windows for a program with this many instructions, as text for --sample."""
    every = max(instructions // periods, 1)
    most = max(_MOST_WINDOW, every // _LONG_WINDOW)
    length = min(max(every // _WINDOW, _LEAST_WINDOW), most, max(every // 4, 1))
    return f"every={every},length={length},warm={length}"


def save_default_sample(
    recording: str | os.PathLike[str],
    output: Path,
    instructions: int,
    machine: str | None,
    *,
    periods: int = PERIODS,
    max_accesses: int | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    """Saves a sample of a recording with this many instructions, for replays on a machine.

    Args:
        machine: A preset or TOML file; None for the default.
        periods: Number of windows for programs without large samples.
        max_accesses: Only sample this many first accesses of the recording.
        progress: Called with (accesses read, accesses in all if known).

    Raises:
        ConfigError: there is no such machine.
        TraceError: the recording cannot be read.
    """
    reach = _largest_cache(json.loads(_engine.machine_json(machine))["cache"])
    accesses = min(trace_info(recording)["accesses"], max_accesses or sys.maxsize)
    few = FEW_WINDOWS + 1
    if periods > few:
        probe = save_sample(
            recording,
            output,
            sample=windows_of(instructions, periods),
            max_accesses=max(accesses // _PROBED, 1),
            reach=reach,
        )
        shutil.rmtree(output)
        if probe.accesses > _LARGE_SHARE * probe.read:
            periods = few
    windows = windows_of(instructions, periods)
    save_sample(recording, output, sample=windows, max_accesses=max_accesses, reach=reach, progress=progress)


def _largest_cache(cache: dict[str, Any]) -> int:
    return max(_engine.parse_bytes(level["size_bytes"]) for level in cache.values() if isinstance(level, dict))
