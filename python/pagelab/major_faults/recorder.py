"""Touching pages, with and without perf."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab import _engine
from pagelab.faults.recorder import await_perf, reason
from pagelab.major_faults import MajorFaultError
from pagelab.major_faults.events import TRACEPOINTS, Event, Tracepoint, parse

_FIELDS = "comm,tid,cpu,time,event,trace"
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
HELD = 0.01
"""Largest share of the touches whose page may still be in the page cache"""


@dataclass(frozen=True)
class Pass:
    """The touches of one pass, in nanoseconds of CLOCK_MONOTONIC_RAW."""

    touches: list[tuple[int, int]]
    kernel: str
    cpu_model: str
    cycles_per_nanosecond: float
    real_time: bool

    @property
    def times(self) -> list[float]:
        return [float(end - begin) for begin, end in self.touches]


@dataclass(frozen=True)
class Target:
    """A file to touch, and how."""

    path: Path
    """May be a name under /proc/self/fd, which only this process can use"""
    faults: int
    cpu: int | None
    thread: str

    def touch(self, seed: int, *, direct: bool = False) -> Pass:
        """Touches pages that the page cache does not hold, or reads them past it.

        Raises:
            MajorFaultError: the pages stay in the page cache.
        """
        asked = {"faults": self.faults, "seed": seed, "cpu": self.cpu, "thread": self.thread, "direct": direct}
        timings = json.loads(_engine.touch_file_json(self.path, json.dumps(asked)))
        if not direct:
            ensure_cold(self.faults, timings["resident"], timings["major_faults"])
        touches = list(zip(timings["begin_ns"], timings["end_ns"], strict=True))
        host = timings["host"]
        return Pass(touches, host["kernel"], host["cpu_model"], timings["cycles_per_nanosecond"], timings["real_time"])


def ensure_cold(faults: int, resident: int, major: int) -> None:
    """Refuses touches that were not major faults.

    Raises:
        MajorFaultError: the page cache has not let go of the file's pages.
    """
    if resident > HELD * faults:
        raise MajorFaultError(
            f"the page cache still holds {resident:,} pages of the file after it was asked to drop them; it takes a "
            "file system that drops pages (posix_fadvise), such as ext4 or xfs on a block device"
        )
    if major < (1 - HELD) * faults:
        raise MajorFaultError(
            f"{faults:,} pages were touched and {major:,} of the faults were major; something reads the file "
            "meanwhile, or the file system reads ahead in spite of MADV_RANDOM"
        )


class Recorder:
    """perf with the tracepoints of major faults."""

    def __init__(self, folder: Path) -> None:
        self._program = find_perf()
        self._folder = folder
        ensure_tracepoints()
        self._try()

    def _try(self) -> None:
        """Records nothing, to check perf's permission."""
        data = self._folder / "refusal.data"
        tried = subprocess.run(
            [*self._command(TRACEPOINTS, "none", data), "--", "true"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        data.unlink(missing_ok=True)
        if tried.returncode:
            why = reason(tried.stderr) or f"perf ended with status {tried.returncode}"
            raise MajorFaultError(f"perf cannot record major faults here: {why} (needs root)")

    def _command(self, tracepoints: Sequence[Tracepoint], thread: str, data: Path) -> list[str]:
        command = [self._program, "record", "--quiet", "--no-buildid", "--all-cpus", "-c", "1"]
        command += ["--clockid", "CLOCK_MONOTONIC_RAW", "--mmap-pages", "8M", "-o", str(data)]
        for tracepoint in tracepoints:
            command += ["-e", tracepoint.name]
            if tracepoint.filter:
                command += ["--filter", tracepoint.filter.format(thread=thread)]
        return command

    def touch(self, target: Target, seed: int, tracepoints: Sequence[Tracepoint]) -> tuple[Pass, list[Event]]:
        """Touches, and the events recorded meanwhile, in the order of time."""
        if not tracepoints:
            return target.touch(seed), []
        data = self._folder / "perf.data"
        with self._recording(tracepoints, target.thread, data):
            done = target.touch(seed)
        return done, self._events(data, target.thread)

    @contextmanager
    def _recording(self, tracepoints: Sequence[Tracepoint], thread: str, data: Path) -> Iterator[None]:
        control, ready = self._folder / "control", self._folder / "ready"
        for fifo in (control, ready):
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        # Opened for both directions, so that no opening waits for the other side.
        to_perf, from_perf = (os.open(path, os.O_RDWR) for path in (control, ready))
        command = [*self._command(tracepoints, thread, data), "--delay", "-1", "--control", f"fifo:{control},{ready}"]
        # A process group of its own: Ctrl-C is for us. perf ends with `cat`, and that with us, however we end.
        perf = subprocess.Popen(
            [*command, "--", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        try:
            os.write(to_perf, b"enable\n")
            await_perf(from_perf, perf)
            yield
        finally:
            perf.communicate()
            os.close(to_perf)
            os.close(from_perf)

    def _events(self, data: Path, thread: str) -> list[Event]:
        command = [self._program, "script", "--ns", "-F", _FIELDS, "-i", str(data)]
        printed = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        data.unlink()
        if printed.returncode:
            why = reason(printed.stderr.decode(errors="replace")) or "no reason given"
            raise MajorFaultError(f"perf script cannot print what was recorded: {why}")
        return parse(printed.stdout.decode(errors="replace").splitlines(), thread)

    def instructions(self, target: Target, seed: int) -> float | None:
        """Instructions that the kernel executes per fault; none if the processor does not count them."""
        counted = []
        for faults in (0, target.faults):
            less = Target(target.path, faults, target.cpu, target.thread)
            count = self._count(less, seed)
            if count is None:
                return None
            counted.append(count)
        return (counted[1] - counted[0]) / max(target.faults, 1)

    def _count(self, target: Target, seed: int) -> int | None:
        command = [self._program, "stat", "-x", ",", "-e", "instructions:k", "--pid", str(os.getpid())]
        output = self._folder / "stat.csv"
        perf = subprocess.Popen(
            [*command, "-o", str(output)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        )
        try:
            # perf has no way to say that `stat --pid` counts; it takes milliseconds.
            try:
                perf.wait(0.5)
            except subprocess.TimeoutExpired:
                target.touch(seed)
        finally:
            if perf.poll() is None:
                perf.send_signal(signal.SIGINT)
            perf.communicate()
        for line in output.read_text(encoding="utf-8").splitlines() if output.exists() else []:
            count, *rest = line.split(",")
            if "instructions" in ",".join(rest) and count.isdecimal():
                return int(count)
        return None


_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[2]):
    for _ in range(100_000):
        pass
"""


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keeps every CPU busy with a program of the lowest priority (SCHED_IDLE).

    So no stage includes the time that a CPU takes to leave its idle state. Some kernels also lose perf's events of an
    idle CPU. The programs end with this one, however it ends.
    """
    with ExitStack() as undo:
        for cpu in sorted(os.sched_getaffinity(0)):
            spinner = subprocess.Popen(
                [sys.executable, "-c", _SPIN, str(cpu), str(os.getpid())], stdin=subprocess.DEVNULL, process_group=0
            )
            undo.callback(spinner.wait)
            undo.callback(spinner.kill)
        yield


def find_perf() -> str:
    """The program perf.

    Raises:
        MajorFaultError: it is not installed.
    """
    program = shutil.which("perf")
    if not program:
        raise MajorFaultError("perf is not installed; on Debian it is in the package linux-perf")
    return program


def ensure_tracepoints() -> None:
    """Looks for the kernel's tracepoints.

    Raises:
        MajorFaultError: this process may not see them, or some are missing.
    """
    if os.geteuid() != 0:
        raise MajorFaultError("tracepoints of all CPUs may be recorded by root alone; run this with sudo")
    events = next((Path(folder, "events") for folder in _TRACEFS if Path(folder, "events").is_dir()), None)
    if events is None:
        raise MajorFaultError(f"{_TRACEFS[0]} has no tracepoints; mount them: mount -t tracefs none {_TRACEFS[0]}")
    missing = [
        tracepoint.name for tracepoint in TRACEPOINTS if not (events / tracepoint.name.replace(":", "/")).is_dir()
    ]
    if missing:
        raise MajorFaultError(
            f"this kernel has no tracepoint {', '.join(missing)}; it takes Linux 6.1 or later with CONFIG_FTRACE"
        )


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for perf's files."""
    with tempfile.TemporaryDirectory(prefix="pagelab-major-faults-") as folder:
        yield Path(folder)
