"""The contiguity of a running process's pages, read from /proc.

Models: the engine's `layer.*.contiguity.*` of a simulated guest, on a real kernel. Eight pages whose PTEs
    share a cache line are a group; the aligned blocks of eight frames that its pages lie in are the cache lines of PTEs
    that translate these frames in a host: 1 at best, 8 at worst.
Source: PTEMagnet (ASPLOS 2021) for the measure. Linux's Documentation/admin-guide/mm/pagemap.rst for the entries of
    /proc/PID/pagemap and /proc/kpageflags, Documentation/filesystems/proc.rst for /proc/PID/smaps.
Parameters: the process, the number of samples and the time between them.
Deviations: the process continues while it is read, so a sample is not an instant. Anonymous memory is that of mappings
    without a file; as in the engine, private copies of pages of files are excluded, and so is hugetlbfs. Pages that are
    being migrated count as swapped for that moment.
"""

import mmap
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab import _engine

PAGE_BYTES = mmap.PAGESIZE
GROUP_PAGES = 8
"""PTEs of a cache line"""
LARGE_PAGES = 512
"""PTEs of a page table: pages that a large page holds"""

_PROC = Path("/proc")
# Of 8 bytes each; a multiple of a large page's.
_CHUNK_ENTRIES = 1 << 18
_PRESENT = np.uint64(1 << 63)
_SWAPPED = np.uint64(1 << 62)
# A guard region (Linux 6.15) is reported as swapped as well, but nothing is.
_GUARD = np.uint64(1 << 58)
_FRAME = np.uint64((1 << 55) - 1)
_NO_BLOCK = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_KPF_ZERO_PAGE = 1 << 24
_PF_KTHREAD = 0x0020_0000
# fs/proc/task_mmu.c names what has no file: nothing, the heap, the main stack, or what prctl(PR_SET_VMA) said.
_ANONYMOUS_NAME = re.compile(r"|\[heap\]|\[stack\]|\[anon:.*\]")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (...)([ps]) \S+ \S+ \d+ *(.*)")

Entries = NDArray[np.uint64]


class ProcessEndedError(_engine.PagelabError):
    """The process no longer exists, or runs another program."""


