"""What a change of pages, placement or allocator could save: bounds for each part of the memory.

Models: larger pages and populating save at most what faults cost without clearing and copying; memory that is kept
    instead of given back saves all of it. A fault of a larger page serves at most as many faults as it has small pages.
    Memory of another node costs at most as much more as the firmware's distances say, if the program only waits for
    memory.
Parameters: sizes of pages; the share of the CPU time that is worth work.
Deviations: walks are not in these bounds. Faults on the same page can be repeated for other reasons than that memory
    was given back: a page that is read before it is written, or shared after fork, has two.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagelab.observe.folios import ORDERS
from pagelab.observe.layout import PAGE_BYTES
from pagelab.observe.mappings import HUGE_BYTES
from pagelab.observe.observation import Observation
from pagelab.observe.regions import Region
from pagelab.observe.time_shares import PROGRAM, Share, TimeShares
from pagelab.observe.verdict import WORTH, Kind
from pagelab.quantities import size_text

_ARENA_BYTES = 64 << 20
"""A heap of glibc's arenas: HEAP_MAX_SIZE, and the multiple at which it begins"""
_SHOWN_ORDERS = (2, 4, ORDERS - 1)
_SIZES = Path("/sys/kernel/mm/transparent_hugepage")
_PAGES = "pages of "
_POPULATING = "MAP_POPULATE, or madvise(MADV_POPULATE_WRITE)"
_KEEPING = "M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt if it is malloc's, or not unmapping it after each use"
POPULATE = "populate"
KEEP = "keep memory"
PLACE = "NUMA placement"


@dataclass(frozen=True)
class Spared:
    """Faults that a change would spare, at least and at most."""

    low: float
    high: float


@dataclass(frozen=True)
class Projection:
    """What a change of a region could save."""

    change: str
    region: Region | None
    """None: memory that comes and goes between looks"""
    spared: Spared | None
    """None if the change is not about faults"""
    saving: Share | None
    """Of the CPU time: `high` is the bound. `low` is that of the 95 % interval of the bound, except for memory that is
    kept: there it is what the setting saves at least, if the memory is the allocator's. None if it is not known"""
    growth: int | None
    """Bytes by which memory grows at most"""
    kind: Kind
    setting: str
    """How it is done"""


def project(observation: Observation, times: TimeShares) -> list[Projection]:
    """All projections, those that may save most first."""
    regions = observation.looks.all_regions()
    faults = max(sum(region.faults for region in regions) + observation.elsewhere, 1.0)
    projections: list[Projection] = []
    for region in regions:
        if region.anonymous and (region.faults >= WORTH * faults or region.largest.resident >= HUGE_BYTES):
            projections += _of_region(region, observation, times, faults)
    if observation.elsewhere >= WORTH * faults:
        projections += _coming_and_going(observation, times, faults)
    if observation.looks.topology.several:
        projections += _placements(observation, times)
    return sorted(projections, key=lambda one: -(one.saving.high if one.saving else 0.0))


def is_larger(change: str) -> bool:
    """Whether a change is another size of pages."""
    return change.startswith(_PAGES)


def shown_sizes() -> list[str]:
    """The changes of sizes that the page of the terminal shows; the document has all."""
    return [_larger_pages(order) for order in _SHOWN_ORDERS]


def _larger_pages(order: int) -> str:
    return f"{_PAGES}{size_text(PAGE_BYTES << order)}"


