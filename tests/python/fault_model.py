"""The minor faults that Linux would count for a trace: a second, plain statement of its rules, apart from the engine's.

Models: which accesses of a recorded program fault with 4 KiB pages, all files in the page cache, no huge pages, no
    reclaim and no swap, and why each does. Nothing is timed and no frame has a number.
Source: Linux 6.18: mm/memory.c (do_anonymous_page, do_read_fault, do_fault_around, do_cow_fault, do_shared_fault,
    do_wp_page, copy_page_range), mm/filemap.c (filemap_map_pages), mm/mprotect.c (can_change_pte_writable), mm/mremap.c
    (move_page_tables), fs/binfmt_elf.c (elf_load). docs/minor-faults.md has the rules in words.
Parameters: `FAULT_AROUND_PAGES`, 16 (fault_around_bytes, 64 KiB); `native`, where the kernel mapped each file, if
    windows are to fall as they did there.
Deviations: folios are pages (from 6.18 on, finish_fault maps all of a large folio); a page of a file that is marked for
    read-ahead is mapped by fault-around as any other; files in memory count as ordinary files without holes; every
    anonymous mapping has an anon_vma, as it has where it was merged with a neighbour; stacks have full size;
    MADV_FREE and mlock do nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import polars as pl

PAGE_BITS = 12
PAGE_BYTES = 1 << PAGE_BITS
PAGES_PER_TABLE = 512
FAULT_AROUND_PAGES = 16
STACK_PAGES = 2048
"""How far a stack may grow (RLIMIT_STACK, 8 MiB)"""

PROT_WRITE = 2
MAP_SHARED = 0x01
MAP_ANONYMOUS = 0x20
MAP_GROWSDOWN = 0x100
MAP_LOCKED = 0x2000
MAP_POPULATE = 0x8000
MADV_DONTNEED = 4
KINDS_WRITING = [1, 2]
KIND_BY_KERNEL = 16


class Cause(StrEnum):
    """Why an access faults, by the kernel's function that handles it."""

    ANON_WRITE = "anonymous, written first"
    """do_anonymous_page"""
    ZERO_READ = "anonymous, read first"
    """do_anonymous_page, the zero page"""
    ZERO_WRITE = "zero page written"
    """do_wp_page"""
    FILE_READ = "file, read first"
    """do_read_fault, do_fault_around"""
    FILE_WRITE = "private file, written first"
    """do_cow_fault"""
    FILE_COPY = "private file, written when mapped"
    """do_wp_page"""
    FORK_COPY = "written after fork"
    """do_wp_page"""
    SHARED_WRITE = "shared, written"
    """do_shared_fault, wp_page_shared"""


class State(Enum):
    """What a present PTE maps."""

    ZERO = 0
    CACHE = 1
    """A page-cache page, not writable"""
    OWN = 2
    """The process's own page, writable where the mapping is"""
    FORKED = 3
    """An own page that fork write-protected"""
    SHARED = 4
    """A shared page, writable"""


@dataclass(frozen=True)
class Fault:
    process: int
    vpn: int
    cause: Cause
    file: str | None
    file_page: int | None


@dataclass
class Vma:
    start: int
    end: int
    shared: bool
    writable: bool
    """When it was mapped"""
    file: str | None
    file_page: int
    shift: int = 0
    """Pages from where the trace has it to where the kernel had it (modulo a page table's)"""
    copied: bool = False
    """A mapping of a file that got an anon_vma, since a page of it was written. Without, fork copies no PTE of it
    (vma_needs_copy)."""


