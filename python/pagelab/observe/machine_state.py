"""The machine that a program was observed on: its processor, its settings for huge pages, and how its free memory lies.

Source: /proc/buddyinfo, /proc/meminfo (Documentation/filesystems/proc.rst of Linux), and `pagelab.run_time.host`.
Deviations: a zone's free pages that wait in the lists of CPUs are not in buddyinfo. What cannot be moved is estimated
    by the kernel's own memory: /proc/pagetypeinfo, which has it by block, is for root alone.
"""

from dataclasses import dataclass
from pathlib import Path

from pagelab.observe.layout import PAGE_BYTES
from pagelab.observe.mappings import HUGE_BYTES
from pagelab.run_time.host import machine

_PROC = Path("/proc")
_KIB = 1024
_UNMOVABLE = ("SUnreclaim", "KernelStack", "PageTables", "SecPageTables", "Percpu", "VmallocUsed")


@dataclass(frozen=True)
class MachineState:
    """The machine at the end of an observation; sizes in bytes."""

    cpu_model: str
    virtualised: bool
    huge_pages: str
    """Which memory Linux gives transparent huge pages: `always`, `madvise` or `never`"""
    memory_bytes: int
    available_bytes: int
    """Free, or free after reclaim, as the kernel estimates it"""
    free_bytes: int
    huge_free_bytes: int
    """Of the free memory, that in free blocks of 2 MiB or more"""
    unmovable_bytes: int


def machine_state(proc: Path = _PROC) -> MachineState | None:
    """The machine now; none if the kernel hides how free memory lies."""
    try:
        buddyinfo = (proc / "buddyinfo").read_text(encoding="ascii")
        meminfo = _amounts((proc / "meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    free, huge = free_bytes(buddyinfo)
    here = machine()
    return MachineState(
        here.cpu_model,
        here.virtualised,
        here.huge_pages,
        meminfo["MemTotal"],
        meminfo["MemAvailable"],
        free,
        huge,
        sum(meminfo.get(name, 0) for name in _UNMOVABLE),
    )


def free_bytes(buddyinfo: str) -> tuple[int, int]:
    """The free memory of all zones, and that in free blocks of 2 MiB or more."""
    free = huge = 0
    for line in buddyinfo.splitlines():
        counts = line.partition("zone")[2].split()[1:]
        for order, count in enumerate(map(int, counts)):
            size = int(count) * PAGE_BYTES << order
            free += size
            huge += size if PAGE_BYTES << order >= HUGE_BYTES else 0
    return free, huge


def _amounts(meminfo: str) -> dict[str, int]:
    """Bytes by name."""
    rows = (line.split() for line in meminfo.splitlines())
    return {row[0].removesuffix(":"): int(row[1]) * _KIB for row in rows if len(row) == 3}
