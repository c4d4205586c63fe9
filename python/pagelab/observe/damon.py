"""DAMON, the kernel's monitor of accesses: whether it runs for somebody else, whose monitors are never touched.

Source: Documentation/admin-guide/mm/damon/usage.rst of Linux, 6.0 and later; mm/damon/ops-common.c and clear_refs of
    fs/proc/task_mmu.c, 6.18: both read and clear the same accessed bits. What DAMON clears, pagelab still sees, as the
    kernel keeps it in the page's young flag. What pagelab clears, DAMON does not see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ADMIN = Path("/sys/kernel/mm/damon/admin/kdamonds")


@dataclass(frozen=True)
class Monitor:
    """A thread of DAMON that runs."""

    number: str
    """Its folder"""
    thread: str
    """Its PID"""
    operations: Sequence[str]
    """`paddr` for the memory of the machine, `vaddr` or `fvaddr` for processes"""
    targets: Sequence[int]
    """The processes"""


def monitors(folder: Path | None = None) -> list[Monitor] | None:
    """The monitors that run now; none if the kernel has no DAMON, or hides it from this user."""
    folder = folder or ADMIN
    try:
        numbers = sorted(path for path in folder.iterdir() if path.name.isdecimal())
        return [_monitor(path) for path in numbers if text_of(path / "state") == "on"]
    except OSError:
        return None


def _monitor(path: Path) -> Monitor:
    contexts = [one for one in (path / "contexts").iterdir() if one.name.isdecimal()]
    operations = [text_of(one / "operations") for one in contexts]
    pids = [text_of(target) for one in contexts for target in one.glob("targets/*/pid_target")]
    return Monitor(path.name, text_of(path / "pid"), operations, [int(pid) for pid in pids if pid.isdecimal()])


def text_of(path: Path) -> str:
    """What a file of DAMON's says."""
    return path.read_text(encoding="ascii").strip()


def note(running: Sequence[Monitor] | None, *, clears: bool) -> str | None:
    """What to say of DAMON; nothing if it does not run.

    Args:
        running: The monitors that run.
        clears: Whether accessed bits are cleared.
    """
    if not running:
        return None
    names = ", ".join(f"kdamond {one.number} (thread {one.thread}, {' and '.join(one.operations)})" for one in running)
    text = f"DAMON is busy: {names} belongs to someone else, and is left alone"
    if clears:
        text = f"{text}. It does not see accesses whose bits this observation cleared; --no-referenced clears none"
    return f"{text}."
