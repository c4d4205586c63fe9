"""One recording of a program for all layouts.

Models: layouts differ in the library's advice on huge pages, and in nothing else that a recording contains. Valgrind
    places the heap and mappings at the same addresses each time, and the library's allocator settings and alignment
    are the same under all layouts. So the program is recorded once, under `thp`, where the library advises each range
    as a whole. For another layout, that advice is replaced by the layout's (`layout.c`, `apply`).
Deviations: with a layout of shares, the library executes some dozen instructions more for each range. They are not in
    the trace. If a program's runs differ, one of them is replayed, whereas several are timed.
"""

from collections.abc import Iterator
from pathlib import Path

from pagelab import _engine
from pagelab.run_time.layouts import HUGE_PAGES, Layout

WHOLE = Layout("thp", heap_permille=1000, mmap_permille=1000)
"""The layout to record under"""


def derive(recording: Path, layout: Layout, output: Path, library: Path, span_bytes: int) -> None:
    """Writes the trace that the program would have made under a layout.

    Args:
        recording: Made under `WHOLE`.
        output: A new trace, which shares its accesses with the recording.
        library: The library that was loaded into the program.
        span_bytes: Bytes of the heap and of each mapping in which shares are made.

    Raises:
        TraceError: the recording cannot be read, or the trace cannot be written.
    """
    replacements = [
        layout.advice(addr, length, is_heap=is_heap, span_bytes=span_bytes)
        if is_library or layout.small
        else [(addr, length, HUGE_PAGES)]
        for addr, length, is_library, is_heap in _advised(recording, library)
    ]
    _engine.replace_advice(recording, output, replacements)


def _advised(recording: Path, library: Path) -> Iterator[tuple[int, int, bool, bool]]:
    """Each advice to use huge pages: address, bytes, whether the library gave it, and whether it is on the heap."""
    columns = ["process", "kind", "addr", "len", "file", "other_process", "argument"]
    kinds = ["mmap", "madvise", "exec", "fork", "vfork"]
    # Data frames take longer to import than the command line takes to answer.
    import polars as pl

    events = pl.read_parquet(recording / "events-*.parquet", columns=columns).filter(pl.col("kind").is_in(kinds))
    own = str(library.resolve())
    # Of processes that have loaded the library: whether it has advised the heap.
    advised: dict[int, bool] = {}
    for process, kind, addr, length, file, child, argument in events.select(columns).iter_rows():
        if kind == "exec":
            advised.pop(process, None)
        elif kind in ("fork", "vfork"):
            if process in advised:
                advised[child] = advised[process]
        elif kind == "mmap":
            if file == own:
                advised.setdefault(process, False)
        elif argument == HUGE_PAGES:
            # As it is loaded, the library advises the heap first.
            yield addr, length, process in advised, advised.get(process) is False
            if process in advised:
                advised[process] = True
