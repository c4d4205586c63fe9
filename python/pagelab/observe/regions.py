"""Mappings over time: what is one mapping's in all looks, and which of them an address lies in.

A mapping of 2 MiB or more is a region of its own, and keeps its region when it grows, shrinks or loses a part. Smaller
ones of the same process and name share one region: so a process with tens of thousands of mappings has few regions.
"""

import statistics
from bisect import bisect_right
from collections.abc import Mapping as Lookup
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pagelab.observe.layout import Layout
from pagelab.observe.mappings import HUGE_BYTES, Mapping


@dataclass(frozen=True)
class Amounts:
    """The memory of a region at one look, in bytes."""

    size: int = 0
    resident: int = 0
    shared: int = 0
    huge: int = 0
    swapped: int = 0
    used: int | None = None
    """In the interval that ended with the look; none if accessed bits were not cleared before"""

    def __add__(self, other: "Amounts") -> "Amounts":
        known = self.used is not None and other.used is not None
        return Amounts(
            self.size + other.size,
            self.resident + other.resident,
            self.shared + other.shared,
            self.huge + other.huge,
            self.swapped + other.swapped,
            (self.used or 0) + (other.used or 0) if known else None,
        )


@dataclass
class Region:
    """A mapping, or small mappings of one kind."""

    pid: int
    label: str
    begin: int
    end: int
    anonymous: bool
    access: str
    flags: str
    mappings: int = 1
    small: bool = False
    """Whether it stands for all mappings below 2 MiB of its kind"""
    looks: dict[int, Amounts] = field(default_factory=dict)
    """By the number of the look"""
    layout: Layout | None = None
    """At the look that showed the most pages"""
    nodes: Lookup[int, int] = field(default_factory=dict)
    """Bytes on each NUMA node at the last look; empty with one node"""
    faults: float = 0.0
    """Estimated from samples"""
    samples: int = 0
    """Sampled faults"""

    @property
    def may_be_huge(self) -> bool:
        """Whether the kernel may map a part of it with huge pages of its own accord."""
        whole = self.end // HUGE_BYTES - -(-self.begin // HUGE_BYTES)
        return self.anonymous and not self.small and whole > 0

    @property
    def last(self) -> Amounts:
        return self.looks[max(self.looks)]

    @property
    def largest(self) -> Amounts:
        return max(self.looks.values(), key=lambda amounts: amounts.resident)

    @property
    def most_used(self) -> int | None:
        """The most memory used in an interval, in bytes; none if no interval ended."""
        return max((amounts.used for amounts in self.looks.values() if amounts.used is not None), default=None)

    @property
    def usually_used(self) -> int | None:
        """The memory used in the median interval, in bytes."""
        used = [amounts.used for amounts in self.looks.values() if amounts.used is not None]
        return statistics.median_low(used) if used else None


class ProcessRegions:
    """The regions of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._large: list[Region] = []
        self._small: dict[str, Region] = {}
        self._begins: list[int] = []
        self._mappings: list[Mapping] = []
        self._owners: list[Region] = []
        self.regions: list[Region] = []

    def look(self, number: int, mappings: Sequence[Mapping], *, used: bool) -> None:
        """Takes the mappings of a look.

        Args:
            number: That of the look.
            mappings: In the order of their addresses.
            used: Whether Referenced is that of the interval before the look.
        """
        self._mappings = list(mappings)
        self._begins = [mapping.begin for mapping in mappings]
        former, self._large, self._owners = self._large, [], []
        for region in self._small.values():
            region.mappings = 0
        for region in self.regions:
            # Of a look that was interrupted.
            region.looks.pop(number, None)
        for mapping in mappings:
            region = self._large_region(mapping, former) if mapping.size >= HUGE_BYTES else self._small_region(mapping)
            amounts = Amounts(
                mapping.size,
                mapping.resident,
                mapping.shared,
                mapping.huge,
                mapping.swapped,
                mapping.referenced if used else None,
            )
            region.looks[number] = region.looks[number] + amounts if number in region.looks else amounts
            self._owners.append(region)

    def set_layouts(self, layouts: Lookup[int, Layout]) -> None:
        """Takes the layouts of the last look's mappings, by their begins."""
        sums: dict[int, Layout] = {}
        for mapping, region in zip(self._mappings, self._owners, strict=True):
            if mapping.begin in layouts:
                layout = layouts[mapping.begin]
                sums[id(region)] = sums[id(region)] + layout if id(region) in sums else layout
        for region in self.regions:
            seen = sums.get(id(region))
            if seen is None:
                continue
            former = region.layout
            # Not every look samples the sizes of pages.
            orders = seen.orders if former is None or any(seen.orders) else former.orders
            most = seen if former is None or seen.pages >= former.pages else former
            region.layout = replace(most, orders=orders)

    def set_nodes(self, nodes: Lookup[int, Lookup[int, int]]) -> None:
        """Takes the bytes on each node of the last look's mappings, by their begins."""
        sums: dict[int, dict[int, int]] = {}
        for mapping, region in zip(self._mappings, self._owners, strict=True):
            own = sums.setdefault(id(region), {})
            for node, size in nodes.get(mapping.begin, {}).items():
                own[node] = own.get(node, 0) + size
        for region in self.regions:
            region.nodes = sums.get(id(region), region.nodes)

    def region_at(self, address: int) -> Region | None:
        """The region of an address at the last look."""
        at = self.index_at(address)
        return None if at is None else self._owners[at]

    def mapping_at(self, address: int) -> Mapping | None:
        """The mapping of an address at the last look."""
        at = self.index_at(address)
        return None if at is None else self._mappings[at]

    def index_at(self, address: int) -> int | None:
        at = bisect_right(self._begins, address) - 1
        return at if at >= 0 and address < self._mappings[at].end else None

    def _region(self, mapping: Mapping) -> Region:
        """A new region of one mapping."""
        return Region(
            self.pid, mapping.label, mapping.begin, mapping.end, mapping.anonymous, mapping.access, mapping.flags
        )

    def _large_region(self, mapping: Mapping, former: list[Region]) -> Region:
        region = self._continued(mapping, former)
        if region is None:
            region = self._region(mapping)
            self.regions.append(region)
        region.begin, region.end, region.flags = mapping.begin, mapping.end, mapping.flags
        self._large.append(region)
        return region

    def _continued(self, mapping: Mapping, former: list[Region]) -> Region | None:
        """The region of the last look that the mapping continues; each is continued once."""
        # Both are in the order of their addresses.
        while former and former[0].end <= mapping.begin:
            former.pop(0)
        for number, region in enumerate(former):
            if region.begin >= mapping.end:
                break
            if region.label == mapping.label:
                return former.pop(number)
        return None

    def _small_region(self, mapping: Mapping) -> Region:
        region = self._small.get(mapping.label)
        if region is None:
            region = replace(self._region(mapping), mappings=0, small=True)
            self._small[mapping.label] = region
            self.regions.append(region)
        region.mappings += 1
        region.begin, region.end = min(region.begin, mapping.begin), max(region.end, mapping.end)
        return region