@dataclass(frozen=True)
class Contiguity:
    """Counts over the private anonymous memory of a process."""

    groups: int = 0
    """Groups of eight pages with at least one page"""
    pte_lines: int = 0
    """Aligned blocks of eight frames that their pages lie in, added up over the groups"""
    full_groups: int = 0
    """Groups with all eight pages"""
    contiguous_groups: int = 0
    """Those of them whose frames are one aligned block"""
    pages: int = 0
    """Pages in memory that are the process's own, those of large pages included"""
    zero_pages: int = 0
    """Pages mapped to the kernel's page of zeros; they are in no group"""
    large_pages: int = 0
    """Large pages, 2 MiB each"""
    swapped_pages: int = 0

    @property
    def pte_lines_per_group(self) -> float | None:
        return self.pte_lines / self.groups if self.groups else None

    @property
    def full_share(self) -> float | None:
        return self.full_groups / self.groups if self.groups else None

    @property
    def contiguous_share(self) -> float | None:
        return self.contiguous_groups / self.full_groups if self.full_groups else None

    def __add__(self, other: "Contiguity") -> "Contiguity":
        return Contiguity(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def to_dict(self) -> dict[str, int | float | None]:
        return {name: getattr(self, name) for name in STATISTICS}


RATIOS = ("pte_lines_per_group", "full_share", "contiguous_share")
STATISTICS = (*RATIOS, *(field.name for field in fields(Contiguity)))


@dataclass(frozen=True)
class Spread:
    """A statistic over the samples that have it."""

    median: float
    lower_quartile: float
    upper_quartile: float


@dataclass(frozen=True)
class Sample:
    """A sample of the process."""

    seconds: float
    """Since the first sample, or since the program was started"""
    contiguity: Contiguity


@dataclass(frozen=True)
class Measurement:
    """The measurement of a process."""

    pid: int
    name: str
    samples: Sequence[Sample]
    """One at least"""
    huge_zero_known: bool
    """False if /proc/kpageflags cannot be read: a large page of zeros then counts as the process's own"""

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def peak(self) -> Sample:
        """The one with the most pages, the first of equal ones."""
        return max(self.samples, key=lambda sample: sample.contiguity.pages)

    def spread(self, statistic: str) -> Spread | None:
        """None if no sample has the statistic, because its divisor is 0."""
        values = [value for sample in self.samples if (value := getattr(sample.contiguity, statistic)) is not None]
        if not values:
            return None
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(median, lower, upper)

    def to_dict(self) -> dict[str, Any]:
        spreads = {name: self.spread(name) for name in STATISTICS}
        return {
            "version": _engine.__version__,
            "pid": self.pid,
            "name": self.name,
            "kernel": f"{platform.system()} {platform.release()}",
            "page_bytes": PAGE_BYTES,
            "huge_zero_page_known": self.huge_zero_known,
            "summary": {name: asdict(spread) if spread else None for name, spread in spreads.items()},
            "peak": _sample(self.peak),
            "samples": [_sample(sample) for sample in self.samples],
        }


def _sample(sample: Sample) -> dict[str, Any]:
    return {"seconds": round(sample.seconds, 3), **sample.contiguity.to_dict()}


def measure(pid: int) -> Contiguity:
    """Samples a process once.

    Raises:
        ProcessEndedError: it ended meanwhile.
        UsageError: there is no such process, it has no memory, or it may not be looked at.
    """
    with Process(pid) as process:
        return process.sample()


class Process:
    """A process whose frames may be seen."""

    def __init__(self, pid: int, proc: Path = _PROC, zero_frame: int | None = None) -> None:
        """
        Args:
            pid: The process.
            proc: Where the kernel shows its processes.
            zero_frame: The frame of zeros; else it is looked up, with an error if frame numbers are hidden.

        Raises:
            UsageError: there is no such process, it has no memory, or it may not be looked at.
        """
        self.pid = pid
        self._folder = proc / str(pid)
        self._zero_frame = find_zero_frame() if zero_frame is None else zero_frame
        if not self._folder.is_dir():
            raise _engine.UsageError(
                f"there is no process {pid}, or {proc} does not show it (hidepid, or another PID namespace)"
            )
        stat = self._stat()
        self.name = stat.name
        if stat.flags & _PF_KTHREAD:
            raise _engine.UsageError(f"process {pid} ({self.name}) is a kernel thread: it has no memory of its own")
        self._started = stat.started
        try:
            self._page_flags: int | None = os.open(proc / "kpageflags", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._page_flags = None

    @property
    def huge_zero_known(self) -> bool:
        return self._page_flags is not None

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self._page_flags is not None:
            os.close(self._page_flags)
            self._page_flags = None

    def sample(self) -> Contiguity:
        """Samples all of the private anonymous memory.

        Raises:
            ProcessEndedError: the process ended, before or meanwhile.
            UsageError: it may not be looked at.
        """
        try:
            return self._look()
        except ProcessEndedError:
            # An exec removes the memory like an exit, but then there is other memory.
            return self._look()

    def _look(self) -> Contiguity:
        # Opened again each time: after an exec, open files would still show the old memory.
        pagemap = self._open("pagemap")
        try:
            with os.fdopen(self._open("smaps"), encoding="utf-8", errors="replace") as smaps:
                mappings = list(_mappings(smaps))
            stat = self._stat()
            # The number may have gone to another process since.
            if stat.started != self._started or not mappings:
                raise self._ended()
            self.name = stat.name
            total = Contiguity(large_pages=sum(mapping.large_pages for mapping in mappings))
            for span in _spans([mapping for mapping in mappings if mapping.looked_at]):
                for first, entries in self._chunks(pagemap, span):
                    total += self._count(first, entries, span)
            return total
        except ProcessLookupError:
            raise self._ended() from None
        finally:
            os.close(pagemap)

    def _chunks(self, pagemap: int, span: "_Span") -> Iterator[tuple[int, Entries]]:
        """The span's entries piece by piece, each with the number of its first page."""
        first = span.begin
        while first < span.end:
            # Up to a multiple, so that no large page is divided.
            end = min(span.end, (first // _CHUNK_ENTRIES + 1) * _CHUNK_ENTRIES)
            data = os.pread(pagemap, (end - first) * 8, first * 8)
            if len(data) < (min(end, span.mappings[-1][1]) - first) * 8:
                # pagemap_read stops where the memory ends.
                raise self._ended()
            # The last group of an address space may be cut off.
            data = data.ljust((end - first) * 8, b"\0")
            yield first, np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
            first = end

    def _count(self, first: int, entries: Entries, span: "_Span") -> Contiguity:
        """Counts over entries that begin and end at groups."""
        # Much of what is mapped was never touched.
        if not (entries & (_PRESENT | _SWAPPED)).any():
            return Contiguity()
        inside = np.zeros(len(entries), dtype=bool)
        for begin, end in span.mappings:
            inside[max(begin - first, 0) : max(end - first, 0)] = True
        swapped = int(np.count_nonzero(inside & ((entries & (_SWAPPED | _GUARD)) == _SWAPPED)))
        present = inside & ((entries & _PRESENT) != 0)
        frames = entries & _FRAME
        zero = present & ((frames == self._zero_frame) | self._huge_zero(first, frames, present))
        return count_groups(frames, present & ~zero) + Contiguity(
            zero_pages=int(np.count_nonzero(zero)), swapped_pages=swapped
        )

    def _huge_zero(self, first: int, frames: Entries, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which pages are mapped to the large page of zeros; /proc/kpageflags identifies it."""
        is_zero = np.zeros(len(frames), dtype=bool)
        begin = -first % LARGE_PAGES
        count = (len(frames) - begin) // LARGE_PAGES
        if self._page_flags is None or count <= 0:
            return is_zero
        whole = slice(begin, begin + count * LARGE_PAGES)
        runs = frames[whole].reshape(count, LARGE_PAGES)
        consecutive = (runs == runs[:, :1] + np.arange(LARGE_PAGES, dtype=np.uint64)).all(axis=1)
        aligned = runs[:, 0] % np.uint64(LARGE_PAGES) == 0
        for run in np.flatnonzero(consecutive & aligned & present[whole].reshape(count, LARGE_PAGES).all(axis=1)):
            flags = os.pread(self._page_flags, 8, int(runs[run, 0]) * 8)
            if int.from_bytes(flags, "little") & _KPF_ZERO_PAGE:
                is_zero[begin + run * LARGE_PAGES :][:LARGE_PAGES] = True
        return is_zero

    def _stat(self) -> "_Stat":
        try:
            text = (self._folder / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            raise self._ended() from None
        # The name may contain anything, so the rest begins after the last bracket.
        head, _, tail = text.rpartition(")")
        values = tail.split()
        return _Stat(name=head.partition("(")[2], flags=int(values[6]), started=int(values[19]))

    def _open(self, name: str) -> int:
        path = self._folder / name
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except ProcessLookupError:
            raise self._ended() from None
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise self._ended() from None
            raise _engine.UsageError(
                f"{path}: this kernel does not show the memory of processes (CONFIG_PROC_PAGE_MONITOR)"
            ) from None
        except PermissionError:
            raise _engine.UsageError(
                f"{path}: no permission to inspect this process: run as root, or with CAP_SYS_PTRACE and CAP_SYS_ADMIN"
            ) from None

    def _ended(self) -> ProcessEndedError:
        return ProcessEndedError(f"process {self.pid} has ended")


def count_groups(frames: Entries, present: NDArray[np.bool_]) -> Contiguity:
    """Counts over pages in order of their addresses, which begin and end at groups.

    Args:
        frames: Their frame numbers, shape (8 * n,).
        present: Which of them are in memory, same shape.
    """
    blocks = np.where(present, frames // np.uint64(GROUP_PAGES), _NO_BLOCK).reshape(-1, GROUP_PAGES)
    pages = np.count_nonzero(present.reshape(-1, GROUP_PAGES), axis=1)
    blocks = np.sort(blocks[pages > 0], axis=1)
    # Missing pages are sorted behind the others.
    new = (blocks[:, 1:] != blocks[:, :-1]) & (blocks[:, 1:] != _NO_BLOCK)
    lines = 1 + np.count_nonzero(new, axis=1)
    full = pages[pages > 0] == GROUP_PAGES
    return Contiguity(
        groups=len(lines),
        pte_lines=int(lines.sum()),
        full_groups=int(np.count_nonzero(full)),
        contiguous_groups=int(np.count_nonzero(full & (lines == 1))),
        pages=int(pages.sum()),
    )


def find_zero_frame() -> int:
    """The frame of the kernel's page of zeros: that of a page which was read and never written.

    Raises:
        UsageError: the kernel hides frame numbers.
    """
    with mmap.mmap(-1, PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        page = np.frombuffer(memory, dtype=np.uint8)
        page.max()
        number = page.ctypes.data // PAGE_BYTES
        # The mapping cannot be closed while the array refers to it.
        del page
        try:
            with (_PROC / "self/pagemap").open("rb", buffering=0) as pagemap:
                entry = int.from_bytes(os.pread(pagemap.fileno(), 8, number * 8), "little")
        except OSError as error:
            raise _engine.UsageError(
                f"/proc/self/pagemap: {error.strerror}: this kernel does not show frames"
            ) from None
    return frame_of(entry)


def frame_of(entry: int) -> int:
    """The frame number of a page in memory, from its entry of /proc/PID/pagemap.

    Raises:
        UsageError: it is hidden.
    """
    frame = entry & int(_FRAME)
    if not frame:
        raise _engine.UsageError(
            "/proc/PID/pagemap hides frame numbers: they need CAP_SYS_ADMIN, so run this as root (sudo pagelab "
            "contiguity …), outside of containers and sandboxes"
        )
    return frame


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def watch(
    process: Process,
    interval_seconds: float,
    *,
    repeats: int | None = None,
    at_once: bool = True,
    pause: Callable[[float], bool] = _sleep,
) -> Measurement:
    """Looks at a process again and again until it ends.

    Args:
        process: The process.
        interval_seconds: From one look to the next.
        repeats: Looks at most.
        at_once: Whether the first look is made now or after an interval.
        pause: Waits so many seconds and returns whether to go on.

    Raises:
        ProcessEndedError: it ended before the first look was over.
        UsageError: it may not be looked at.
    """
    samples: list[Sample] = []
    start = due = time.monotonic()
    try:
        while repeats is None or len(samples) < repeats:
            if samples or not at_once:
                # A look that takes longer than the interval delays those that follow; they do not catch up.
                now = time.monotonic()
                due = max(due + interval_seconds, now)
                if not pause(due - now):
                    break
            seconds = time.monotonic() - start
            samples.append(Sample(seconds, process.sample()))
    except ProcessEndedError:
        if not samples:
            raise
    if not samples:
        raise ProcessEndedError(f"process {process.pid} has ended")
    return Measurement(process.pid, process.name, samples, process.huge_zero_known)


@dataclass(frozen=True)
class _Stat:
    """What /proc/PID/stat says."""

    name: str
    flags: int
    started: int
    """In clock ticks since boot: with the PID, it is the process's for ever"""


@dataclass(frozen=True)
class _Mapping:
    """A mapping; page numbers."""

    begin: int
    end: int
    looked_at: bool
    """True if its pages are to be counted"""
    large_pages: int


@dataclass(frozen=True)
class _Span:
    """Whole groups from `begin` to `end`, and the mappings in them."""

    begin: int
    end: int
    mappings: list[tuple[int, int]]


def _mappings(smaps: Iterator[str]) -> Iterator[_Mapping]:
    """The mappings of /proc/PID/smaps."""
    header: re.Match[str] | None = None
    sizes: dict[str, int] = {}
    for line in smaps:
        if match := _HEADER.match(line):
            if header:
                yield _mapping(header, sizes)
            header, sizes = match, {}
        elif (words := line.split())[-1:] == ["kB"]:
            sizes[words[0].rstrip(":")] = int(words[1]) * 1024
    if header:
        yield _mapping(header, sizes)


def _mapping(header: re.Match[str], sizes: dict[str, int]) -> _Mapping:
    begin, end, access, shared, name = header.groups()
    private = shared == "p" and _ANONYMOUS_NAME.fullmatch(name.rstrip()) is not None
    # Run-time systems reserve terabytes that nobody may touch; their entries would take seconds to read.
    reserved = access == "---" and not sizes.get("Rss") and not sizes.get("Swap")
    return _Mapping(
        begin=int(begin, 16) // PAGE_BYTES,
        end=int(end, 16) // PAGE_BYTES,
        looked_at=private and not reserved,
        large_pages=sizes.get("AnonHugePages", 0) // (LARGE_PAGES * PAGE_BYTES) if private else 0,
    )


def _spans(mappings: Sequence[_Mapping]) -> list[_Span]:
    """Mappings by the groups that they are in: neighbours may share one."""
    spans: list[_Span] = []
    for mapping in mappings:
        begin = mapping.begin // GROUP_PAGES * GROUP_PAGES
        end = -(-mapping.end // GROUP_PAGES) * GROUP_PAGES
        pages = (mapping.begin, mapping.end)
        if spans and begin < spans[-1].end:
            last = spans[-1]
            spans[-1] = _Span(last.begin, end, [*last.mappings, pages])
        else:
            spans.append(_Span(begin, end, [pages]))
    return spans
