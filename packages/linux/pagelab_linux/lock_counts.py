"""Acquisitions of locks in a guest, and how many of them had to wait, as its kernel counts them (`/proc/lock_stat`).

Source: Documentation/locking/lockstat.rst and kernel/locking/lockdep_proc.c of Linux 6.12. An acquisition counts when
    the lock is released. It counts as contended if the lock was not to be had at once (`LOCK_CONTENDED` in
    include/linux/lockdep.h). The tracepoint `contention_begin` would need no such kernel. But it counts no
    acquisitions, nor the spinning of the first CPU that waits for a spin lock (kernel/locking/qspinlock.c).
Parameters: CPUs, rounds and memory of the guest.
Deviations: a lock that is only tried never counts as contended, above all that of a VMA. A fault that does not get it
    takes the lock of the address space, and the kernel counts that (`Counted.fallbacks`).
"""

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagelab_linux import LinuxError, guest
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.initramfs import Entry, compiled, initramfs
from pagelab_linux.report import GuestStep

KINDS = {
    "mmap_read": "&mm->mmap_lock-R",
    "mmap_write": "&mm->mmap_lock",
    "vma": "&vma->vm_lock->lock-R",
    "vma_write": "&vma->vm_lock->lock",
    "page_table": "ptlock_ptr(ptdesc)",
    "zone": "&zone->lock",
    "lru": "&lruvec->lru_lock",
    "rss": "key",
}
"""What Linux 6.12 calls locks, by their kind in statistics of simulations, which have no `vma_write`. Among those that
are called `key` are all counters with a part per CPU, such as that of an address space's mapped pages."""
_WRAPPER = "count_locks"
_VERSION = "lock_stat version 0.4"
_CLASS = re.compile(r"^\s*(?P<name>\S.*?)(?:#\d)?(?:/\d)?(?P<mode>-[RW])?:(?P<counts>(?:\s+\d+(?:\.\d+)?){12})\s*$")
_CONTENTIONS, _ACQUISITIONS = 1, 7
"""Columns of the counts"""
_STEPS = 20
"""A boot holds 24 of any kind"""


@dataclass(frozen=True)
class LockCount:
    """Of the locks of a class."""

    acquisitions: int = 0
    contended: int = 0
    """Acquisitions that had to wait"""

    def __add__(self, other: "LockCount") -> "LockCount":
        return LockCount(self.acquisitions + other.acquisitions, self.contended + other.contended)


@dataclass(frozen=True)
class Counted:
    """What the kernel counted during a run of a program."""

    result: str
    """What the program printed"""
    locks: Mapping[str, LockCount]
    """By class. Readers of a lock have a class of their own, whose name ends with -R."""
    fallbacks: int
    """Faults that did not get the lock of their VMA, from the program's start to its end"""
    waited: float = 0.0
    """Of the boot: share of their time in which emulated CPUs waited for the host's"""

    def count(self, name: str) -> LockCount:
        """Of a class, which may have had no acquisitions."""
        return self.locks.get(name, LockCount())

    def others(self) -> dict[str, LockCount]:
        """Contended classes that no kind has, the most contended first."""
        rest = {name: count for name, count in self.locks.items() if name not in KINDS.values() and count.contended}
        return dict(sorted(rest.items(), key=lambda item: -item[1].contended))


@dataclass(frozen=True)
class Guest:
    """A kernel that counts, and a program for it."""

    image: Image
    archive: Path
    program: str
    console: Path
    version: str

    @classmethod
    def from_workshop(cls, workshop: Workshop, source: Path) -> "Guest":
        """Builds both, unless they exist.

        Args:
            source: The program, in C. Its last argument is the switch of the counts (`kernel/tests/count_locks`).

        Raises:
            LinuxError: something cannot be built.
        """
        wrapper, program = workshop.layout.tests / _WRAPPER, stat.S_IFREG | 0o755

        def more() -> list[Entry]:
            return [
                Entry(f"tests/{_WRAPPER}", program, wrapper.read_bytes()),
                Entry(f"tests/{source.stem}", program, compiled(source)),
            ]

        archive = initramfs(workshop.layout, workshop.work, more, [wrapper, source])
        image = workshop.image(Variant(plain=True, locks=True))
        console = workshop.work / "consoles" / f"locks-{source.stem}.log"
        return cls(image, archive, source.stem, console, workshop.layout.series().version)

    def run(
        self, machine: guest.Machine, arguments: Sequence[Sequence[str]], before: Sequence[str] = ()
    ) -> Iterator[Counted]:
        """Runs the program with each of these arguments, several times in a boot.

        Args:
            before: Steps of the guest that come first, in each boot.

        Raises:
            LinuxError: the guest does not run to its end, or a program fails, or the kernel does not count.
        """
        steps = [",".join([_WRAPPER, self.program, *words]) for words in arguments]
        most = _STEPS - len(before)
        for first in range(0, len(steps), most):
            some = [*before, *steps[first : first + most]]
            output = guest.run(machine, self.image.kernel, self.archive, some, self.console)
            problems = output.problems()
            if problems:
                raise LinuxError(f"{'; '.join(problems)}; all is in {self.console}")
            for step in output.steps[len(before) :]:
                yield replace(counted(step), waited=output.waited)


def counted(step: GuestStep) -> Counted:
    """What a step of `kernel/tests/count_locks` printed.

    Raises:
        LinuxError: it printed no counts, or other ones than Linux 6.12 prints.
    """
    if _VERSION not in step.output:
        raise LinuxError(f"{step.command}: printed no line {_VERSION}, with which Linux 6.12 begins /proc/lock_stat")
    if any(line.startswith("*WARNING*") for line in step.output):
        raise LinuxError(f"{step.command}: the kernel has stopped counting locks; its console says after which mistake")
    locks: dict[str, LockCount] = {}
    for match in filter(None, map(_CLASS.match, step.output)):
        name, counts = match["name"] + ("-R" if match["mode"] == "-R" else ""), match["counts"].split()
        locks[name] = locks.get(name, LockCount()) + LockCount(int(counts[_ACQUISITIONS]), int(counts[_CONTENTIONS]))
    result = step.last("result")
    if result is None or not locks.get(KINDS["page_table"], LockCount()).acquisitions:
        raise LinuxError(
            f"{step.command}: the kernel counted no acquisition of {KINDS['page_table']}, which each fault takes; "
            "SWITCH of the program must be its last argument"
        )
    before, after = (
        sum(int(value) for name, value in step.values if name.startswith(f"{when}_vma_lock_"))
        for when in ("before", "after")
    )
    return Counted(result, locks, after - before)
