"""Recording the page faults of a native program.

Models: nothing; Linux's perf records each fault with its time, core, address and error code. If the tracepoints
    `exceptions:page_fault_user` and `page_fault_kernel` are not available, perf's software event `minor-faults` gives
    everything except the kind of access.
Source: perf-record(1), perf-script(1), Documentation/trace/events.rst of Linux.
Parameters: none.
Deviations: perf does not record how long a fault took. So the latency is one number: the time of the first write of a
    page on this machine, measured right before (`crates/pagelab-host`, benchmark `first-write`). Recording makes each
    fault slower. A small program with and without perf measures by how much, and models subtract it.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab import _engine
from pagelab._engine import TraceError, UsageError
from pagelab.inherited import Launch

BENCHMARK = "first-write"


@dataclass(frozen=True)
class Event:
    """An event that perf records for a fault, and its output."""

    name: str
    options: tuple[str, ...]
    fields: str
    needs: str
    note: str


EVENTS = (
    Event(
        "tracepoints",
        ("-e", "exceptions:page_fault_user", "-e", "exceptions:page_fault_kernel"),
        "comm,pid,tid,cpu,time,event,trace",
        "root and /sys/kernel/tracing (mount -t tracefs none /sys/kernel/tracing)",
        "recorded with tracepoints, which do not tell minor faults from major ones",
    ),
    Event(
        "minor-faults",
        ("-e", "minor-faults", "--data", "--sample-cpu"),
        "comm,pid,tid,cpu,time,event,addr",
        "kernel.perf_event_paranoid of at most 2, or root",
        "recorded with perf's software event, which does not tell the kind of access",
    ),
)
"""The events, the best one first."""

_PROBE = """
import mmap, time
PAGES = 10_000
memory = mmap.mmap(-1, PAGES * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
begin = time.process_time_ns()
for at in range(0, PAGES * 4096, 4096):
    memory[at] = 1
print((time.process_time_ns() - begin) / PAGES)
"""
_PROBES = 5
_PATIENCE_SECONDS = 60
_PRESSURE = Path("/proc/pressure/cpu")
_BUSY = 0.1
"""Share of the time with programs waiting for a CPU above which a recording says so"""


@dataclass(frozen=True)
class FaultRecording:
    """The result of a recording of faults."""

    faults: int
    processes: int
    threads: int
    cores: int
    seconds: float
    """How long the program ran, recording included"""
    cpu_seconds: float
    latency_ns: int
    """Of a fault, as sampled on this machine"""
    recording_cost_ns: int
    """Time by which recording made each fault slower, as sampled"""
    lost: int
    """Faults that perf lost"""
    event: str
    exit_code: int
    """The program's exit status, as in a shell."""
    notes: list[str]


def record_faults(
    command: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    report: Callable[[str], object] | None = None,
    begins: Callable[[], object] | None = None,
) -> FaultRecording:
    """Runs a program natively and records its page faults, and those of its children, into a new trace at `output`.

    The program has this process's standard input, output and error. The recording ends with the program; if
    children continue, their later faults are missing.

    Args:
        command: The program and its arguments, each as a separate text.
        output: The trace, `NAME.faults`; must not exist. Missing folders are created.
        report: Called with each step that takes a while before the program starts.
        begins: Called when the program is about to start.

    Raises:
        UsageError: perf is missing or may not record, there is no such program, or `output` exists.
        TraceError: the faults cannot be read or written, or there are none.
    """
    words, path = [os.fspath(word) for word in command], Path(output)
    if not words or not shutil.which(words[0]):
        raise UsageError(f"there is no program {words[0] if words else ''!r}; name one after --")
    if path.exists():
        raise UsageError(f"{path}: exists; name another output")
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pagelab-faults-", dir=path.resolve().parent) as folder:
        perf = Perf(Path(folder))
        if report:
            report("measuring the cost of a fault and of recording it: about 10 seconds")
        latency_ns, measured = _latency()
        cost_ns = perf.cost_ns()
        if begins:
            begins()
        ended = perf.record(words)
        perf.print_faults()
        facts = {
            "command": words,
            "recorded_here": True,
            "cores": os.cpu_count(),
            "duration_ns": round(ended.seconds * 1e9),
            "duration_origin": "the program's own wall-clock time, recording included",
            "cpu_time_ns": round(ended.cpu_seconds * 1e9),
            "latency": {"origin": "constant", "ns": latency_ns, "how": measured},
            "recording_cost_ns": cost_ns,
            "notes": [perf.event.note, *_busy(ended)],
        }
        info = json.loads(_engine.import_faults_json(perf.text, path, json.dumps(facts)))
    return FaultRecording(
        faults=info["faults"],
        processes=info["processes"],
        threads=info["threads"],
        cores=info["cores"],
        seconds=ended.seconds,
        cpu_seconds=ended.cpu_seconds,
        latency_ns=latency_ns,
        recording_cost_ns=cost_ns,
        lost=info["lost"],
        event=perf.event.name,
        exit_code=ended.exit_code,
        notes=info["notes"],
    )


def _latency() -> tuple[int, str]:
    """The time of the first write of a page on this machine in nanoseconds, and its origin."""
    measured = json.loads(_engine.measure_fault_json(BENCHMARK))
    cost, rate = measured["cost"], measured["clock"]["cycles_per_nanosecond"]
    median, lower, upper = (cost[f"{name}_cycles"] / rate for name in ("median", "lower_quartile", "upper_quartile"))
    how = (
        f"sampled: median of {cost['repeats']} runs of {BENCHMARK} on this machine before the recording, quartiles "
        f"{lower:.0f} to {upper:.0f} ns"
    )
    return max(round(median), 1), how


@dataclass(frozen=True)
class _Ended:
    """How a program ended."""

    seconds: float
    cpu_seconds: float
    exit_code: int
    waiting_seconds: float
    """How long at least one program of the machine waited for a CPU meanwhile"""


def _waiting_seconds() -> float:
    """How long some program has waited for a CPU (Documentation/accounting/psi.rst); 0 if the kernel does not report
    it."""
    try:
        some = _PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def _busy(ended: _Ended) -> list[str]:
    """A note if the machine was so busy that faults are farther apart than they would be on an idle one."""
    share = ended.waiting_seconds / max(ended.seconds, 1e-9)
    if share < _BUSY:
        return []
    return [
        f"programs of this machine waited for a CPU during {min(share, 1):.0%} of the recording: on an idle machine, "
        "the program would take less time, and its faults a larger share of it"
    ]


class Perf:
    """perf with the best event that it may record."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("perf")
        if not program:
            raise UsageError("perf is not installed; on Debian it is in the package linux-perf")
        self._program, self._folder = program, folder
        self._data, self.text = folder / "perf.data", folder / "faults.txt"
        refused = []
        for event in EVENTS:
            why = self._refusal(event)
            if why is None:
                self.event = event
                return
            refused.append(f"{event.name}: {why} (needs {event.needs})")
        raise UsageError(f"perf cannot record page faults here: {'; '.join(refused)}")

    def _options(self, event: Event, data: Path) -> list[str]:
        return [self._program, "record", "--quiet", "--no-buildid", "-c", "1", *event.options, "-o", str(data)]

    def _refusal(self, event: Event) -> str | None:
        """Why perf cannot record an event; none if it can."""
        data = self._folder / "refusal.data"
        command = [*self._options(event, data), "--", "true"]
        tried = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        data.unlink(missing_ok=True)
        if tried.returncode == 0:
            return None
        return reason(tried.stderr) or f"perf ended with status {tried.returncode}"

    def cost_ns(self) -> int:
        """The additional time of a fault while it is recorded: medians of a small program with and without perf."""
        data = self._folder / "cost.data"
        plain = [sys.executable, "-c", _PROBE]
        recorded = [*self._options(self.event, data), "--", *plain]
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_PROBES):
            for taken, command in zip(times, (plain, recorded), strict=True):
                run = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
                taken.append(float(run.stdout))
        data.unlink(missing_ok=True)
        without, with_perf = (statistics.median(taken) for taken in times)
        return max(round(with_perf - without), 0)

    def record(self, command: Sequence[str]) -> _Ended:
        """Runs a program and records its faults from its first instruction to its end."""
        launch = Launch(command)
        self._process = launch.pid
        with launch.ended_on_errors(), self._attached(launch.pid):
            try:
                before = launch.execute()
            except OSError as error:
                raise UsageError(f"{command[0]}: {error.strerror}") from None
            begin, waiting = time.monotonic(), _waiting_seconds()
            code, usage = launch.wait()
            seconds, waited = time.monotonic() - begin, _waiting_seconds() - waiting
        cpu_seconds = usage.ru_utime + usage.ru_stime - before.cpu_seconds
        return _Ended(seconds, cpu_seconds, code if code >= 0 else 128 - code, waited)

    @contextmanager
    def _attached(self, process: int) -> Iterator[None]:
        """Records a process and its children, until the end of the block."""
        control, ready = self._folder / "control", self._folder / "ready"
        os.mkfifo(control)
        os.mkfifo(ready)
        # Opened for both directions, so that no opening waits for the other side.
        to_perf, from_perf = (os.open(path, os.O_RDWR) for path in (control, ready))
        buffers = ["--mmap-pages", "4M"] if os.geteuid() == 0 else []
        command = [*self._options(self.event, self._data), *buffers, "--delay", "-1"]
        command += ["--control", f"fifo:{control},{ready}", "--pid", str(process)]
        # A process group of its own: Ctrl-C is for the program.
        perf = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        )
        try:
            os.write(to_perf, b"enable\n")
            await_perf(from_perf, perf)
            yield
        finally:
            if perf.poll() is None:
                perf.send_signal(signal.SIGINT)
            perf.communicate()
            os.close(to_perf)
            os.close(from_perf)

    def print_faults(self) -> None:
        """Converts the recording to text, from where the process became the program."""
        since = self._executed()
        command = [*self._script(self.event.fields), "--show-lost-events", *(["--time", f"{since},"] if since else [])]
        with self.text.open("wb") as text:
            printed = subprocess.run(
                command, stdout=text, stderr=subprocess.PIPE, check=False, stdin=subprocess.DEVNULL
            )
        if printed.returncode:
            why = reason(printed.stderr.decode(errors="replace")) or "no reason given"
            raise TraceError(f"perf script cannot print what was recorded: {why}")

    def _script(self, fields: str) -> list[str]:
        return [self._program, "script", "--ns", "-F", fields, "-i", str(self._data)]

    def _executed(self) -> str | None:
        """When the process became the program, as perf prints it. Its faults before are those of this command."""
        command = [*self._script("comm,pid,tid,time,event"), "--show-task-events"]
        executed = re.compile(rf" ([0-9.]+): PERF_RECORD_COMM exec: .*:{self._process}/{self._process}$")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        ) as printing:
            assert printing.stdout
            line = next((match for text in printing.stdout if (match := executed.search(text.rstrip()))), None)
            printing.kill()
        return line.group(1) if line else None


def reason(output: str) -> str:
    """perf's error in one line; empty if there is none."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    after = [line for _, error, line in (line.partition("Error:") for line in lines) if error]
    # The text may follow on the next line.
    at = next((number + 1 for number, line in enumerate(lines) if line == "Error:"), 0)
    return after[0].strip() if after and after[0] else "".join(lines[at : at + 1])


def await_perf(answers: int, perf: subprocess.Popen[bytes]) -> None:
    """Waits until perf says that it records."""
    os.set_blocking(answers, False)
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            if b"ack" in os.read(answers, 100):
                return
        except BlockingIOError:
            pass
        if perf.poll() is not None or time.monotonic() > give_up:
            if perf.poll() is None:
                perf.kill()
            assert perf.stderr
            why = reason(perf.stderr.read().decode(errors="replace")) or "it does not answer"
            raise UsageError(f"perf does not start recording: {why}")
        time.sleep(0.005)