@dataclass
class Space:
    vmas: list[Vma] = field(default_factory=list)
    ptes: dict[int, State] = field(default_factory=dict)

    def find(self, vpn: int) -> Vma | None:
        at = bisect_right(self.vmas, vpn, key=lambda vma: vma.start) - 1
        return self.vmas[at] if at >= 0 and vpn < self.vmas[at].end else None

    def split(self, at: int) -> None:
        vma = self.find(at)
        if vma is not None and vma.start < at:
            tail = replace(vma, start=at, file_page=vma.file_page + at - vma.start)
            vma.end = at
            self._insert(tail)

    def cut(self, start: int, end: int) -> list[Vma]:
        """Takes out all mappings between two pages."""
        self.split(start)
        self.split(end)
        out = [vma for vma in self.vmas if start <= vma.start < end]
        self.vmas = [vma for vma in self.vmas if not start <= vma.start < end]
        return out

    def unmap(self, start: int, end: int) -> None:
        self.cut(start, end)
        self.zap(start, end)

    def zap(self, start: int, end: int) -> None:
        if end - start > len(self.ptes):
            self.ptes = {vpn: state for vpn, state in self.ptes.items() if not start <= vpn < end}
        else:
            for vpn in range(start, end):
                self.ptes.pop(vpn, None)

    def map(self, vma: Vma) -> None:
        self.unmap(vma.start, vma.end)
        self._insert(vma)

    def _insert(self, vma: Vma) -> None:
        self.vmas.insert(bisect_right(self.vmas, vma.start, key=lambda other: other.start), vma)

    def move(self, old: int, old_pages: int, new: int, new_pages: int) -> None:
        moved = self.cut(old, old + old_pages)
        kept = min(old_pages, new_pages)
        ptes = {vpn: self.ptes.pop(vpn) for vpn in range(old, old + old_pages) if vpn in self.ptes}
        if old != new:
            self.unmap(new, new + new_pages)
        for vma in moved:
            start = vma.start - old + new
            end = new + new_pages if vma is moved[-1] else min(vma.end - old + new, new + new_pages)
            if start < end:
                self._insert(replace(vma, start=start, end=end, shift=vma.shift))
        self.ptes |= {vpn - old + new: state for vpn, state in ptes.items() if vpn - old < kept}

    def forked(self) -> Space:
        """The child's copy; own pages of both become write-protected."""
        child = Space([replace(vma) for vma in self.vmas])
        for vpn, state in self.ptes.items():
            vma = self.find(vpn)
            if vma is not None and (vma.copied or (vma.file is None and not vma.shared)):
                child.ptes[vpn] = State.FORKED if state is State.OWN else state
        self.ptes |= {vpn: State.FORKED for vpn, state in self.ptes.items() if state is State.OWN}
        return child


@dataclass
class Process:
    number: int
    program: str
    space: Space
    fresh: bool = True
    """No access since exec"""


class Model:
    """Replays a trace by pages.

    Args:
        trace: The trace's folder.
        native: Virtual address of a mapping on the real machine by program, path and file offset; windows of
            fault-around are aligned in virtual memory, so that a library at another address faults elsewhere.
    """

    def __init__(self, trace: Path, native: Mapping[tuple[str, str, int], int] | None = None) -> None:
        self._native = native or {}
        self._processes: dict[int, Process] = {}
        self._process_of_thread: dict[int, int] = {}
        self.faults: list[Fault] = []
        self._run(trace)

    def counts(self) -> Counter[Cause]:
        return Counter(fault.cause for fault in self.faults)

    def _run(self, trace: Path) -> None:
        events = pl.read_parquet(trace / "events-*.parquet")
        rows = list(events.iter_rows(named=True))
        done = 0
        for segment, tid, vpn, writes in _touches(trace, events["position"]):
            while done < segment:
                self._event(rows[done])
                done += 1
            process = self._processes[self._process_of_thread[tid]]
            if process.fresh:
                self._load(process)
            self._touch(process, vpn, writes=writes)
        for row in rows[done:]:
            self._event(row)

    def _event(self, row: Mapping[str, Any]) -> None:
        number = row["process"]
        kind = row["kind"]
        if kind == "process_start":
            self._processes[number] = Process(number, "", Space())
            return
        process = self._processes[number]
        space = process.space
        addr, pages = (row["addr"] or 0) >> PAGE_BITS, _pages(row["len"] or 0)
        match kind:
            case "thread_start":
                self._process_of_thread[row["thread"]] = number
            case "fork" | "vfork":
                child = space.forked() if kind == "fork" else space
                other = row["other_process"]
                self._processes[other] = Process(other, process.program, child, fresh=False)
            case "exec":
                process.space, process.fresh, process.program = Space(), True, ""
            case "mmap":
                file = None if row["flags"] & MAP_ANONYMOUS else row["file"]
                if not process.program and file:
                    process.program = file
                offset = row["file_offset"] or 0
                end = addr + pages
                vma = Vma(
                    end - STACK_PAGES if row["flags"] & MAP_GROWSDOWN else addr,
                    end,
                    shared=bool(row["flags"] & MAP_SHARED),
                    writable=bool(row["prot"] & PROT_WRITE),
                    file=file,
                    file_page=offset >> PAGE_BITS,
                )
                if file and (at := self._native.get((process.program, file, offset))) is not None:
                    vma.shift = ((at >> PAGE_BITS) - addr) % PAGES_PER_TABLE
                space.map(vma)
                if row["flags"] & (MAP_POPULATE | MAP_LOCKED) and row["prot"]:
                    # get_user_pages faults as an access would, and counts (mm_account_fault).
                    for vpn in range(vma.start, vma.end):
                        self._touch(process, vpn, writes=vma.writable and not vma.shared)
            case "munmap":
                space.unmap(addr, addr + pages)
            case "mremap":
                space.move(row["old_addr"] >> PAGE_BITS, _pages(row["old_len"]), addr, pages)
            case "mprotect":
                space.split(addr)
                space.split(addr + pages)
            case "madvise" if row["argument"] == MADV_DONTNEED:
                space.zap(addr, addr + pages)
            case "brk":
                self._brk(space, _pages(row["addr"]), _pages(row["addr"] + row["len"]))

    @staticmethod
    def _brk(space: Space, start: int, end: int) -> None:
        heap = next((vma for vma in space.vmas if vma.start == start and vma.file is None), None)
        if heap is None:
            if end > start:
                space.map(_anonymous(start, end))
        elif end < heap.end:
            space.unmap(end, heap.end)
        else:
            heap.end = end

    def _load(self, process: Process) -> None:
        """elf_load clears what follows .data on its last page, in the program and in ld.so."""
        process.fresh = False
        last = {vma.file: vma for vma in process.space.vmas if vma.file is not None}
        for vma in last.values():
            if vma.writable:
                self._touch(process, vma.end - 1, writes=True)

    def _touch(self, process: Process, vpn: int, *, writes: bool) -> None:
        space = process.space
        state = space.ptes.get(vpn)
        if state in (State.OWN, State.SHARED) or (state is not None and not writes):
            return
        vma = space.find(vpn)
        if vma is None:
            vma = _anonymous(vpn, vpn + 1)
        cause = self._fault(space, vma, vpn, state, writes)
        file_page = None if vma.file is None else vma.file_page + vpn - vma.start
        self.faults.append(Fault(process.number, vpn, cause, vma.file, file_page))

    @staticmethod
    def _fault(space: Space, vma: Vma, vpn: int, state: State | None, writes: bool) -> Cause:
        if vma.shared:
            if writes:
                space.ptes[vpn] = State.SHARED
                return Cause.SHARED_WRITE
            if vma.file is None:
                space.ptes[vpn] = State.SHARED
                return Cause.FILE_READ
        if writes:
            space.ptes[vpn] = State.OWN
            vma.copied = True
            match state:
                case State.ZERO:
                    return Cause.ZERO_WRITE
                case State.FORKED:
                    return Cause.FORK_COPY
                case State.CACHE:
                    return Cause.FILE_COPY
                case _:
                    return Cause.ANON_WRITE if vma.file is None else Cause.FILE_WRITE
        if vma.file is None:
            space.ptes[vpn] = State.ZERO
            return Cause.ZERO_READ
        for near in _around(vma, vpn):
            space.ptes.setdefault(near, State.CACHE)
        return Cause.FILE_READ


