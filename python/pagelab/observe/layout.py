"""How the pages of mappings lie: in which 2 MiB of addresses, and whether adjacent pages have adjacent frames.

Source: Documentation/admin-guide/mm/pagemap.rst of Linux, PAGEMAP_SCAN included. Contiguity is counted as by `pagelab
    contiguity`.
Deviations: the process goes on while it is read. Frame numbers are hidden without CAP_SYS_ADMIN; then there is no
    contiguity. A page that is mapped to the kernel's page of zeros counts as present.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import add

import numpy as np
from numpy.typing import NDArray

from pagelab._engine import UsageError
from pagelab.host.contiguity import (
    GROUP_PAGES,
    LARGE_PAGES,
    Contiguity,
    ProcessEndedError,
    count_groups,
    find_zero_frame,
)
from pagelab.observe.folios import ORDERS, PageFlags
from pagelab.observe.mappings import HUGE_BYTES, Mapping
from pagelab.observe.processes import PROC

PAGE_BYTES = mmap.PAGESIZE
MOST_ENTRIES = 1 << 27
"""Entries that a pass reads at most: those of 512 GiB of addresses, 1 GiB of text of the kernel"""
_CHUNK = 1 << 18
_SPARSE = 8
"""Reserved memory per memory in use from which empty pieces are looked for first"""
_PAGEMAP_SCAN = 0xC0606610
"""_IOWR('f', 16, struct pm_scan_arg)"""
_IS_PRESENT = 1 << 3
"""PAGE_IS_PRESENT"""
_REGIONS = 4096
_SAMPLED_PIECES = 8
"""Pieces of 2 MiB of a process whose frames' flags are read: 1 to 10 ms"""
_PRESENT = np.uint64(1 << 63)
_FRAME = np.uint64((1 << 55) - 1)


@dataclass(frozen=True)
class Layout:
    """The pages of a mapping."""

    extents: int = 0
    """Aligned pieces of 2 MiB of addresses that lie in the mapping and have at least one page"""
    pages: int = 0
    """Pages in memory that lie in these pieces"""
    dense_extents: int = 0
    """Those of the pieces of which at least half is in memory"""
    contiguity: Contiguity | None = None
    """None if frames are hidden"""
    pieces: tuple[int, ...] = (0,) * ORDERS
    """Aligned pieces of each order, from 4 KiB to 2 MiB, that lie in the extents and have at least one page"""
    orders: tuple[int, ...] = (0,) * ORDERS
    """Pages of a sample of the extents by the order of the page that the kernel allocated; all 0 if flags are hidden"""

    @property
    def growth(self) -> int:
        """Bytes that the memory would grow by if each of these pieces became a huge page."""
        return self.growth_with(ORDERS - 1)

    def growth_with(self, order: int) -> int:
        """The same with pages of another order."""
        return ((self.pieces[order] << order) - self.pages) * PAGE_BYTES

    def __add__(self, other: "Layout") -> "Layout":
        known = self.contiguity is not None and other.contiguity is not None
        return Layout(
            self.extents + other.extents,
            self.pages + other.pages,
            self.dense_extents + other.dense_extents,
            self.contiguity + other.contiguity if known and self.contiguity and other.contiguity else None,
            tuple(map(add, self.pieces, other.pieces)),
            tuple(map(add, self.orders, other.orders)),
        )


