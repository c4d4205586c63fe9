"""Idle page tracking, on a bitmap that is made by hand: the tests clear what the kernel would clear."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagelab import UsageError
from pagelab.observe.folios import PageFlags
from pagelab.observe.idle import IdlePages, _words
from pagelab.observe.layout import Pagemaps
from pagelab.observe.mappings import Mapping

PAGES = 300


@pytest.fixture
def bitmap(tmp_path: Path) -> Path:
    path = tmp_path / "bitmap"
    path.touch()
    return path


@pytest.fixture
def idle(bitmap: Path) -> Iterator[IdlePages]:
    try:
        pages = IdlePages(bitmap)
    except UsageError:
        pytest.skip("frame numbers need root")
    yield pages
    pages.close()


def test_a_bit_per_frame() -> None:
    frames = np.array([0, 63, 64, 300, 301], dtype=np.uint64)
    runs = [(first, words.tolist()) for first, words in _words(frames)]
    assert runs == [(0, [1 << 63 | 1, 1]), (4, [1 << 44 | 1 << 45])]
    assert list(_words(frames[:0])) == []


def test_all_frames_of_a_page_have_its_first_one(tmp_path: Path) -> None:
    """A page of 4 frames at 8, of which the first is not asked for at 16; flags as in /proc/kpageflags."""
    head, tail = 1 << 15, 1 << 16
    flags = {8: head, 9: tail, 10: tail, 11: tail, 16: head, 17: tail, 18: tail, 30: 0}
    entries = np.array([flags.get(frame, 0) for frame in range(32)], dtype="<u8")
    (tmp_path / "flags").write_bytes(entries.tobytes())
    opened = PageFlags(tmp_path / "flags")
    frames = np.array([8, 9, 10, 11, 17, 18, 30], dtype=np.uint64)
    assert opened.first_frames(frames).tolist() == [8, 8, 8, 8, 17, 17, 30]
    assert opened.first_frames(frames[:0]).tolist() == []
    opened.close()


def test_pages_are_used_whose_bit_is_cleared(idle: IdlePages, bitmap: Path) -> None:
    with mmap.mmap(-1, PAGES * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(15)  # MADV_NOHUGEPAGE
        for page in range(PAGES):
            memory[page * 4096] = 1
        view = np.frombuffer(memory, dtype=np.uint8)
        begin = view.ctypes.data
        del view
        own = Mapping(begin, begin + len(memory), "rw-p", 0, "", len(memory), 0, 0, 0, 0, "")
        other = Mapping(begin + len(memory), begin + 2 * len(memory), "rw-p", 0, "", 0, 0, 0, 0, 0, "")
        # Nothing is marked yet, so the mappings tell themselves.
        assert idle.used(os.getpid(), [own]) == [own]
        idle.clear(os.getpid(), [own, other])
        assert [one.referenced for one in idle.used(os.getpid(), [own, other])] == [0, 0]
        frames = Pagemaps().frames(os.getpid(), [own])[begin]
        bits = np.unpackbits(np.fromfile(bitmap, dtype=np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == np.unique(frames).tolist()
        bits[frames[[3, 100, 299]].astype(np.int64)] = 0
        np.packbits(bits, bitorder="little").tofile(bitmap)
        assert [one.referenced for one in idle.used(os.getpid(), [own])] == [3 * 4096]


def test_a_kernel_without_idle_page_tracking_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CONFIG_IDLE_PAGE_TRACKING"):
        IdlePages(tmp_path / "missing")
