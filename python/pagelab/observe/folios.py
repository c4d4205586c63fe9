"""Of which sizes the pages of a mapping are: runs of frames that the kernel allocated together.

Source: Documentation/admin-guide/mm/pagemap.rst of Linux for the flags of /proc/kpageflags.
Deviations: a large page of which a mapping has only a part counts with the size of that part, rounded down to a power
    of two. The program goes on meanwhile, so a page may have been freed before its flags are read.
"""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FLAGS = Path("/proc/kpageflags")
ORDERS = 10
"""From pages of 4 KiB, order 0, to pages of 2 MiB, order 9"""
_HEAD, _TAIL = np.uint64(1 << 15), np.uint64(1 << 16)
_GAP = 64
"""Entries between two frames that are read, rather than a second call made"""


class PageFlags:
    """The flags of frames."""

    def __init__(self, path: Path = FLAGS) -> None:
        try:
            self._file: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
        self._opened = self._file is not None

    @property
    def readable(self) -> bool:
        return self._opened

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def orders(self, frames: NDArray[np.uint64], present: NDArray[np.bool_]) -> tuple[int, ...]:
        """How many of the pages are in pages of each order.

        Args:
            frames: The frame of each page, by address.
            present: Which of them are in memory.
        """
        counts = [0] * ORDERS
        # A page that is next to none of its neighbours in memory is of no larger page, whatever its flags.
        adjacent = (frames[1:] == frames[:-1] + np.uint64(1)) & present[1:] & present[:-1]
        flags = self._flags(frames, present & (np.append(adjacent, False) | np.append(False, adjacent)))
        if flags is None:
            return tuple(counts)
        compound = (flags & (_HEAD | _TAIL)) != 0
        follows = np.zeros(len(frames), dtype=bool)
        follows[1:] = (flags[1:] & _TAIL != 0) & compound[:-1] & adjacent
        begins = np.flatnonzero(present & ~follows)
        # A run ends where the next one begins, or where a page is missing.
        ends = np.flatnonzero(present & ~np.append(follows[1:], False)) + 1
        for length in (ends - begins).tolist():
            counts[min(int(length).bit_length() - 1, ORDERS - 1)] += length
        return tuple(counts)

    def first_frames(self, frames: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The first frame of the page that each of the frames belongs to, as far as that one is among them.

        Args:
            frames: In order, each once.
        """
        flags = self._flags(frames, np.ones(len(frames), dtype=bool))
        if flags is None or not len(frames):
            return frames
        # A page's frames are adjacent, and all but its first one are tails.
        is_tail = (flags & _TAIL) != 0
        is_tail[0] = False
        is_tail[1:] &= frames[1:] == frames[:-1] + np.uint64(1)
        firsts: NDArray[np.uint64] = frames[np.maximum.accumulate(np.where(is_tail, 0, np.arange(len(frames))))]
        return firsts

    def _flags(self, frames: NDArray[np.uint64], present: NDArray[np.bool_]) -> NDArray[np.uint64] | None:
        """The flags of each page's frame, 0 where there is none; none if they cannot be read."""
        if self._file is None:
            return None
        flags = np.zeros(len(frames), dtype=np.uint64)
        asked = np.unique(frames[present])
        if not len(asked):
            return flags
        known = np.zeros(len(asked), dtype=np.uint64)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(asked) > _GAP) + 1, [len(asked)]))
        with suppress(OSError):
            for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                begin, end = int(asked[first]), int(asked[last - 1]) + 1
                data = os.pread(self._file, (end - begin) * 8, begin * 8).ljust((end - begin) * 8, b"\0")
                known[first:last] = np.frombuffer(data, dtype="<u8")[asked[first:last].astype(np.int64) - begin]
            flags[present] = known[np.searchsorted(asked, frames[present])]
            return flags
        return None
