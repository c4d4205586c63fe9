"""Processes as /proc shows them: who they are, their threads and children, and whether they may be observed.

Source: proc(5); Documentation/filesystems/proc.rst of Linux; ptrace(2) for the access that /proc/PID/smaps asks for.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x0020_0000
_DEAD = "ZX"


@dataclass(frozen=True)
class Identity:
    """A process at one moment."""

    pid: int
    name: str
    parent: int
    started: int
    """In clock ticks since boot: with the PID, no other process ever has it"""
    minor_faults: int
    major_faults: int
    cpu_seconds: float


def identify(pid: int) -> Identity:
    """The process with this number.

    Raises:
        ProcessEndedError: it has ended, even if its parent has not waited for it.
        UsageError: it is a kernel thread.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessEndedError(f"process {pid} has ended") from None
    # The name may contain anything, so the rest begins after the last bracket.
    head, _, tail = text.rpartition(")")
    name, values = head.partition("(")[2], tail.split()
    if values[0] in _DEAD:
        raise ProcessEndedError(f"process {pid} has ended")
    if int(values[6]) & _KERNEL_THREAD:
        raise UsageError(f"process {pid} ({name}) is a kernel thread: it has no memory of its own")
    ticks = int(values[11]) + int(values[12])
    return Identity(
        pid, name, int(values[1]), int(values[19]), int(values[7]), int(values[9]), ticks / TICKS_PER_SECOND
    )


def ensure_observable(pid: int) -> Identity:
    """The process, if this user may look at its memory.

    Raises:
        UsageError: there is no such process, it is a kernel thread, or belongs to somebody else.
    """
    if not (PROC / str(pid)).is_dir():
        raise UsageError(f"there is no process {pid}, or /proc does not show it (hidepid, or another PID namespace)")
    identity = identify(pid)
    try:
        with (PROC / str(pid) / "smaps").open("rb") as smaps:
            smaps.read(1)
    except PermissionError:
        raise UsageError(
            f"process {pid} ({identity.name}) belongs to {_owner(pid)}, and this user may not look at its memory: run "
            "as that user or as root, or grant CAP_SYS_PTRACE, CAP_PERFMON and CAP_SYSLOG"
        ) from None
    except FileNotFoundError:
        raise UsageError("this kernel has no /proc/PID/smaps (CONFIG_PROC_PAGE_MONITOR)") from None
    except ProcessLookupError:
        raise ProcessEndedError(f"process {pid} has ended") from None
    return identity


def _owner(pid: int) -> str:
    try:
        number = (PROC / str(pid)).stat().st_uid
    except OSError:
        return "somebody else"
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def threads(pid: int) -> list[int]:
    """Its threads; none if it has ended."""
    try:
        return [int(folder.name) for folder in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """The processes that its threads have started and that run; none where the kernel does not list them."""
    numbers: list[int] = []
    for thread in threads(pid):
        try:
            text = (PROC / str(pid) / "task" / str(thread) / "children").read_text(encoding="ascii")
        except OSError:
            continue
        numbers += map(int, text.split())
    return numbers


def descendants(pids: list[int]) -> list[int]:
    """The processes, their children, the children of these, and so on."""
    known = dict.fromkeys(pids)
    left = list(pids)
    while left:
        for child in children(left.pop()):
            if child not in known:
                known[child] = None
                left.append(child)
    return list(known)
