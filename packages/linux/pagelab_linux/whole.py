"""A program with its kernel as a trace that is replayed under caches, TLBs and page walks.

Models: the guest's memory is a file whose offsets are physical addresses (`kernel/layer/recorded.rs` of the engine).
    The kernel's references stay at its own addresses, cut to the bits that page tables translate. What it reaches at
    one offset of whole 2 MiB is mapped by pages of 2 MiB, as its direct map is, and all else by pages of 4 KiB. The
    program's pages are of 4 KiB. Each appears where the guest's fault has ended, and the processor's part of the
    fault, a walk in vain, stands where it began.
Source: `kernel/plugin/fault_trace.c`, whose log has virtual and physical addresses; arch/x86/mm/fault.c of Linux 6.12.
Parameters: none.
Deviations: which page a fault was of is not logged. It is one of those that the next instruction of user code refers
    to: new to the log, in another frame than before, or stored to for the first time. A fault of which there is none,
    such as one of code, is replayed without its walk. A page that faults although the mapping before allows the access
    was gone; when is unknown, so it goes as the fault begins. An access across pages is replayed as far as its first
    one. The program's large pages, and the 4 KiB parts of the kernel's, are not told from others. Page tables have the
    simulator's memory, so a walk does not find the lines that the guest's kernel has written. All programs of the
    guest count as one. What a page was mapped to before the log begins is unknown: its first fault finds nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab_linux import references
from pagelab_linux.references import KEPT, LARGE_PAGE, OF_USER, PAGE, STORE, Rows

FILE = "guest-memory"
_SHARED, _HUGETLB_2M, _RECORDED = 0x01, 0x40000 | LARGE_PAGE << 26, 1 << 25
_NONE, _READ, _READ_WRITE = 0, 1, 3
_KERNEL_HALF = np.uint64(1 << 63)
_FIRST_OF_FOUR_LEVELS = np.uint64(0xFFFF800000000000)

Numbers = NDArray[np.int64]
Event = dict[str, Any]


@dataclass(frozen=True)
class Faults:
    """Faults of which the page is known, in their order; all numbers are of accesses."""

    access: Numbers
    """What the program did then"""
    begin: Numbers
    end: Numbers
    unknown: int
    """How many others there are"""


@dataclass(frozen=True)
class Spans:
    """Times during which a page of 4 KiB had one frame and one permission, by page and time."""

    page: Numbers
    frame: Numbers
    first: Numbers
    """Its first access"""
    stores: NDArray[np.bool_]
    """Whether there are any"""
    fault: Numbers
    """By which it begins: its index; or -1"""
    follows: NDArray[np.bool_]
    """Whether there is a span of the same page before it"""
    stored_first: NDArray[np.bool_]
    """Whether its first access is a store"""

    def events(self, faults: Faults) -> Iterator[tuple[int, int, Event]]:
        """With position, and place among those of the same position."""
        for at in range(len(self.page)):
            page, fault = int(self.page[at]), int(self.fault[at])
            prot = _READ_WRITE if self.stores[at] else _READ
            if fault < 0:
                position = int(self.first[at]) if self.follows[at] else 0
                yield position, -1, _mapping(page << PAGE, 1 << PAGE, prot, 0, int(self.frame[at]) << PAGE)
                continue
            begin, end, write = int(faults.begin[fault]), int(faults.end[fault]), bool(self.stored_first[at])
            if self.follows[at] and (self.stores[at - 1] or not write):
                yield begin, 3 * fault, _mapping(page << PAGE, 1 << PAGE, _NONE, 0, 0)
            yield begin, 3 * fault + 1, {"fault": {"addr": page << PAGE, "write": write}}
            yield end, 3 * fault + 2, _mapping(page << PAGE, 1 << PAGE, prot, 0, int(self.frame[at]) << PAGE)


def write(rows: Rows, output: Path, command: Sequence[str]) -> Path:
    """Writes the trace.

    Raises:
        UsageError: the output exists.
    """
    is_access = rows["what"] <= STORE
    accesses = rows[is_access]
    of_kernel = accesses["address"] >= _KERNEL_HALF
    bits = 57 if (accesses["address"][of_kernel] < _FIRST_OF_FOUR_LEVELS).any() else 48
    addresses = accesses["address"] & np.uint64((1 << bits) - 1)
    faults = _faults(rows, np.cumsum(is_access), accesses)
    large = np.zeros(len(accesses), dtype=bool)
    large[of_kernel] = _are_large(addresses[of_kernel], accesses["physical"][of_kernel])
    events = [(0, -2, event) for event in _large_mappings(addresses[large], accesses["physical"][large])]
    small = np.flatnonzero(~large)
    events += _spans(accesses, addresses, small, faults).events(faults)
    events.sort(key=lambda each: each[:2])
    notes = [
        f"The guest's memory is the file {FILE}; its kernel and its program map it, each at its own addresses.",
        f"{len(faults.access)} faults of the program are replayed from the walk on, and {faults.unknown} without it.",
        "Kernel accesses are of page faults, interrupts and other tasks. Fetches and page walks are not recorded.",
    ]
    sizes = np.minimum(1 << accesses["shift"].astype(np.int64), 4096 - (addresses & np.uint64(4095)).astype(np.int64))
    event_rows = [{"position": position, "event": event} for position, _, event in events]
    return references.write_trace(accesses, addresses, sizes, output, command, notes, event_rows)


def _mapping(addr: int, length: int, prot: int, flags: int, physical: int) -> Event:
    flags |= _SHARED | _RECORDED
    return {"mmap": {"addr": addr, "len": length, "prot": prot, "flags": flags, "file": FILE, "file_offset": physical}}


def _are_large(addresses: NDArray[np.uint64], physical: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether all that the log has of the 2 MiB around it is at one offset, of whole 2 MiB, from physical ones."""
    blocks, index = np.unique(addresses >> np.uint64(LARGE_PAGE), return_inverse=True)
    offsets = addresses - physical
    least = np.full(len(blocks), ~np.uint64(0))
    most = np.zeros(len(blocks), dtype=np.uint64)
    np.minimum.at(least, index, offsets)
    np.maximum.at(most, index, offsets)
    fits: NDArray[np.bool_] = (least == most) & (least & np.uint64((1 << LARGE_PAGE) - 1) == 0)
    return fits[index]


