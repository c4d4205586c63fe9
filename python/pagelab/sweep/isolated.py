"""A run in a separate process, so that all its effects end with that process."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Literal, TypeAlias

# How often a run's process is checked.
_LOOK_SECONDS = 0.1

Kind: TypeAlias = Literal["done", "refused", "lost", "stopped"]


@dataclass(frozen=True)
class Task:
    """The request to a process; it can be sent to another machine."""

    key: str
    request: dict[str, Any]
    expected: dict[str, Any]
    """The plan's findings, which the process must confirm: version, hash of the configuration, hashes of traces."""
    seconds: float
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    kind: Kind
    """`refused` is an answer, which another attempt would repeat; a run that is `lost` may be tried again."""
    text: str
    """The results as JSON, or what went wrong."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Host, processor time and peak memory, for the log."""


def attempt(
    task: Task,
    wanted: Callable[[], bool] = lambda: True,
    report: Callable[[float], object] = lambda _: None,
) -> Outcome:
    """Performs a run in a new process and waits for it.

    Args:
        wanted: Asked repeatedly; the process is killed once it returns false.
        report: Called with the finished part of the run, from 0 to 1.

    Raises:
        OSError: no process can be started.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagelab.sweep.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for the client, which ends its processes itself.
            start_new_session=True,
        )
        watch = _Watch(process, task.seconds, wanted)
        try:
            answer = _converse(process, task, report)
        finally:
            process.kill()
            process.wait()
            watch.join()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe and pipe.close()
        if answer is not None:
            return answer
        return watch.ended or Outcome("lost", _how_it_died(process.returncode, errors))


def _converse(process: "subprocess.Popen[bytes]", task: Task, report: Callable[[float], object]) -> Outcome | None:
    """The answer of the process; none if it ends without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    asked = {"expected": task.expected, "memory_bytes": task.memory_bytes, **task.request}
    # One that died at once says nothing below.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
    for line in process.stdout:
        if not line.endswith(b"\n"):
            return None
        message = json.loads(line)
        if "done" in message:
            report(message["done"])
        else:
            return Outcome(message["kind"], message["text"], message["provenance"])
    return None


class _Watch(threading.Thread):
    """Kills a process that takes too long or is no longer wanted."""

    def __init__(self, process: "subprocess.Popen[bytes]", seconds: float, wanted: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._process, self._seconds, self._wanted = process, seconds, wanted
        self.ended: Outcome | None = None
        self.start()

    def run(self) -> None:
        end = time.monotonic() + self._seconds
        while self._process.poll() is None:
            if not self._wanted():
                self.ended = Outcome("stopped", "stopped")
            elif time.monotonic() > end:
                self.ended = Outcome("lost", f"it took more than limits.seconds_per_run, {self._seconds:g} s")
            if self.ended:
                self._process.kill()
                return
            time.sleep(_LOOK_SECONDS)


def _how_it_died(status: int, errors: IO[bytes]) -> str:
    errors.seek(0)
    errors_printed = errors.read(1 << 16).decode(errors="replace").strip().splitlines()
    last = f": {errors_printed[-1][:300]}" if errors_printed else ""
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}{last}"
    return f"its process ended with status {status}{last}"
