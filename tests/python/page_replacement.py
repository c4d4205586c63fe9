"""Which visits to a file's pages find the page gone: plain models of page replacement, apart from the engine's.

Models: a file that is mapped, read page by page, and held by a cgroup with room for so many pages of it. `fifo` lets go
    of the pages in the order in which they were read. Linux does so from 6.3 on where the mapping has MADV_RANDOM, and
    nobody else uses the pages: such mappings have no recency, and what the accessed bits say of them is ignored.
    `lru` lets go of the page whose last visit is the longest ago.
Source: Linux 6.18: include/linux/mm_inline.h (`vma_has_recency`), mm/rmap.c (`invalid_folio_referenced_vma`),
    mm/workingset.c (`workingset_refault`: without active pages of files, and without swap, no refault is recent).
Parameters: `room`, in pages.
Deviations: no batches; a page leaves when one is needed. Pages that are just being read may not leave before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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
    found: list[int] = pages[np.append(True, pages[1:] != pages[:-1])].tolist()
    return found


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
