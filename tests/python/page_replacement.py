"""Which visits to a file's pages find the page gone: plain models of page replacement, apart from the engine's.

Models: a file that is mapped, read page by page, and held by a cgroup with room for so many pages of it. `fifo` lets go
    of the pages in the order in which they were read. Linux does so from 6.3 on where the mapping has MADV_RANDOM, and
    nobody else uses the pages: such mappings have no recency, and what the accessed bits say of them is ignored.
    `lru` lets go of the page whose last visit is the longest ago. `TwoLists` is what Linux does
    where accessed bits count, and `ReadAround` where pages come and are mapped with those around them, too.
Source: Linux 6.18: include/linux/mm_inline.h (`vma_has_recency`), mm/rmap.c (`invalid_folio_referenced_vma`),
    mm/vmscan.c (`folio_check_references`, `shrink_active_list`), mm/workingset.c (`workingset_refault`: without active
    pages of files, and without swap, no refault is recent), mm/filemap.c (`do_sync_mmap_readahead`,
    `filemap_map_pages`), mm/memory.c (`do_fault_around`).
Parameters: `room`, in pages.
Deviations: no batches; a page leaves when one is needed. Pages that are just being read may not leave before. Each
    visit to a page sets its accessed bit: no TLB keeps the processor from doing so. Nothing is read before it is missed
    (`PG_readahead`), and misses are not counted (`mmap_miss`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

PAGE_BITS = 12


def visits(trace: Path, file: str, warm_up: int) -> list[int]:
    """The pages of a file that a trace visits after so many accesses, each as often as it comes after another page."""
    mapped = pl.read_parquet(trace / "events-*.parquet").filter(
        (pl.col("kind") == "mmap") & pl.col("file").str.ends_with(file)
    )
    assert len(mapped) >= 1, f"{file} is not mapped in {trace}"
    start = int(mapped["addr"][-1])
    end = start + int(mapped["len"][-1])
    seen, parts = 0, []
    for part in sorted(trace.glob("accesses-*.parquet")):
        addresses = pl.read_parquet(part, columns=["vaddr"])["vaddr"].to_numpy()
        first = max(warm_up - seen, 0)
        seen += len(addresses)
        within = addresses[first:]
        parts.append(within[(within >= start) & (within < end)] >> PAGE_BITS)
    pages = np.concatenate(parts)
    visited: list[int] = pages[np.append(True, pages[1:] != pages[:-1])].tolist()
    return visited


def fifo(pages: Sequence[int], room: int) -> int:
    """How many visits find the page gone, if the page that was read first leaves first."""
    return _misses(pages, room, moves=False)


def lru(pages: Sequence[int], room: int) -> int:
    """The same if the page leaves that was not visited for the longest time."""
    return _misses(pages, room, moves=True)


def _misses(pages: Sequence[int], room: int, *, moves: bool) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for page in pages:
        if page in held:
            if moves:
                held.move_to_end(page)
            continue
        misses += 1
        if len(held) >= room:
            held.popitem(last=False)
        held[page] = None
    return misses


@dataclass
class TwoLists:
    """Linux's inactive and active list of a cgroup's file pages, where accessed bits count.

    A page begins on the inactive list. A scan gives pages that were visited since the last one another round, and makes
    those active that it finds so for the second time. Then the oldest go. Active pages come back to the inactive list,
    the oldest first, while they are in the majority (`inactive_is_low`). With `refaults`, a page that comes back is
    active at once if no more pages have left or become active since than are active now (`workingset_refault`).
    """

    room: int
    refaults: bool = True
    batch: int = 32
    """Pages that a scan looks at, and those that reclaim frees (SWAP_CLUSTER_MAX)"""
    inactive: OrderedDict[int, None] = field(default_factory=OrderedDict)
    active: OrderedDict[int, None] = field(default_factory=OrderedDict)
    accessed: set[int] = field(default_factory=set)
    referenced: set[int] = field(default_factory=set)
    """Those that a scan has found accessed once"""
    left: dict[int, int] = field(default_factory=dict)
    """Age of the lists when a page left"""
    age: int = 0

    def misses(self, pages: Sequence[int]) -> int:
        """How many visits find the page gone."""
        return sum(self._visit(page) for page in pages)

    def _visit(self, page: int) -> bool:
        missed = page not in self.inactive and page not in self.active
        if missed:
            if len(self.inactive) + len(self.active) >= self.room:
                self._reclaim()
            left = self.left.pop(page, None)
            if self.refaults and left is not None and self.age - left <= len(self.active):
                self._activate(page)
            else:
                self.inactive[page] = None
        self.accessed.add(page)
        return missed

    def _activate(self, page: int) -> None:
        self.active[page] = None
        self.age += 1

    def _reclaim(self) -> None:
        target = max(self.room - self.batch, 0)
        while len(self.inactive) + len(self.active) > target:
            while len(self.inactive) < len(self.active):
                oldest, _ = self.active.popitem(last=False)
                self.accessed.discard(oldest)
                self.inactive[oldest] = None
            for _ in range(min(self.batch, len(self.inactive))):
                self._look_at(self.inactive.popitem(last=False)[0])

    def _look_at(self, page: int) -> None:
        if page not in self.accessed:
            self.referenced.discard(page)
            self.age += 1
            self.left[page] = self.age
        elif page in self.referenced:
            self.accessed.discard(page)
            self.referenced.discard(page)
            self._activate(page)
        else:
            self.accessed.discard(page)
            self.referenced.add(page)
            self.inactive[page] = None


@dataclass
class ReadAround(TwoLists):
    """The same where the kernel reads around a page that is missing, and maps what is there around one that faults."""

    first: int = 0
    """The file's first page, and the one behind its last"""
    end: int = 1 << 52
    read: int = 32
    """Pages that are read together, the one that is missed in their middle"""
    mapped_together: int = 16
    """Pages of the window, at multiples of its size, that a fault maps (`fault_around_bytes`)"""
    mapped: set[int] = field(default_factory=set)

    def _visit(self, page: int) -> bool:
        missed = False
        if page not in self.mapped:
            self._map_around(page)
            missed = page not in self.mapped
            if missed:
                self._read_around(page)
                self._map_around(page)
        self.accessed.add(page)
        return missed

    def _read_around(self, page: int) -> None:
        start = max(page - self.read // 2, self.first)
        for other in range(start, min(start + self.read, self.end)):
            if other in self.inactive or other in self.active:
                continue
            if len(self.inactive) + len(self.active) >= self.room:
                self._reclaim()
            left = self.left.pop(other, None)
            if self.refaults and left is not None and self.age - left <= len(self.active):
                self._activate(other)
            else:
                self.inactive[other] = None

    def _map_around(self, page: int) -> None:
        start = page - page % self.mapped_together
        for other in range(max(start, self.first), min(start + self.mapped_together, self.end)):
            if other not in self.mapped and (other in self.inactive or other in self.active):
                self.mapped.add(other)
                # On x86, what is mapped around begins as accessed (`arch_wants_old_prefaulted_pte`).
                self.accessed.add(other)

    def _look_at(self, page: int) -> None:
        super()._look_at(page)
        if page not in self.inactive and page not in self.active:
            self.mapped.discard(page)
