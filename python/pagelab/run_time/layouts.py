"""Page-size layouts: which parts of a program's memory are in huge pages.

Models: `native/layout.c`, loaded into the program, advises the heap and each anonymous private mapping by madvise(2).
Source: O. Agbarya, I. Yaniv, J. Gandhi, D. Tsafrir, "Predicting Execution Times With Partial Simulations in Virtual
    Memory Research: Why and How", MICRO 2020: layouts made by an allocator of one large heap (Mosalloc).
Parameters: `4k`, `thp`, `host`, or parts such as `heap=25%,mmap=50%` and `heap=0-64MiB`.
Deviations: advice, not reservations of hugetlbfs, so the kernel may lack a free huge page. What became huge is
    measured. A share is spread evenly over pieces of 2 MiB, where Mosalloc makes windows. Windows are the heap's alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab._engine import UsageError

HUGE_BYTES = 2 << 20
HUGE_PAGES, SMALL_PAGES = 14, 15
"""MADV_HUGEPAGE and MADV_NOHUGEPAGE of madvise(2)"""
_ALL = (1 << 64) - 1
_FORMS = "4k, thp, host, or parts such as heap=25%, heap=0-64MiB, mmap=50%"


@dataclass(frozen=True)
class Layout:
    """Which parts are huge, in thousandths of the parts' pieces of 2 MiB."""

    name: str
    heap_permille: int = 0
    heap_from_bytes: int = 0
    heap_to_bytes: int = _ALL
    mmap_permille: int = 0
    touched: bool = True
    """False for `host`: the program runs as it is."""

    @property
    def small(self) -> bool:
        """Whether nothing is to be huge."""
        return self.touched and not self.heap_permille and not self.mmap_permille

    @property
    def whole(self) -> bool:
        """Whether heap and mappings are to be huge throughout."""
        return self.heap_permille == self.mmap_permille == 1000 and self.heap_to_bytes == _ALL

    def advice(self, addr: int, length: int, *, is_heap: bool, span_bytes: int) -> list[tuple[int, int, int]]:
        """The library's advice for a range, as by `apply` of `layout.c`: address, bytes and advice.

        Args:
            span_bytes: Bytes of the range in which shares are made; 0 for all.
        """
        if self.small:
            return []
        permille = self.heap_permille if is_heap else self.mmap_permille
        first, last = (self.heap_from_bytes, self.heap_to_bytes) if is_heap else (0, _ALL)
        if permille == 1000 and (first, last) == (0, _ALL):
            return [(addr, length, HUGE_PAGES)]
        start = -(-addr // HUGE_BYTES) * HUGE_BYTES
        end = addr + (min(length, span_bytes) if span_bytes else length)
        pieces = [
            start + at
            for at in range(0, end - start - HUGE_BYTES + 1, HUGE_BYTES)
            if first <= at < last and _is_huge(at // HUGE_BYTES, permille)
        ]
        return [(addr, length, SMALL_PAGES), *((at, size, HUGE_PAGES) for at, size in _joined(pieces))]

    def environment(self, library: Path, pool_bytes: int, span_bytes: int) -> dict[str, str]:
        """Additions to the program's environment.

        Args:
            pool_bytes: By how much the heap grows at a time; more than the program needs, so that it grows once.
            span_bytes: Bytes of the heap and of each mapping in which shares are made; 0 for all.
        """
        if not self.touched:
            return {}
        tunables = {
            "mmap_max": 0,
            "arena_max": 1,
            # No part of the heap goes back to the kernel, or its pages would come back without advice.
            "trim_threshold": (1 << 63) - 1,
            "top_pad": pool_bytes,
        }
        numbers = (self.heap_permille, self.heap_from_bytes, self.heap_to_bytes, self.mmap_permille, span_bytes)
        return {
            "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in tunables.items()),
            "LD_PRELOAD": str(library),
            "PAGELAB_LAYOUT": " ".join(map(str, numbers)),
        }


def _is_huge(piece: int, permille: int) -> bool:
    """Whether the piece with this number is huge: in every prefix of pieces, the share is right to within one piece."""
    return (piece + 1) * permille // 1000 > piece * permille // 1000


def _joined(pieces: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring pieces as one range: address and bytes."""
    ranges: list[tuple[int, int]] = []
    for at in pieces:
        begin, size = ranges[-1] if ranges else (at, 0)
        if begin + size == at:
            ranges[-1:] = [(begin, size + HUGE_BYTES)]
        else:
            ranges.append((at, HUGE_BYTES))
    return ranges


def parse(text: str) -> Layout:
    """Parses a layout.

    Raises:
        UsageError: it is not a layout.
    """
    name = text.strip().replace(" ", "")
    match name.lower():
        case "4k":
            return Layout("4k")
        case "thp":
            return Layout("thp", heap_permille=1000, mmap_permille=1000)
        case "host":
            return Layout("host", touched=False)
    values: dict[str, Any] = {}
    for part in name.split(","):
        area, equals, value = part.partition("=")
        if part.lower() in ("4k", "thp", "host"):
            raise UsageError(f"--layout {text}: {part} stands alone; for several layouts, --layout 4k --layout thp")
        if not equals or area not in ("heap", "mmap"):
            raise UsageError(f"--layout {text}: {part!r} is no part of a layout; give {_FORMS}")
        if f"{area}_permille" in values:
            raise UsageError(f"--layout {text}: {area} is given twice")
        values |= _part(text, area, value)
    return Layout(name, **values)


def _part(text: str, area: str, value: str) -> Mapping[str, int]:
    if share := re.fullmatch(r"(\d+(?:\.\d)?)%", value):
        permille = round(10 * float(share[1]))
        if permille > 1000:
            raise UsageError(f"--layout {text}: {value} is more than all of the {area}; give 0% to 100%")
        return {f"{area}_permille": permille}
    begin, dash, end = value.partition("-")
    if not dash or area != "heap":
        wanted = "a share with one decimal at most, such as 25% or 12.5%"
        if area == "heap":
            wanted += ", or a window such as 0-64MiB"
        raise UsageError(f"--layout {text}: {area}={value}: give {wanted}")
    try:
        first, last = (_engine.parse_bytes(word) for word in (begin, end))
    except UsageError as error:
        raise UsageError(f"--layout {text}: {error}") from None
    if first % HUGE_BYTES or last % HUGE_BYTES or first >= last:
        raise UsageError(
            f"--layout {text}: a window goes from a lower to a higher offset, in whole pages of 2 MiB: "
            "heap=64MiB-128MiB"
        )
    return {"heap_permille": 1000, "heap_from_bytes": first, "heap_to_bytes": last}