def offered_orders(folder: Path | None = None) -> list[int]:
    """Orders of pages that this kernel can give anonymous memory, whether or not that is switched on."""
    folder = folder or _SIZES
    sizes = [int(path.name[10:-2]) << 10 for path in folder.glob("hugepages-*kB")]
    orders = {size // PAGE_BYTES for size in sizes if PAGE_BYTES < size <= HUGE_BYTES}
    # Kernels before 6.8 have no such folders.
    return sorted({number.bit_length() - 1 for number in orders} | ({ORDERS - 1} if folder.is_dir() else set()))


def _of_region(region: Region, observation: Observation, times: TimeShares, faults: float) -> Iterator[Projection]:
    part = region.faults / faults
    avoidable = _scaled(times.avoidable, part)
    if region.may_be_huge:
        layout = region.layout
        for order in offered_orders():
            yield _larger(region, region.faults, order, avoidable, layout.growth_with(order) if layout else None)
    grown = _grown_pages(region, observation)
    most = region.largest
    yield _judged(
        POPULATE,
        region,
        Spared(min(region.faults, grown), region.faults),
        avoidable,
        max(most.size - most.resident, 0),
        _POPULATING,
    )
    yield _kept(region, grown, _scaled(times.faults, part))


def _larger(
    region: Region | None, faults: float, order: int, avoidable: Share | None, growth: int | None
) -> Projection:
    part = 1 - 1 / (1 << order)
    switch = "enabled" if order == ORDERS - 1 else "hugepages-SIZEkB/enabled"
    setting = f"/sys/kernel/mm/transparent_hugepage/{switch}, and madvise(MADV_HUGEPAGE) where it says madvise"
    spared = Spared(0.0, faults * part)
    return _judged(_larger_pages(order), region, spared, _scaled(avoidable, part), growth, setting)


def _grown_pages(region: Region, observation: Observation) -> int:
    """Pages that the region got while it was observed, at least; a huge page is one."""
    pages = {
        number: (amounts.resident - amounts.huge) // PAGE_BYTES + amounts.huge // HUGE_BYTES
        for number, amounts in region.looks.items()
    }
    before = 0 if observation.from_start else pages.get(0, 0)
    return max(max(pages.values()) - before, 0)


def _kept(region: Region, grown: int, whole: Share | None) -> Projection:
    """Faults on pages that were there before: of so few pages, so many faults."""
    least = region.faults * (1 - 2 / math.sqrt(region.samples)) if region.samples > 4 else 0.0
    span = max(amounts.size for amounts in region.looks.values()) // PAGE_BYTES
    repeated = Spared(max(least - span, 0.0), max(region.faults - grown, 0.0))
    saving = None
    if whole is not None:
        parts = [count / max(region.faults, 1.0) for count in (repeated.low, repeated.high)]
        saving = Share(whole.share * sum(parts) / 2, whole.low * parts[0], whole.high * parts[1])
    return _judged(KEEP, region, repeated, saving, 0, _keeping(region))


def _keeping(region: Region) -> str:
    """The settings that keep memory of this kind."""
    if region.label == "heap":
        return "M_TRIM_THRESHOLD and M_TOP_PAD of mallopt"
    in_place = region.begin % _ARENA_BYTES == 0 and region.end - region.begin <= _ARENA_BYTES
    if in_place and region.label == "anonymous memory":
        return "M_TRIM_THRESHOLD of mallopt, or fewer arenas by MALLOC_ARENA_MAX"
    return "M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt, or fewer madvise(MADV_DONTNEED) of the program's own"


def _coming_and_going(observation: Observation, times: TimeShares, faults: float) -> Iterator[Projection]:
    """Of memory that no look has shown. Which kind it is, and how full it gets, is not known."""
    count, part = observation.elsewhere, observation.elsewhere / faults
    avoidable = _scaled(times.avoidable, part)
    for order in offered_orders():
        yield _larger(None, count, order, avoidable, None)
    yield _judged(POPULATE, None, Spared(0.0, count), avoidable, None, _POPULATING)
    whole = _scaled(times.faults, part)
    # A process that ended before a look has such faults, too, and they are not repeated.
    least = 0.0 if len(observation.pids) > 1 else whole.low if whole else 0.0
    saving = None if whole is None else Share(whole.share, least, whole.high)
    yield _judged(KEEP, None, Spared(0.0, count), saving, 0, _KEEPING)


def _placements(observation: Observation, times: TimeShares) -> Iterator[Projection]:
    """The bound for memory on other nodes than the CPUs that run the program."""
    own = times.activities.get(PROGRAM) if not times.missing else None
    total = sum(sum(region.nodes.values()) for region in observation.looks.all_regions())
    for region in observation.looks.all_regions():
        size = sum(region.nodes.values())
        if size >= HUGE_BYTES:
            evenly, most = _farness(region, observation)
            saving = None if own is None else Share(own.share * evenly * size / total, 0.0, own.high * most)
            yield _judged(PLACE, region, None, saving, 0, "numactl --cpunodebind and --membind, or migratepages")


def _farness(region: Region, observation: Observation) -> tuple[float, float]:
    """Which part of the time of accesses the distance takes: if all pages are used alike, and at most."""
    nodes, held = observation.looks.topology, {node: size for node, size in region.nodes.items() if size}
    clock, size = sum(observation.cpus.values()), sum(held.values())
    evenly = most = 0.0
    for cpu, samples in observation.cpus.items():
        near = nodes.node_of(cpu)
        if near is not None:
            parts = {node: 1 - 1 / nodes.slowdown(near, node) for node in held}
            evenly += samples / clock * sum(part * held[node] / size for node, part in parts.items())
            # All accesses may go to the few pages that are farthest.
            most += samples / clock * max(parts.values())
    return evenly, most


def _judged(
    change: str,
    region: Region | None,
    spared: Spared | None,
    saving: Share | None,
    growth: int | None,
    setting: str,
) -> Projection:
    if saving is None:
        kind = Kind.UNDECIDED
    elif saving.high < WORTH:
        kind = Kind.NOTHING
    else:
        kind = Kind.WORTH_A_RECORDING if saving.low >= WORTH else Kind.UNDECIDED
    return Projection(change, region, spared, saving, growth, kind, setting)


def _scaled(share: Share | None, part: float) -> Share | None:
    return None if share is None else Share(share.share * part, share.low * part, share.high * part)
