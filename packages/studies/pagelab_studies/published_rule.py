"""What a kernel would do to its page tables if it continued from every hit of the published translation cache.

The simulator counts wrong hits and walks from the root. Here the rule alone is modelled: the arrays, and which places
of the last level hold a page.

Models: direct-mapped arrays of pgd, pud and pmd, indexed and tagged by the address's own offset of 9 bits. A level hits
    if it and all above it match. Levels below the hit are filled. Threads touch pages of their regions in turn.
Source: Wu and Patel, sections 4.1 and 4.2.
Deviations: a page that finds its place taken is lost here; a kernel would repeat the fault, or end the program.
"""

import random
from collections import Counter
from dataclasses import dataclass
from enum import Enum

_BITS = 9
_MASK = (1 << _BITS) - 1
_LEVELS = (27, 18, 9)
"""Shifts of a page's number to the offsets of pgd, pud and pmd."""


class Fate(Enum):
    """What happens to a first touch."""

    RIGHT = "mapped where it belongs"
    ELSEWHERE = "mapped at another address of the mapping"
    OUTSIDE = "mapped at an address of no mapping"
    TAKEN = "the place holds another page"


@dataclass(frozen=True)
class Region:
    """A mapping, by pages."""

    start: int
    pages: int

    def holds(self, page: int) -> bool:
        return self.start <= page < self.start + self.pages


def fates(region: Region, threads: int, touches: int, entries: int = 16, seed: int = 1) -> Counter[Fate]:
    """What happens to the first touches of threads, each in its own part of a mapping, at random."""
    generator = random.Random(seed)
    part = region.pages // threads
    orders = [
        [region.start + thread * part + offset for offset in generator.sample(range(part), touches)]
        for thread in range(threads)
    ]
    cache = _Cache(entries)
    mapped: set[int] = set()
    counts: Counter[Fate] = Counter()
    for pages in zip(*orders, strict=True):
        for page in pages:
            place = cache.place(page)
            if place in mapped:
                counts[Fate.TAKEN] += 1
                continue
            mapped.add(place)
            if place == page:
                counts[Fate.RIGHT] += 1
            else:
                counts[Fate.ELSEWHERE if region.holds(place) else Fate.OUTSIDE] += 1
    return counts


class _Cache:
    """Arrays of tags, and of the part of the address that the cached entry really translates."""

    def __init__(self, entries: int) -> None:
        self._mask = entries - 1
        self._arrays: list[dict[int, tuple[int, int]]] = [{} for _ in _LEVELS]

    def place(self, page: int) -> int:
        """The page whose place in the last level a walk of this page reaches."""
        reached, depth = 0, 0
        for array, shift in zip(self._arrays, _LEVELS, strict=True):
            offset = page >> shift & _MASK
            entry = array.get(offset & self._mask)
            if entry is None or entry[0] != offset:
                break
            reached, depth = entry[1], depth + 1
        for array, shift in list(zip(self._arrays, _LEVELS, strict=True))[depth:]:
            offset = page >> shift & _MASK
            reached = reached << _BITS | offset
            array[offset & self._mask] = (offset, reached)
        return reached << _BITS | page & _MASK
