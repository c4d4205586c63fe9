"""Keeps each CPU of a guest on a CPU of the host, and watches how long it waits for that.

Source: QEMU 7.2 names its threads with `-name debug-threads=on` (accel/tcg/tcg-accel-ops-mttcg.c: `CPU 0/TCG`).
    Documentation/scheduler/sched-stats.rst of Linux: `schedstat` has the nanoseconds on a CPU and those of waiting.
"""

import contextlib
import os
import re
import threading
import time
from pathlib import Path

from pagelab_linux import LinuxError

_THREAD = re.compile(r"CPU (\d+)/TCG\n")
_PAUSE = 0.01
"""Seconds between two looks for the threads, which are there long before the kernel runs programs"""
_BETWEEN = 0.1
"""Seconds between two looks at their times, the last of which count"""


class Pinning:
    """Finds the threads of a QEMU that emulate CPUs, and gives each one a CPU of its own."""

    def __init__(self, cpus: int) -> None:
        """For so many CPUs; 0: nothing is done."""
        self._left = set(range(cpus))
        self._times: dict[Path, tuple[int, int]] = {}
        self._looking: threading.Thread | None = None

    def begin(self, process: int) -> None:
        """Looks for the threads of this process from now on."""
        if self._left:
            self._looking = threading.Thread(target=self._look, args=(process,), daemon=True)
            self._looking.start()

    def check(self) -> None:
        """When the process has ended: were all found?

        Raises:
            LinuxError: one was not.
        """
        self._join()
        if self._left:
            names = ", ".join(f"CPU {number}" for number in sorted(self._left))
            raise LinuxError(f"{names} of the guest did not get a CPU of the host: QEMU has no thread of that name")

    def waited(self) -> float:
        """When the process has ended: the share of their time in which the threads waited for their CPUs."""
        self._join()
        ran, waited = (sum(times) for times in zip(*self._times.values(), strict=True)) if self._times else (0, 0)
        return waited / (ran + waited) if ran + waited else 0.0

    def _join(self) -> None:
        if self._looking:
            self._looking.join()

    def _look(self, process: int) -> None:
        usable = sorted(os.sched_getaffinity(0))
        tasks = Path(f"/proc/{process}/task")
        while self._left and tasks.is_dir():
            for task in tasks.glob("*"):
                # A thread may end meanwhile.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    match = _THREAD.fullmatch((task / "comm").read_text())
                    if match and int(match[1]) in self._left:
                        os.sched_setaffinity(int(task.name), {usable[int(match[1])]})
                        self._left.remove(int(match[1]))
                        self._times[task] = (0, 0)
            time.sleep(_PAUSE)
        while tasks.is_dir():
            for task in self._times:
                # A host may keep no such times, and a thread that ends has none.
                with contextlib.suppress(OSError, ValueError):
                    ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                    self._times[task] = (ran, waited)
            time.sleep(_BETWEEN)
