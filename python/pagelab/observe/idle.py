"""Which memory was used in an interval, by the kernel's idle page tracking.

Models: nothing. A bit per frame is set at the begin of an interval, and whatever uses the page clears it.
Source: Documentation/admin-guide/mm/idle_page_tracking.rst of Linux; mm/page_idle.c of 6.12.
Deviations: the kernel does not flush TLBs, so translations that stay in one are not seen as used. But reclaim takes
    pages in the same order as without. The bit belongs to a whole page, of whatever size, and to its frame: what other
    processes do with a shared page counts, too. A page that has moved to another frame meanwhile counts as used.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab._engine import UsageError
from pagelab.observe.folios import PageFlags
from pagelab.observe.layout import PAGE_BYTES, Pagemaps
from pagelab.observe.mappings import Mapping

BITMAP = Path("/sys/kernel/mm/page_idle/bitmap")
_WORD_FRAMES = 64
_MOST_WORDS = 1 << 16
"""Words per call: of 16 GiB of frames"""

Frames = NDArray[np.uint64]


class IdlePages:
    """Marks pages of processes as idle, and tells which of them still are."""

    flushes = False
    not_flushed = "idle page tracking does not flush TLBs"

    def __init__(self, path: Path = BITMAP) -> None:
        """
        Raises:
            UsageError: this kernel has no idle page tracking, or this user may not use it.
        """
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise UsageError(
                "--idle-pages: this kernel has no idle page tracking (CONFIG_IDLE_PAGE_TRACKING); leave the option out"
            ) from None
        except OSError:
            raise UsageError(f"--idle-pages: {path} is for root") from None
        self._pagemaps, self._flags = Pagemaps(), PageFlags()
        self._marked: dict[int, Frames] = {}
        """By process: the first frames of the pages that were marked"""
        self._seen: dict[int, dict[int, Frames]] = {}
        """By process: what a look that goes on has read"""
        if not (self._pagemaps.frames_known and self._flags.readable):
            self.close()
            raise UsageError("--idle-pages needs frame numbers and /proc/kpageflags, so CAP_SYS_ADMIN: run it as root")

    def close(self) -> None:
        self._pagemaps.close()
        self._flags.close()
        os.close(self._file)

    def used(self, pid: int, mappings: Sequence[Mapping]) -> list[Mapping]:
        """The mappings, with what was used of each since the pages of the process were marked.

        Raises:
            ProcessEndedError: the process has ended.
        """
        marked = self._marked.get(pid)
        if marked is None:
            return list(mappings)
        idle = marked[self._are_idle(marked)]
        frames = self._seen[pid] = self._first_frames(pid, mappings)
        return [
            replace(one, referenced=int(np.count_nonzero(~np.isin(frames[one.begin], idle))) * PAGE_BYTES)
            for one in mappings
        ]

    def clear(self, pid: int, mappings: Sequence[Mapping]) -> None:
        """Begins an interval.

        Raises:
            ProcessEndedError: the process has ended.
        """
        frames = self._seen.pop(pid, None) or self._first_frames(pid, mappings)
        self._marked[pid] = np.unique(np.concatenate([np.empty(0, np.uint64), *frames.values()]))
        for first, words in _words(self._marked[pid]):
            os.pwrite(self._file, words.tobytes(), first * 8)

    def _first_frames(self, pid: int, mappings: Sequence[Mapping]) -> dict[int, Frames]:
        """The frames of each mapping's pages in memory, by its begin: of a page of several frames, its first one."""
        by_mapping = self._pagemaps.frames(pid, [one for one in mappings if one.resident])
        every = np.unique(np.concatenate([np.empty(0, np.uint64), *by_mapping.values()]))
        firsts = self._flags.first_frames(every)
        return {one.begin: firsts[np.searchsorted(every, by_mapping.get(one.begin, every[:0]))] for one in mappings}

    def _are_idle(self, frames: Frames) -> NDArray[np.bool_]:
        """Whether each of the frames, in order, is idle."""
        parts = []
        for first, words in _words(frames):
            data = os.pread(self._file, words.nbytes, first * 8).ljust(words.nbytes, b"\0")
            own = frames[np.searchsorted(frames, first * _WORD_FRAMES) :]
            own = own[: np.searchsorted(own, (first + len(words)) * _WORD_FRAMES)]
            at = (own - np.uint64(first * _WORD_FRAMES)).astype(np.int64)
            known = np.frombuffer(data, dtype="<u8")[at // _WORD_FRAMES] >> (at % _WORD_FRAMES).astype(np.uint64)
            parts.append((known & np.uint64(1)).astype(bool))
        return np.concatenate([np.empty(0, bool), *parts])


def _words(frames: Frames) -> Iterator[tuple[int, Frames]]:
    """The words of the bitmap with the bits of frames: runs of adjacent words, with their first numbers."""
    if not len(frames):
        return
    numbers, at = np.unique(frames // np.uint64(_WORD_FRAMES), return_inverse=True)
    words = np.zeros(len(numbers), dtype="<u8")
    np.bitwise_or.at(words, at, np.uint64(1) << frames % np.uint64(_WORD_FRAMES))
    ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    begin = 0
    for end in ends:
        for part in range(begin, end, _MOST_WORDS):
            yield int(numbers[part]), words[part : min(part + _MOST_WORDS, end)]
        begin = end
