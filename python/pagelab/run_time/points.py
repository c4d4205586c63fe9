"""Points that models are fitted to: a program's run times under layouts, and the cost of its translations.

Source: files of `pagelab measure -o FILE.json`, or CSV with a row per layout and the columns of `COLUMNS`; the letters
    of `LETTERS` will do.
"""

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.run_time import counters
from pagelab.run_time.measuring import NOISY, Measured, Measurement, load, replay_warnings
from pagelab.run_time.running import Run

COLUMNS = ("layout", "runtime_cycles", "tlb_hits", "tlb_misses", "walk_cycles")
LETTERS = {"R": "runtime_cycles", "H": "tlb_hits", "M": "tlb_misses", "C": "walk_cycles"}
SMALL, HUGE = "4k", "thp"
_SAME = {"2m": HUGE, "layout4kb": SMALL, "layout2mb": HUGE}
"""Other names of the layouts that models are anchored at, in lower case"""
TIMES = ("user", "cpu")
OF_REPLAYS = "walk cycles come from replays, and run time is CPU time in cycles of their machine"


@dataclass(frozen=True)
class Point:
    """A layout; cycles are those of the measured processor, except walk cycles from replays."""

    layout: str
    runtime_cycles: float
    tlb_hits: float
    """Misses of the first-level TLB that the last level served."""
    tlb_misses: float
    """Of the last level."""
    walk_cycles: float
    window_cycles: float | None = None
    """Replayed cycles of a core that overlaps accesses."""
    noise: float | None = None
    """Half the 95 % interval of the mean run time, as its share; None if unknown."""


@dataclass(frozen=True)
class Points:
    """All points of one program."""

    points: Sequence[Point]
    mhz: float | None
    """Cycles per microsecond; none if only cycles are known."""
    walk_cycles_from: str
    """`counters`, `replay`, or `file` for CSV."""
    nested: bool
    machine: str | None
    """The machine of replays, as requested."""
    system_seconds: float | None
    """The kernel's time under `4k`, if the run time does not include it."""
    notes: Sequence[str]
    command: Sequence[str] | None = None
    """The program and its arguments; none for CSV."""
    unknown_noise: Sequence[str] = ()
    """Layouts that were timed once."""

    def at(self, layout: str) -> Point | None:
        """The point of a layout; none if there is none."""
        return next((point for point in self.points if point.layout == layout), None)


def read(paths: Sequence[Path], time: str = "user") -> Points:
    """The points of several files of one program.

    Args:
        time: Whether run time is the program's own (`user`) or with the kernel's (`cpu`).

    Raises:
        UsageError: a file contains no points, or the files are of different kinds or programs.
        OSError: it cannot be read.
    """
    if time not in TIMES:
        raise UsageError(f"--time {time}: give {' or '.join(TIMES)}")
    read_ones = [_of_csv(path) if path.suffix == ".csv" else _of_measurement(load(path), path, time) for path in paths]
    first = read_ones[0]
    for path, other in zip(paths[1:], read_ones[1:], strict=True):
        same = (other.walk_cycles_from, other.nested, other.machine)
        if same != (first.walk_cycles_from, first.nested, first.machine):
            raise UsageError(
                f"{path}: its walk cycles have another source than those of {paths[0]}: fit them separately"
            )
    points = [point for one in read_ones for point in one.points]
    names = [point.layout for point in points]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"layout {twice[0]} is given twice: a model needs one point per layout")
    if not points:
        raise UsageError(f"{paths[0]}: it has no points with walk cycles; measure with --replay or --trace")
    return Points(
        points,
        first.mhz,
        first.walk_cycles_from,
        first.nested,
        first.machine,
        first.system_seconds,
        [note for one in read_ones for note in one.notes],
        first.command,
        [layout for one in read_ones for layout in one.unknown_noise],
    )


