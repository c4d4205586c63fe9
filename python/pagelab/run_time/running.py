"""Running a program natively under a layout."""

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pagelab._engine import UsageError
from pagelab.capture.program_exit import SIGNALLED
from pagelab.inherited import leave_to_programs
from pagelab.run_time.layouts import Layout

_PR_SET_THP_DISABLE = 41
"""include/uapi/linux/prctl.h; children and programs that they execute inherit it"""
_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Run:
    """The time and events of a run of a program, including its children."""

    user_seconds: float
    system_seconds: float
    wall_seconds: float
    minor_faults: int
    major_faults: int
    exit_code: int
    counters: Mapping[str, int]
    """Hardware events by name; none if perf counts nothing."""

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds


@dataclass(frozen=True)
class Memory:
    """Anonymous memory of a program and its children at its maximum."""

    anonymous_bytes: int
    huge_bytes: int
    resident_bytes: int
    """The maximum of a single process."""
    processes: int
    without_library: int
    """Number of processes that had not loaded the library of layouts."""
    heap_extent_bytes: int = 0
    """From the heap's start to the end of its last touched page; 0 if no process reported it."""
    heap_bytes: int = 0
    """Bytes of the heap touched by the process that touched most; 0 if no process reported it."""

    @property
    def huge_share(self) -> float:
        return self.huge_bytes / self.anonymous_bytes if self.anonymous_bytes else 0.0


@dataclass(frozen=True)
class Files:
    """Where a program's input comes from and its output goes."""

    stdin: Path | None = None
    stdout: Path | None = None


class Program:
    """A program for repeated runs."""

    def __init__(self, command: Sequence[str], files: Files, library: Path, pool_bytes: int) -> None:
        self.command, self.files = list(command), files
        self._library, self._pool = library, pool_bytes

    def environment(self, layout: Layout, span_bytes: int) -> dict[str, str]:
        """The layout's additions to the program's environment."""
        return layout.environment(self._library, self._pool, span_bytes)

    def run(self, layout: Layout, span_bytes: int, before: Sequence[str] = ()) -> Run:
        """Runs it once and measures its time.

        Args:
            before: A command that runs the program, such as perf's.
        """
        words = self.environment(layout, span_bytes)
        if not before:
            return self._timed(layout, self.command, words)
        # The library is for the program, not for the command that runs it.
        return self._timed(layout, [*before, "env", *(f"{key}={value}" for key, value in words.items()), *self.command])

    def look(self, layout: Layout, span_bytes: int) -> tuple[Run, Memory]:
        """Runs it once, and samples its memory during the run and at the end; its errors are shown."""
        with tempfile.NamedTemporaryFile(prefix="pagelab-layout-", mode="r", encoding="ascii") as report:
            words = self.environment(layout, span_bytes) | {"PAGELAB_LAYOUT_REPORT": report.name}
            sampler = _Sampler()
            run = self._timed(layout, self.command, words, sampler=sampler, show_errors=True)
            return run, sampler.memory(report.read())

    def _timed(
        self,
        layout: Layout,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        sampler: "_Sampler | None" = None,
        show_errors: bool = False,
    ) -> Run:
        leave_to_programs()
        with self._input() as stdin, self._output() as stdout:
            begin = time.monotonic()
            try:
                child = subprocess.Popen(
                    command,
                    env=os.environ | (environment or {}),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=None if show_errors else subprocess.DEVNULL,
                    # A group of its own, so that all its processes can be ended.
                    process_group=0,
                    close_fds=False,
                    preexec_fn=_page_sizes(layout),
                )
            except OSError as error:
                raise UsageError(f"{command[0]}: {error.strerror}") from None
            try:
                if sampler:
                    sampler.start(child.pid)
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise
            finally:
                if sampler:
                    sampler.stop()
            wall = time.monotonic() - begin
        code = os.waitstatus_to_exitcode(status)
        child.returncode = code
        return Run(
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
            wall_seconds=wall,
            minor_faults=usage.ru_minflt,
            major_faults=usage.ru_majflt,
            exit_code=code if code >= 0 else SIGNALLED - code,
            counters={},
        )

    def _input(self) -> IO[bytes]:
        return (self.files.stdin or Path(os.devnull)).open("rb")

    def _output(self) -> IO[bytes]:
        return (self.files.stdout or Path(os.devnull)).open("wb")


def _page_sizes(layout: Layout) -> Any:
    """What a child does before it executes the program: `4k` forbids huge pages, whatever the host's setting is."""
    if not layout.touched:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    disable = ctypes.c_ulong(layout.small)
    return lambda: libc.prctl(_PR_SET_THP_DISABLE, disable, *[ctypes.c_ulong(0)] * 3)


class _Sampler:
    """Samples a process and all its descendants, about 50 times per second."""

    def __init__(self) -> None:
        self._most = (0, 0)
        self._resident = 0
        self._seen: set[int] = set()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, pid: int) -> None:
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread:
            self._thread.join()

    def _watch(self, pid: int) -> None:
        while not self._end.wait(_SAMPLE_SECONDS):
            amounts = [_rollup(process) for process in _family(pid, self._seen)]
            self._most = max(self._most, (sum(a for a, _, _ in amounts), sum(h for _, h, _ in amounts)))
            self._resident = max([self._resident, *(r for _, _, r in amounts)])

    def memory(self, report: str) -> Memory:
        """The samples, and the processes' reports at their ends (`layout.c`)."""
        lines = [line.split() for line in report.splitlines()]
        loaded = {int(words[1]) for words in lines if words[0] == "begins"}
        ends = [(int(words[2]) << 10, int(words[3]) << 10) for words in lines if words[0] == "ends"]
        anonymous, huge = max([self._most, *ends])
        pids = self._seen | {int(words[1]) for words in lines}
        # A forked process has its parent's libraries, and reports nothing when it begins.
        reporting = loaded | {int(words[1]) for words in lines}
        without = len(self._seen - reporting) if loaded else len(pids)
        extents = [(int(words[4]) << 10, int(words[5]) << 10) for words in lines if words[0] == "ends"]
        return Memory(
            anonymous,
            huge,
            max([self._resident, *(a for a, _ in ends)]),
            max(len(pids), 1),
            without,
            heap_extent_bytes=max((extent for extent, _ in extents), default=0),
            heap_bytes=max((touched for _, touched in extents), default=0),
        )


def _family(pid: int, seen: set[int]) -> list[int]:
    """A process and its living descendants; they are added to `seen`."""
    processes, left = [], [pid]
    while left:
        process = left.pop()
        processes.append(process)
        try:
            lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
        except OSError:
            continue
        left += [int(word) for text in lists for word in text.split()]
    seen |= set(processes)
    return processes


def _rollup(pid: int) -> tuple[int, int, int]:
    """Bytes of a process: anonymous, those of them in huge pages, resident; 0 if it has ended."""
    amounts = {"Anonymous:": 0, "AnonHugePages:": 0, "Rss:": 0}
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0, 0, 0
    for words in map(str.split, text.splitlines()):
        if words[0] in amounts:
            amounts[words[0]] = int(words[1]) << 10
    return amounts["Anonymous:"], amounts["AnonHugePages:"], amounts["Rss:"]
