"""Runs of a program with its major faults: with limited memory, and its files dropped from the page cache.

Models: nothing; it measures. A program that prints lines KEY=VALUE with the keys of `KEYS` reports the figures of its
    requests, without starting, opening and loading. For other programs, the whole process counts.
Source: getrusage(2), posix_fadvise(2), mincore(2).
Parameters: the command, the memory limit, the files to be dropped, and the number of runs.
Deviations: pages that another process maps, or is writing, stay in the page cache; their number is reported. Only the
    named files are dropped, not the program's own file or its libraries.
"""

import ctypes
import mmap
import os
import platform
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.inherited import Launch
from pagelab.major_faults import MajorFaultError
from pagelab.major_faults.memory_group import Group, limited

KEYS = ("operations", "seconds", "major_faults", "minor_faults")
"""What a program may report about its requests, one KEY=VALUE per line of its standard output"""
_LEAST_LIMIT = 1 << 20


@dataclass(frozen=True)
class Plan:
    """What to run, and how."""

    command: Sequence[str]
    runs: int = 5
    memory_bytes: int | None = None
    cold: Sequence[Path] = ()
    operations: int | None = None
    """For a program that does not report its operations"""

    def check(self) -> None:
        """Refuses an impossible plan.

        Raises:
            UsageError: naming what is wrong and what would be right.
        """
        if not shutil.which(self.command[0]):
            raise UsageError(f"{self.command[0]}: no such program; give its path, or install it")
        if self.runs < 1:
            raise UsageError(f"--runs {self.runs}: give at least 1")
        if self.memory_bytes is not None and self.memory_bytes < _LEAST_LIMIT:
            raise UsageError(f"--memory {self.memory_bytes}: no program runs in that; give at least 1MiB")
        if self.operations is not None and self.operations < 1:
            raise UsageError(f"--operations {self.operations}: give at least 1, or leave it out")
        for file in self.cold:
            if not file.is_file():
                raise UsageError(f"--cold {file}: no such file; name the files that the program maps")