class Pagemaps:
    """Reads the entries of mappings."""

    def __init__(self) -> None:
        try:
            self._zero_frame: int | None = find_zero_frame()
        except UsageError:
            self._zero_frame = None
        self._flags = PageFlags()

    def close(self) -> None:
        self._flags.close()

    @property
    def frames_known(self) -> bool:
        return self._zero_frame is not None

    @property
    def sizes_known(self) -> bool:
        """Whether the sizes of pages can be told."""
        return self.frames_known and self._flags.readable

    def layouts(self, pid: int, mappings: list[Mapping], *, sizes: bool = True) -> dict[int, Layout]:
        """The layouts of mappings by their begins, as far as their entries are not too many.

        Args:
            pid: The process.
            mappings: The mappings.
            sizes: Whether flags of a sample of frames are read, which tell the sizes of pages.

        Raises:
            ProcessEndedError: the process has ended.
        """
        layouts: dict[int, Layout] = {}
        left = MOST_ENTRIES
        resident = sum(mapping.resident for mapping in mappings)
        with self._opened(pid) as descriptor:
            for mapping in sorted(mappings, key=lambda mapping: -mapping.resident):
                parts = _parts(descriptor, mapping)
                left -= sum(end - begin for begin, end in parts)
                if left < 0:
                    break
                sampled = -(-_SAMPLED_PIECES * mapping.resident // max(resident, 1)) if sizes else 0
                layouts[mapping.begin] = self._layout(descriptor, mapping, parts, sampled)
        return layouts

    def frames(self, pid: int, mappings: Sequence[Mapping]) -> dict[int, NDArray[np.uint64]]:
        """The frames of the pages in memory of each mapping, by its begin, without the kernel's page of zeros.

        Raises:
            ProcessEndedError: the process has ended.
        """
        frames = {}
        with self._opened(pid) as descriptor:
            for mapping in mappings:
                parts = []
                for _, entries in _entries(descriptor, mapping, _parts(descriptor, mapping)):
                    numbers = entries[(entries & _PRESENT) != 0] & _FRAME
                    parts.append(numbers[numbers != np.uint64(self._zero_frame or 0)])
                frames[mapping.begin] = np.concatenate([np.empty(0, np.uint64), *parts])
        return frames

    @contextmanager
    def _opened(self, pid: int) -> Iterator[int]:
        """The file with the entries of a process.

        Raises:
            ProcessEndedError: the process has ended.
        """
        try:
            descriptor = os.open(PROC / str(pid) / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise ProcessEndedError(f"process {pid} has ended, or shows its pages no longer") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _layout(self, descriptor: int, mapping: Mapping, parts: list[tuple[int, int]], sampled: int) -> Layout:
        total, left = Layout(contiguity=Contiguity() if self.frames_known else None), sampled
        for first, entries in _entries(descriptor, mapping, parts):
            present = (entries & _PRESENT) != 0
            if present.any():
                # Of a mapping in several chunks, each has its part of the sample, until it is complete.
                part = min(-(-sampled * int(present.sum()) * PAGE_BYTES // max(mapping.resident, 1)), left)
                left -= part
                total += self._count(first, entries & _FRAME, present, mapping, part)
        return total

    def _count(
        self, first: int, frames: NDArray[np.uint64], present: NDArray[np.bool_], mapping: Mapping, sampled: int
    ) -> Layout:
        whole = slice(-first % LARGE_PAGES, len(present) - (first + len(present)) % LARGE_PAGES)
        begin = max(first + whole.start, -(-mapping.begin // HUGE_BYTES) * LARGE_PAGES) - first
        end = min(first + whole.stop, mapping.end // HUGE_BYTES * LARGE_PAGES) - first
        extents = present[begin : max(end, begin)].reshape(-1, LARGE_PAGES)
        pages = extents.sum(axis=1)
        contiguity = None
        if self._zero_frame is not None:
            contiguity = count_groups(frames, present & (frames != self._zero_frame))
        layout = Layout(
            extents=int(np.count_nonzero(pages)),
            pages=int(pages.sum()),
            dense_extents=int(np.count_nonzero(pages >= LARGE_PAGES // 2)),
            contiguity=contiguity,
            pieces=_pieces(extents),
        )
        if contiguity is None or not sampled or not self._flags.readable or not layout.extents:
            return layout
        used = np.flatnonzero(pages)
        chosen = used[np.linspace(0, len(used) - 1, min(sampled, len(used))).astype(int)]
        return replace(layout, orders=self._orders(frames[begin:end].reshape(-1, LARGE_PAGES), extents, chosen))

    def _orders(
        self, frames: NDArray[np.uint64], present: NDArray[np.bool_], chosen: NDArray[np.int_]
    ) -> tuple[int, ...]:
        """The orders of the pages of the chosen pieces of 2 MiB."""
        sums = (0,) * ORDERS
        for number in chosen.tolist():
            own = present[number] & (frames[number] != np.uint64(self._zero_frame or 0))
            sums = tuple(map(add, sums, self._flags.orders(frames[number], own)))
        return sums


def _pieces(extents: NDArray[np.bool_]) -> tuple[int, ...]:
    """How many aligned pieces of each order have a page."""
    counts = []
    pieces = extents
    for _ in range(ORDERS):
        counts.append(int(np.count_nonzero(pieces)))
        if pieces.shape[1] > 1:
            pieces = pieces[:, ::2] | pieces[:, 1::2]
    return tuple(counts)


def _parts(descriptor: int, mapping: Mapping) -> list[tuple[int, int]]:
    """The parts of a mapping of which entries are read, by page numbers: all of it, or those that have pages."""
    begin, end = mapping.begin // PAGE_BYTES, mapping.end // PAGE_BYTES
    present = present_parts(descriptor, begin, end) if mapping.size >= _SPARSE * mapping.resident else None
    return [(begin, end)] if present is None else present


def _entries(
    descriptor: int, mapping: Mapping, parts: list[tuple[int, int]]
) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """The entries of a mapping's parts in pieces of whole groups, each with the number of its first page."""
    begin, end = mapping.begin // PAGE_BYTES, mapping.end // PAGE_BYTES
    for start, stop in parts:
        first = start // GROUP_PAGES * GROUP_PAGES
        while first < stop:
            # Up to a multiple, so that no piece of 2 MiB is divided.
            last = min(-(-stop // GROUP_PAGES) * GROUP_PAGES, (first // _CHUNK + 1) * _CHUNK)
            data = os.pread(descriptor, (last - first) * 8, first * 8).ljust((last - first) * 8, b"\0")
            entries = np.frombuffer(data, dtype="<u8").astype(np.uint64)
            # A group may have pages of the neighbours.
            entries[: max(begin - first, 0)] = 0
            entries[max(end - first, 0) :] = 0
            yield first, entries
            first = last


def present_parts(descriptor: int, begin: int, end: int) -> list[tuple[int, int]] | None:
    """The pieces of 2 MiB of a part of an address space that have a page in memory, adjacent ones as one.

    Args:
        descriptor: /proc/PID/pagemap.
        begin: The number of the first page.
        end: That of the page behind the last one.

    Returns:
        The numbers of the first page and the one behind the last, cut to the part; none if the kernel cannot tell, as
        before Linux 6.7.
    """
    regions = np.zeros((_REGIONS, 3), dtype=np.uint64)
    parts: list[tuple[int, int]] = []
    at = begin * PAGE_BYTES
    while at < end * PAGE_BYTES:
        # struct pm_scan_arg of include/uapi/linux/fs.h.
        numbers = (96, 0, at, end * PAGE_BYTES, 0, regions.ctypes.data, _REGIONS, 0, 0, _IS_PRESENT, 0, _IS_PRESENT)
        request = struct.pack("<12Q", *numbers)
        try:
            count = fcntl.ioctl(descriptor, _PAGEMAP_SCAN, bytearray(request))
        except OSError:
            return None
        for start, stop in (regions[:count, :2] // PAGE_BYTES).tolist():
            first = max(start // LARGE_PAGES * LARGE_PAGES, begin)
            last = min(-(-stop // LARGE_PAGES) * LARGE_PAGES, end)
            if parts and first <= parts[-1][1]:
                first = parts.pop()[0]
            parts.append((first, last))
        # Linux 6.18 tells the end of an earlier step as where the scan stopped, if the last step finds nothing more.
        at = int(regions[count - 1, 1]) if count == _REGIONS else end * PAGE_BYTES
    return parts
