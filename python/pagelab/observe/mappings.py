"""The mappings of a process, as /proc/PID/smaps describes them.

Source: Documentation/filesystems/proc.rst of Linux; fs/proc/task_mmu.c for the names of memory without a file.
Deviations: the process goes on while it is read, so the figures of two mappings are of slightly different times.
    Referenced counts a huge page as a whole, and pages of files also if another process has used them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.processes import PROC

HUGE_BYTES = 2 << 20
_SHARED = "/dev/zero (deleted)"
_KIB = 1024
_WANTED = (
    *("Rss", "Shared_Clean", "Shared_Dirty", "Referenced"),
    *("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap"),
)
# A header and the lines until VmFlags; the lines that are wanted stand in this order since Linux 4.20.
_MAPPING = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ *(.*)\n(?:[A-Z].*\n)*?"
    + rb"".join(rb"%b: +(\d+) kB\n(?:[A-Z].*\n)*?" % name.encode() for name in _WANTED)
    + rb"(?:VmFlags: (.*)\n)",
    re.MULTILINE,
)
# Nothing, the heap, the main stack, or what prctl(PR_SET_VMA) said.
_ANONYMOUS = re.compile(r"|\[heap\]|\[stack\]|\[anon:.*\]")


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping of a process at one moment; sizes in bytes."""

    begin: int
    end: int
    access: str
    """As /proc shows it: `rw-p`"""
    offset: int
    """Where in its file it begins"""
    name: str
    resident: int
    shared: int
    """Resident, and in another process as well"""
    referenced: int
    """Resident, and used since accessed bits were cleared"""
    huge: int
    """Resident in huge pages that one entry maps"""
    swapped: int
    flags: str
    """Two letters each, as /proc shows them: `hg`: huge pages are wanted, `nh`: they are not, `ht`: hugetlbfs"""

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def anonymous(self) -> bool:
        """Private memory without a file: what huge pages of the kernel's own accord are for."""
        return self.access[3:] == "p" and _ANONYMOUS.fullmatch(self.name) is not None

    @property
    def label(self) -> str:
        """What kind of memory it is, in a few words."""
        # What MAP_SHARED | MAP_ANONYMOUS has for a name.
        if not self.name or self.name == _SHARED:
            return "anonymous memory" if self.anonymous else "shared memory"
        if self.name == "[heap]":
            return "heap"
        if self.name == "[stack]":
            return "stack"
        return self.name


def mappings(pid: int) -> list[Mapping]:
    """The mappings of a process, in the order of their addresses.

    Raises:
        ProcessEndedError: it has ended.
        UsageError: this user may no longer look at it.
    """
    try:
        text = (PROC / str(pid) / "smaps").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessEndedError(f"process {pid} has ended") from None
    except PermissionError:
        raise UsageError(f"process {pid} now runs with other rights, and its memory is hidden") from None
    if not text:
        raise ProcessEndedError(f"process {pid} has ended")
    return parse(text)


def parse(text: bytes) -> list[Mapping]:
    """The mappings in the text of /proc/PID/smaps."""
    return [_mapping(match.groups()) for match in _MAPPING.finditer(text)]


def _mapping(parts: tuple[bytes, ...]) -> Mapping:
    begin, end, access, offset, name = parts[:5]
    sizes = [int(part) * _KIB for part in parts[5:15]]
    resident, clean, dirty, referenced, *huge, shared_reserved, reserved, swapped = sizes
    return Mapping(
        begin=int(begin, 16),
        end=int(end, 16),
        access=access.decode(),
        offset=int(offset, 16),
        name=name.decode(errors="replace").rstrip(),
        # Rss leaves out hugetlbfs.
        resident=resident + shared_reserved + reserved,
        shared=clean + dirty + shared_reserved,
        referenced=referenced,
        huge=sum(huge) + shared_reserved + reserved,
        swapped=swapped,
        flags=parts[15].decode(),
    )


def file_of(pid: int, name: str) -> Path:
    """Where the file of a mapping can be read: in a container, below the root of the process."""
    inside = PROC / str(pid) / "root" / name.lstrip("/")
    try:
        return inside if inside.is_file() else Path(name)
    except OSError:
        return Path(name)