@dataclass(frozen=True)
class NativeRun:
    """One run. Faults and seconds are those of the requests if the program reported them, else of the process."""

    seconds: float
    major_faults: int
    minor_faults: int
    operations: int | None
    reported: bool
    """Whether the program reported the figures of its requests"""
    process_seconds: float
    process_major_faults: int
    process_minor_faults: int
    left_in_cache: int
    """Pages of the named files that could not be dropped"""
    peak_bytes: int | None
    """Most memory that was charged to the cgroup at once"""
    file_bytes: int | None
    """Page cache that was charged to the cgroup at the end"""
    refaults: int | None
    """Pages of files that the cgroup read again after they had left"""

    def to_dict(self) -> dict[str, Any]:
        """The form for JSON."""
        return {"told" if name == "reported" else name: value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Range:
    """Median, minimum and maximum of the runs."""

    median: float
    least: float
    most: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> "Range":
        every = list(values)
        return cls(statistics.median(every), min(every), max(every))


@dataclass(frozen=True)
class Native:
    """All runs of a plan."""

    plan: Plan
    runs: Sequence[NativeRun]
    cgroup: int | None
    """Version of the cgroup; none without a limit"""

    def range_of(self, name: str) -> Range:
        """A figure of `NativeRun` over the runs."""
        return Range.from_values(getattr(run, name) for run in self.runs)

    @property
    def operations(self) -> int | None:
        """Of each run; none if unknown."""
        return self.runs[0].operations

    @property
    def reported(self) -> bool:
        return all(run.reported for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """The form for JSON."""
        names = ("seconds", "major_faults", "minor_faults")
        return {
            "command": list(self.plan.command),
            "kernel": f"{platform.system()} {platform.release()}",
            "memory_limit_bytes": self.plan.memory_bytes,
            "cgroup_version": self.cgroup,
            "cold": [str(path) for path in self.plan.cold],
            "counted": "requests" if self.reported else "process",
            "operations": self.operations,
            **{name: vars(self.range_of(name)) for name in names},
            "runs": [run.to_dict() for run in self.runs],
        }


def measure(plan: Plan, report: Callable[[str], object] | None = None) -> Native:
    """Runs the program as planned.

    Args:
        report: Called with the current step.

    Raises:
        UsageError: the plan is impossible.
        MajorFaultError: the program fails, or memory cannot be limited here.
    """
    plan.check()
    say = report or (lambda _: None)
    version, runs = None, []
    for number in range(plan.runs):
        say(f"run {number + 1} of {plan.runs}")
        left = sum(drop(path) for path in plan.cold)
        with ExitStack() as stack:
            group = None if plan.memory_bytes is None else stack.enter_context(limited(plan.memory_bytes))
            version = group.version.number if group else None
            runs.append(_run(plan, group, left))
    if len({run.operations for run in runs}) > 1:
        every = ", ".join(str(run.operations) for run in runs)
        raise MajorFaultError(
            f"{plan.command[0]} performed a different number of operations in each run ({every}): fix its seed"
        )
    return Native(plan, runs, version)


def drop(path: Path) -> int:
    """Drops a file from the page cache; returns the pages that stayed.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident(path)


def resident(path: Path) -> int:
    """Pages of a file that are in the page cache."""
    size = path.stat().st_size
    if size == 0:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    # A private writable mapping, since Python gives the address of no other; none of it is touched.
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapping:
        first = ctypes.c_char.from_buffer(mapping)
        address = ctypes.addressof(first)
        failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), states)
        del first
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return sum(state & 1 for state in states)


def _run(plan: Plan, group: Group | None, left: int) -> NativeRun:
    # The process joins the group and then becomes the program, so nothing that the program does is charged elsewhere.
    join = (lambda: group.members.write_text("0", encoding="ascii")) if group else None
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as output:
        launch = Launch(plan.command, output=output.fileno(), prepare=join)
        with launch.ended_on_errors():
            try:
                before = launch.execute()
            except OSError as error:
                raise MajorFaultError(f"{error.filename}: {error.strerror}") from None
            started = time.monotonic()
            status, usage = launch.wait()
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read()
    _ensure_success(plan, group, status)
    figures = figures_in(text, plan.command[0])
    requests = all(key in figures for key in ("seconds", "major_faults", "minor_faults"))
    operations = figures.get("operations")
    process_major, process_minor = usage.ru_majflt - before.major_faults, usage.ru_minflt - before.minor_faults
    return NativeRun(
        seconds=figures["seconds"] if requests else seconds,
        major_faults=int(figures["major_faults"]) if requests else process_major,
        minor_faults=int(figures["minor_faults"]) if requests else process_minor,
        operations=plan.operations or (int(operations) if operations else None),
        reported=requests,
        process_seconds=seconds,
        process_major_faults=process_major,
        process_minor_faults=process_minor,
        left_in_cache=left,
        peak_bytes=group.peak_bytes() if group else None,
        file_bytes=group.file_bytes() if group else None,
        refaults=group.refaults() if group else None,
    )


def figures_in(text: str, program: str) -> dict[str, float]:
    """The values of known keys in a program's output, from lines KEY=VALUE. The last line of a key counts.

    Raises:
        MajorFaultError: a value is not a number, or is negative.
    """
    figures = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if not equals or key not in KEYS:
            continue
        try:
            figures[key] = float(value) if key == "seconds" else int(value)
        except ValueError:
            kind = "a number" if key == "seconds" else "a whole number"
            raise MajorFaultError(f"{program} printed {line!r}: {key} must be {kind}") from None
        if not 0 <= figures[key] < float("inf"):
            raise MajorFaultError(f"{program} printed {line!r}: {key} must be 0 or more")
    return figures


def _ensure_success(plan: Plan, group: Group | None, returned: int) -> None:
    if returned == 0:
        return
    if group and group.killed():
        assert plan.memory_bytes is not None
        raise MajorFaultError(
            f"{plan.command[0]} ran out of memory: {plan.memory_bytes >> 20} MiB cannot hold its unreclaimable "
            "memory; give more with --memory"
        )
    how = f"by signal {signal.Signals(-returned).name}" if returned < 0 else f"with status {returned}"
    raise MajorFaultError(f"{plan.command[0]} ended {how}; it must succeed to be counted")