def _of_csv(path: Path) -> Points:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {LETTERS.get(name, name) for row in rows[:1] for name in row if name}
    if missing := [column for column in COLUMNS if column not in names]:
        raise UsageError(f"{path}: column {missing[0]} is missing; a CSV file has {', '.join(COLUMNS)}")
    points = []
    for number, row in enumerate(rows, 2):
        cells = {LETTERS.get(name, name): text for name, text in row.items() if name}
        numbers = [_number(path, number, column, cells[column]) for column in COLUMNS[1:]]
        points.append(Point(_named(cells["layout"] or ""), *numbers))
    return Points(points, None, "file", False, None, None, [])


def _named(layout: str) -> str:
    name = layout.strip()
    return _SAME.get(name.lower(), name.lower() if name.lower() in (SMALL, HUGE) else name)


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{path}, line {line}: {column} is {text!r}; expected a number of at least 0")
    return value


def _of_measurement(measured: Measurement, path: Path, time: str) -> Points:
    notes, points = [], []
    if measured.walk_cycles_from is None:
        raise UsageError(f"{path}: it has no walk cycles; measure with --replay or --trace")
    counted = measured.walk_cycles_from == "counters"
    for layout in measured.layouts:
        point = _counted(layout, time) if counted else _replayed(layout, time)
        if point:
            points.append(point)
        else:
            notes.append(f"{layout.layout} is left out: its walk cycles are unknown")
    if not counted:
        notes += [OF_REPLAYS, *replay_warnings(measured.layouts)]
    notes += _noise(measured)
    small = next((layout for layout in measured.layouts if layout.layout == SMALL), None)
    apart = small.figure(lambda run: run.system_seconds).median if small and time == "user" else None
    clocks = (
        [measured.machine.clock_mhz] if counted else [layout.replay.mhz for layout in measured.layouts if layout.replay]
    )
    return Points(
        points,
        clocks[0] if clocks else None,
        measured.walk_cycles_from,
        measured.nested,
        measured.replay_machine,
        apart,
        notes,
        measured.command,
        [point.layout for point in points if point.noise is None],
    )


def _noise(measured: Measurement) -> list[str]:
    """Warnings about the accuracy of run times, if any."""
    if any(len(layout.runs) == 1 for layout in measured.layouts):
        return ["a layout was run once, so the noise of its run time is unknown"]
    known = {layout.layout: layout.figure(lambda run: run.cpu_seconds).relative for layout in measured.layouts}
    noisy = {layout: relative for layout, relative in known.items() if relative is not None and relative > NOISY}
    if not noisy:
        return []
    most = max(noisy.values())
    return [f"CPU time is known to ±{most:.0%} at worst ({', '.join(noisy)}): smaller errors mean little"]


def _counted(layout: Measured, time: str) -> Point | None:
    """A point from counters only; none if the TLB's are missing."""
    names = {name for run in layout.runs for name in run.counters}
    counts = {name: statistics.median(run.counters.get(name, 0) for run in layout.runs) for name in names}
    known = counters.translation(counts)
    if not {"walk_cycles", "tlb_hits", "tlb_misses"} <= known.keys():
        return None
    cycles = counts["cycles_user"] + (counts.get("cycles_kernel", 0) if time == "cpu" else 0)
    window = None if layout.replay is None else float(layout.replay.window_cycles)

    def spent(run: Run) -> float:
        return run.counters.get("cycles_user", 0) + (run.counters.get("cycles_kernel", 0) if time == "cpu" else 0)

    noise = layout.figure(spent).relative
    return Point(layout.layout, cycles, known["tlb_hits"], known["tlb_misses"], known["walk_cycles"], window, noise)


def _replayed(layout: Measured, time: str) -> Point | None:
    if layout.replay is None:
        return None

    def seconds(run: Run) -> float:
        return run.user_seconds if time == "user" else run.cpu_seconds

    replay = layout.replay
    # In the unit of the walk cycles: the simulated machine's clock.
    times = layout.figure(seconds)
    return Point(
        layout=layout.layout,
        runtime_cycles=times.median * replay.mhz * 1e6,
        tlb_hits=replay.tlb_hits,
        tlb_misses=replay.tlb_misses,
        walk_cycles=replay.walk_cycles,
        window_cycles=float(replay.window_cycles),
        noise=times.relative,
    )