def _large_mappings(addresses: NDArray[np.uint64], physical: NDArray[np.uint64]) -> list[Event]:
    blocks, first = np.unique(addresses >> np.uint64(LARGE_PAGE), return_index=True)
    frames = physical[first] >> np.uint64(LARGE_PAGE)
    return [
        _mapping(int(block) << LARGE_PAGE, 1 << LARGE_PAGE, _READ_WRITE, _HUGETLB_2M, int(frame) << LARGE_PAGE)
        for block, frame in zip(blocks, frames, strict=True)
    ]


def _by_page(accesses: Rows, addresses: NDArray[np.uint64], which: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Accesses by page and time, with their pages and frames."""
    pages = (addresses[which] >> np.uint64(PAGE)).astype(np.int64)
    order = np.argsort(pages, kind="stable")
    chosen = which[order]
    return chosen, pages[order], (accesses["physical"][chosen] >> np.uint64(PAGE)).astype(np.int64)


def _changes(values: Numbers) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; the first does."""
    changes = np.ones(len(values), dtype=bool)
    changes[1:] = values[1:] != values[:-1]
    return changes


def _spans(accesses: Rows, addresses: NDArray[np.uint64], which: Numbers, faults: Faults) -> Spans:
    chosen, pages, frames = _by_page(accesses, addresses, which)
    fault_of = np.full(len(accesses), -1, dtype=np.int64)
    fault_of[faults.access] = np.arange(len(faults.access))
    new_page = _changes(pages)
    starts = np.flatnonzero(new_page | _changes(frames) | (fault_of[chosen] >= 0))
    stores = accesses["what"][chosen] == STORE
    return Spans(
        page=pages[starts],
        frame=frames[starts],
        first=chosen[starts],
        stores=np.logical_or.reduceat(stores, starts) if len(starts) else np.zeros(0, dtype=bool),
        fault=fault_of[chosen[starts]],
        follows=~new_page[starts],
        stored_first=stores[starts],
    )


def _are_new(accesses: Rows, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether an access is the first one to its page, or to the page in its frame, or the first store to that."""
    chosen, pages, frames = _by_page(accesses, addresses, np.arange(len(accesses)))
    starts = _changes(pages) | _changes(frames)
    stores = (accesses["what"][chosen] == STORE).astype(np.int64)
    before = np.cumsum(stores) - stores
    at_start = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
    first_store = (stores == 1) & (before == before[at_start])
    new = np.zeros(len(accesses), dtype=bool)
    new[chosen] = starts | first_store
    return new


def _faults(rows: Rows, position: Numbers, accesses: Rows) -> Faults:
    """Finds the pages; `position` is the number of accesses up to and with each row."""
    ends = np.flatnonzero(rows["what"] >= KEPT)
    numbers, firsts = np.unique(accesses["fault"], return_index=True)
    begins = firsts[np.searchsorted(numbers, rows["fault"][ends])]
    of_user = np.flatnonzero(accesses["stage"] == OF_USER)
    new = _are_new(accesses, accesses["address"])
    after = np.searchsorted(of_user, position[ends])
    known: list[tuple[int, int]] = []
    groups, starts = np.unique(after, return_index=True)
    for group, members in zip(groups, np.split(np.arange(len(ends)), starts)[1:], strict=True):
        touched = _new_pages(accesses, of_user, int(group), new)[-len(members) :]
        known += zip(members[len(members) - len(touched) :], touched, strict=True)
    index = np.array([member for member, _ in known], dtype=np.int64)
    access = np.array([access for _, access in known], dtype=np.int64)
    return Faults(access, begins[index], position[ends][index], len(ends) - len(known))


def _new_pages(accesses: Rows, of_user: Numbers, at: int, new: NDArray[np.bool_]) -> list[int]:
    """The first new access to each page by the instruction of user code whose references begin there."""
    first_access: dict[int, int] = {}
    for number, access in enumerate(of_user[at:]):
        if number and accesses["gap"][access]:
            # The next instruction.
            break
        if new[access]:
            first_access.setdefault(int(accesses["address"][access]) >> PAGE, int(access))
    return list(first_access.values())
