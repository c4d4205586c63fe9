"""Who owns a part of a program's memory: glibc's malloc, another allocator, a runtime with a heap, or the program.

Models: the trace's mappings say which libraries a program uses. The heap of brk belongs to malloc if libc is
    mapped. malloc gives a large block its own mapping and writes its size into the first 16 bytes; it also writes at
    the start of a thread's arena. So a mapping is malloc's if libc's code stores 8 bytes at its start
    soon after it is made. Go's heap begins at 0xc000000000.
Source: malloc/malloc.c and malloc/arena.c of glibc 2.36 (sysmalloc_mmap, new_heap); runtime/malloc.go of Go.
Deviations: other allocators are recognised by the names of their libraries. Those linked into a program count as its
    own code.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pagelab.advice.gains import HUGE_BYTES, Helped


class Owner(Enum):
    """Who asked for memory."""

    GLIBC = "malloc of glibc"
    JEMALLOC = "jemalloc"
    MIMALLOC = "mimalloc"
    TCMALLOC = "tcmalloc"
    JAVA = "Java"
    GO = "Go"
    PROGRAM = "the program itself"
    UNKNOWN = "unknown"


_LIBRARIES = {
    "libjvm.so": Owner.JAVA,
    "libjemalloc.so": Owner.JEMALLOC,
    "libmimalloc.so": Owner.MIMALLOC,
    "libtcmalloc": Owner.TCMALLOC,
}
"""How the names of their files begin, by owner"""
_LIBC = "libc.so.6"
_GO_HEAP = range(0xC000000000, 0x10000000000)
_ARENA_BYTES = 64 << 20
"""Heaps of threads begin at multiples of it (HEAP_MAX_SIZE)"""
_HEAD_BYTES = 64
_SOON = 4096
"""Accesses after a mapping is made"""
_EXECUTABLE = 4
_LEAST_OF_GAIN = 0.01
_LEAST_OF_REGION = 0.1


@dataclass(frozen=True)
class Mapped:
    """A mapping when it is made."""

    process: int
    position: int
    start: int
    end: int
    protection: int
    file: str | None


@dataclass(frozen=True)
class Heap:
    """The heap of a process after a call of brk."""

    process: int
    start: int
    end: int


@dataclass(frozen=True)
class Store:
    """A store of 8 bytes soon after a mapping is made."""

    address: int
    instruction: int


class Memory:
    """The mappings of a trace."""

    def __init__(self, trace: Path | None) -> None:
        """For a recorded trace; None for workloads and imported traces, which have no such information."""
        self._trace = trace
        self._mappings = _mappings(trace) if trace else []
        self._heaps = _heaps(trace) if trace else []
        self._code = [mapping for mapping in self._mappings if mapping.file and mapping.protection & _EXECUTABLE]

    def owners(self, row: Mapping[str, Any]) -> list[Owner]:
        """The owner of the memory in a row of a profile's regions; small mappings among others do not count."""
        if self._trace is None or row["source"] != 0:
            return [Owner.UNKNOWN]
        if row["start"] in _GO_HEAP:
            return [Owner.GO]
        files = self._files(row["process"])
        other = _named(files)
        if row["kind"] == "heap":
            return [_heap_owner(files)]
        made = [
            mapping
            for mapping in self._mappings
            if mapping.file is None
            and mapping.process == row["process"]
            and mapping.start < row["end"]
            and mapping.end > row["start"]
        ]
        sizes: dict[Owner, int] = {}
        for mapping in made:
            owner = Owner.GLIBC if self._is_mallocs(mapping) else other or Owner.PROGRAM
            sizes[owner] = sizes.get(owner, 0) + min(mapping.end, row["end"]) - max(mapping.start, row["start"])
        least = _LEAST_OF_REGION * sum(sizes.values())
        return [owner for owner, size in sizes.items() if size >= least] or [Owner.UNKNOWN]

    def has_malloc_heap(self) -> bool:
        """Whether a huge page would be in a heap of glibc's malloc if that grew by whole ones; false if it does so."""
        return any(
            heap.end % HUGE_BYTES and _round_up(heap.end) - _round_up(heap.start) >= HUGE_BYTES
            for heap in self._heaps
            if _heap_owner(self._files(heap.process)) is Owner.GLIBC
        )

    def _files(self, process: int) -> list[str]:
        """Names of the files whose code a process has mapped."""
        return [Path(mapping.file).name for mapping in self._code if mapping.process == process and mapping.file]

    def _is_mallocs(self, mapping: Mapped) -> bool:
        libc = [
            range(code.start, code.end)
            for code in self._code
            if code.process == mapping.process and Path(code.file or "").name == _LIBC
        ]
        arena = -(-mapping.start // _ARENA_BYTES) * _ARENA_BYTES
        heads = [range(mapping.start, mapping.start + 16), range(arena, arena + _HEAD_BYTES)]
        return bool(libc) and any(
            any(store.address in head for head in heads) and any(store.instruction in code for code in libc)
            for store in self._stores(mapping)
        )

    def _stores(self, mapping: Mapped) -> Sequence[Store]:
        import polars as pl

        accesses = pl.scan_parquet(f"{self._trace}/accesses-*.parquet").slice(mapping.position, _SOON)
        within = (pl.col("kind") == 1) & (pl.col("size") == 8) & pl.col("vaddr").is_between(mapping.start, mapping.end)
        rows = accesses.filter(within).select("vaddr", "pc").collect().rows()
        return [Store(address, instruction) for address, instruction in rows]


def _named(files: Sequence[str]) -> Owner | None:
    """The allocator that the names of libraries show, if any."""
    return next((owner for name in files for begin, owner in _LIBRARIES.items() if name.startswith(begin)), None)


def _heap_owner(files: Sequence[str]) -> Owner:
    """The owner of the heap of brk, by the names of libraries."""
    other = _named(files)
    return other if other and other is not Owner.JAVA else Owner.GLIBC if _LIBC in files else Owner.PROGRAM


def _round_up(address: int) -> int:
    """Rounds up to a whole huge page."""
    return -(-address // HUGE_BYTES) * HUGE_BYTES


def owners_of(mappings: Iterable[Helped], memory: Memory) -> list[Owner]:
    """The owners of memory that huge pages help, each once; owners with nearly no gain are omitted."""
    owners = [
        owner
        for helped in mappings
        if helped.row["kind"] != "file" and helped.of_gain >= _LEAST_OF_GAIN
        for owner in memory.owners(helped.row)
    ]
    return list(dict.fromkeys(owners))


def _mappings(trace: Path) -> list[Mapped]:
    import polars as pl

    events = pl.scan_parquet(f"{trace}/events-*.parquet").filter(pl.col("kind") == "mmap")
    columns = ("process", "position", "addr", "len", "prot", "file")
    rows: Iterable[tuple[Any, ...]] = events.select(columns).collect().rows()
    return [Mapped(process, at, start, start + len_, prot, file) for process, at, start, len_, prot, file in rows]


def _heaps(trace: Path) -> list[Heap]:
    import polars as pl

    events = pl.scan_parquet(f"{trace}/events-*.parquet").filter(pl.col("kind") == "brk")
    rows: Iterable[tuple[Any, ...]] = events.select("process", "addr", "len").unique().collect().rows()
    return [Heap(process, start, start + len_) for process, start, len_ in rows]
