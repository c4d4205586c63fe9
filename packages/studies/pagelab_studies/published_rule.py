"""What a kernel would do to its page tables if it continued from every hit of the published translation cache.

The simulator counts wrong hits and walks from the root. Here the rule alone is modelled: the arrays, and which places
of the last level hold a page.

Models: direct-mapped arrays of pgd, pud and pmd, indexed and tagged by the address's own offset of 9 bits. A level hits
    if it and all above it match. Levels below the hit are filled. Threads touch pages of their regions in turn.
Source: Wu and Patel, sections 4.1 and 4.2.
Deviations: in `fates` a page that finds its place taken is lost. In `refaults` the instruction faults again until its
    page is mapped, as on hardware; threads fault in turn.
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
    orders = _orders(region, threads, touches, seed)
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


def _orders(region: Region, threads: int, touches: int, seed: int) -> list[list[int]]:
    """The pages that each thread touches, in its part of a mapping, at random."""
    generator = random.Random(seed)
    part = region.pages // threads
    return [
        [region.start + thread * part + offset for offset in generator.sample(range(part), touches)]
        for thread in range(threads)
    ]


@dataclass(frozen=True)
class Refaults:
    """What becomes of threads whose instructions fault again until their page is mapped."""

    faults: int
    done: int
    """Touches that ended."""
    misplaced: int
    """Pages mapped at another address."""
    hangs: bool
    """Whether all threads that are left fault for ever: each finds its place taken, and nothing changes any more."""


def refaults(region: Region, threads: int, touches: int, entries: int = 16, seed: int = 1) -> Refaults:
    """The first touches of threads, each in its own part of a mapping, at random, one fault per thread in turn."""
    left = [list(reversed(order)) for order in _orders(region, threads, touches, seed)]
    cache = _Cache(entries)
    mapped: set[int] = set()
    faults = done = misplaced = 0
    while any(left):
        changed = False
        for order in left:
            if not order:
                continue
            page = order[-1]
            if page not in mapped:
                faults += 1
                before = cache.fills
                place = cache.place(page)
                changed |= cache.fills > before or place not in mapped
                misplaced += place != page and place not in mapped
                mapped.add(place)
            if page in mapped:
                order.pop()
                done += 1
                changed = True
        if not changed:
            return Refaults(faults, done, misplaced, hangs=True)
    return Refaults(faults, done, misplaced, hangs=False)


class _Cache:
    """Arrays of tags, and of the part of the address that the cached entry really translates."""

    def __init__(self, entries: int) -> None:
        self._mask = entries - 1
        self._arrays: list[dict[int, tuple[int, int]]] = [{} for _ in _LEVELS]
        self.fills = 0

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
            self.fills += 1
        return reached << _BITS | page & _MASK