def _around(vma: Vma, vpn: int) -> range:
    """The pages that do_fault_around maps: within the VMA and the page table, aligned in virtual memory."""
    index = (vpn + vma.shift) % PAGES_PER_TABLE
    first = max(index - index % FAULT_AROUND_PAGES, index - min(index, vpn - vma.start))
    end = min(first + FAULT_AROUND_PAGES, PAGES_PER_TABLE, index + vma.end - vpn)
    return range(vpn - index + first, vpn - index + end)


def _anonymous(start: int, end: int) -> Vma:
    return Vma(start, end, shared=False, writable=True, file=None, file_page=0)


def _pages(length: int) -> int:
    return -(-length >> PAGE_BITS)


def _touches(trace: Path, positions: pl.Series) -> Iterator[tuple[int, int, int, bool]]:
    """Each page's first read and first write between two events, in order: events before it, thread, page, writes."""
    before = 0
    for part in sorted(trace.glob("accesses-*.parquet")):
        accesses = pl.read_parquet(part, columns=["kind", "size", "vaddr", "tid"]).select(
            "tid",
            order=pl.int_range(pl.len(), dtype=pl.UInt64) + before,
            writes=(pl.col("kind") % KIND_BY_KERNEL).is_in(KINDS_WRITING),
            vpn=pl.col("vaddr") // PAGE_BYTES,
            last=(pl.col("vaddr") + pl.col("size") - 1) // PAGE_BYTES,
        )
        before += len(accesses)
        crossing = accesses.filter(pl.col("last") != pl.col("vpn")).with_columns(vpn="last")
        accesses = pl.concat([accesses, crossing])
        segment = positions.search_sorted(accesses["order"], side="right")
        first = (
            accesses.with_columns(segment=segment)
            .group_by("segment", "tid", "vpn", "writes")
            .agg(pl.col("order").min())
            .sort("order", "vpn")
        )
        yield from first.select("segment", "tid", "vpn", "writes").iter_rows()
