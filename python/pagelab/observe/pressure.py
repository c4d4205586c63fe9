"""What the kernel did for memory meanwhile: pressure, compaction, reclaim, huge pages that it made and split.

Source: Documentation/accounting/psi.rst and /proc/vmstat of Linux.
Deviations: /proc/vmstat counts the whole machine, and so does /proc/pressure unless the group has a file of its own.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PRESSURE = Path("/proc/pressure/memory")
_VMSTAT = Path("/proc/vmstat")
_KINDS = ("some", "full")

EVENTS: Mapping[str, str] = {
    "thp_fault_alloc": "huge pages by faults",
    "thp_fault_fallback": "faults that got no huge page",
    "thp_collapse_alloc": "huge pages by khugepaged or a call",
    "thp_split_page": "huge pages that were split",
    "compact_stall": "allocations that waited for compaction",
    "compact_fail": "compactions that did not help",
    "allocstall": "allocations that waited for reclaim",
    "pgscan_direct": "pages that allocations scanned for reclaim",
    "pgmajfault": "faults that waited for a device",
    "pswpin": "pages read from swap",
    "pswpout": "pages written to swap",
    "numa_pages_migrated": "pages moved between nodes",
    "nr_tlb_remote_flush": "TLB shootdowns",
}
"""What of /proc/vmstat concerns a program's paging, by its names there"""


@dataclass(frozen=True)
class Pressure:
    """The totals at one moment."""

    stalled_us: Mapping[str, int] | None
    """Time in which some or all tasks waited for memory, in microseconds; none if the kernel does not tell"""
    events: Mapping[str, int]

    def since(self, earlier: "Pressure") -> "Pressure":
        stalled = None
        if self.stalled_us is not None and earlier.stalled_us is not None:
            stalled = {kind: self.stalled_us[kind] - earlier.stalled_us.get(kind, 0) for kind in self.stalled_us}
        return Pressure(stalled, {name: value - earlier.events.get(name, 0) for name, value in self.events.items()})


def read_pressure(group: Path | None) -> Pressure:
    """The totals now, of the machine or of a control group's file."""
    return Pressure(_stalled(group or _PRESSURE), _events(_VMSTAT))


def _stalled(path: Path) -> dict[str, int] | None:
    # The file is there, but cannot be read, if the kernel was started with psi=0.
    with suppress(OSError, ValueError):
        lines = path.read_text(encoding="ascii").splitlines()
        return {line.split()[0]: int(line.rpartition("total=")[2]) for line in lines if line.split()[0] in _KINDS}
    return None


def _events(path: Path) -> dict[str, int]:
    events: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            name, value = line.split()
            # One line per zone.
            name = "allocstall" if name.startswith("allocstall_") else name
            if name in EVENTS:
                events[name] = events.get(name, 0) + int(value)
    return events
