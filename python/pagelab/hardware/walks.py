"""How a processor walks page tables: the arrangement whose simulated walks cost as much as the walks here.

Models: loads to one line of each of many pages miss both levels of the TLB. Their additional time, compared with loads
    to the same number of lines that the TLB covers, is a walk. In a virtual machine the same is measured within large
    pages of the
    guest: if the host maps it with small pages, the TLB holds pieces of these, and misses as often. So the two separate
    the cost of a walk in the guest's tables from that in the host's. Chases of the same shape are simulated with each
    arrangement. The nearest one by the sum of squared logarithms is used.
Source: no vendor publishes these; the method is that of `lat_mem_rd` (lmbench, USENIX 1996) with another stride.
Parameters: `cache.walker_entry`, `mmu_cache.of_hosts`, `tlb.guest`. The sizes of MMU caches stay the base preset's.
Deviations: a guest TLB has the 64 entries, 4 ways and 2 cycles of an estimate. Of a host with large pages, `tlb.guest`
    cannot be seen, and `mmu_cache.of_hosts` is not looked for. As many lines close together may be beyond the
    first-level TLB themselves, where it holds pieces of pages: a few cycles.
"""

import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from pagelab.hardware.measured import Figure, Processor, near
from pagelab.replay.simulation import System, run
from pagelab.run_time.replaying import NESTED, NESTED_HUGE

REACHES = (2, 8)
"""Pages that are touched in turn, by entries of the second-level TLB: beyond it, and with page-table entries that the
caches hold"""
ENTRIES = 2048
"""Entries of a second-level TLB that is not described"""
_FAR = 1.5
"""A simulated walk that differs by more is not like this machine's"""
_LEAST_CYCLES = 10.0
"""Fewest cycles of a walk; less does not count as one"""
_LINE_BYTES = 64
_NODE_BYTES = 4096 + _LINE_BYTES
"""Each page uses another line, since otherwise all lines would be in few sets of the caches"""
_GUEST_TLB = {"entries": 64, "ways": 4, "latency_cycles": 2}
_ON_LARGE_PAGES: System = ("nested-radix", {"system.layers.host.page_size": "2M"})


@dataclass(frozen=True)
class Walks:
    """Cycles of a walk by the number of pages touched in turn: for small pages, and within large ones."""

    small: Mapping[int, float]
    large: Mapping[int, float]

    @property
    def in_pieces(self) -> bool:
        """Whether the TLB holds large pages in pieces."""
        return bool(self.large) and min(self.large.values()) > _LEAST_CYCLES

    def __str__(self) -> str:
        return "; ".join(
            f"{what} {' and '.join(f'{cycles:.0f}' for cycles in by_count.values())}"
            for what, by_count in (("in pages of 4K", self.small), ("within pages of 2M", self.large))
            if by_count
        )


@dataclass(frozen=True)
class Arrangement:
    """An arrangement that can be simulated."""

    walker_entry: str
    of_hosts: bool
    guest_tlb: bool

    def apply(self, machine: dict[str, Any]) -> None:
        """Puts it into a machine preset."""
        machine["cache"]["walker_entry"] = self.walker_entry
        machine["mmu_cache"].pop("of_hosts", None)
        machine["tlb"].pop("guest", None)
        if not self.of_hosts:
            machine["mmu_cache"]["of_hosts"] = False
        if self.guest_tlb:
            machine["tlb"]["guest"] = dict(_GUEST_TLB)


@dataclass(frozen=True)
class Fit:
    """The nearest arrangement, and the cost of its walks."""

    arrangement: Arrangement
    simulated: Walks
    others: int
    """Arrangements that are further away"""
    is_near: bool
    """Whether each of its walks is within half of the measured cost"""


def measured_walks(processor: Processor, entries: int = ENTRIES) -> Walks | None:
    """What walks cost on a processor with so many entries of its second-level TLB.

    None if its benchmarks have no chase over as many pages, or if these cost nothing. Nothing is told of large pages
    where the kernel did not give them.
    """

    def beyond(figures: Mapping[int, Figure]) -> dict[int, float]:
        counts = [reach * entries for reach in REACHES if reach * entries in figures]
        return {
            count: figures[count].value - near(processor.chase_cycles, _LINE_BYTES * count).value for count in counts
        }

    small = beyond(processor.small_page_cycles)
    if not small or min(small.values()) < _LEAST_CYCLES:
        return None
    return Walks(small, beyond(processor.piece_cycles) if processor.huge_share == 1 else {})


def fit(machine: Mapping[str, Any], measured: Walks, *, virtualised: bool) -> Fit:
    """The arrangement of a machine whose walks are nearest to those found.

    Args:
        machine: The preset without origins; it is not changed.
    """
    entries = ("l1", "l2") if "l2" in machine["cache"] else ("l1",)
    hosts, guests = ((True, False), (False, True)) if virtualised and measured.in_pieces else ((True,), (False,))
    arrangements = [Arrangement(*choice) for choice in itertools.product(entries, hosts, guests)]
    tried = [
        (arrangement, simulated(machine, arrangement, measured, virtualised=virtualised))
        for arrangement in arrangements
    ]
    best, cost = min(tried, key=lambda one: sum(math.log(ratio) ** 2 for ratio in _ratios(measured, one[1])))
    is_near = all(1 / _FAR < ratio < _FAR for ratio in _ratios(measured, cost))
    return Fit(best, cost, len(tried) - 1, is_near)


def _ratios(measured: Walks, cost: Walks) -> list[float]:
    """The measured cost of walks in small pages, and in large ones if that was measured."""
    pairs = [(measured.small[count], cost.small[count]) for count in cost.small]
    pairs += [(measured.large[count], cost.large[count]) for count in cost.large]
    return [made / wanted for wanted, made in pairs]


def simulated(machine: Mapping[str, Any], arrangement: Arrangement, measured: Walks, *, virtualised: bool) -> Walks:
    """What the same walks cost on a machine with an arrangement; of large pages if the TLB holds these in pieces."""
    nested = virtualised and measured.in_pieces
    preset = {key: dict(value) if isinstance(value, Mapping) else value for key, value in machine.items()}
    arrangement.apply(preset)
    systems: list[System] = [_ON_LARGE_PAGES if virtualised else "radix"]
    if nested:
        systems = [NESTED, NESTED_HUGE]
    by_count = {}
    with tempfile.TemporaryDirectory(prefix="pagelab-walks-") as folder:
        file = Path(folder) / "machine.toml"
        file.write_text(tomli_w.dumps(preset), encoding="utf-8")
        for count in measured.small:
            by_count[count] = _walks(file, systems, count)
    return Walks(
        {count: cycles[0] for count, cycles in by_count.items()},
        {count: cycles[1] for count, cycles in by_count.items()} if nested else {},
    )


def _walks(machine: Path, systems: Sequence[System], count: int) -> list[float]:
    """Cycles beyond a hit of the first-level TLB, per access of a chase that has been through its pages before."""
    spec = f"chase:size={count * _NODE_BYTES},node={_NODE_BYTES},init=pages"
    once, again = (run(f"{spec},passes={passes}", systems, machine=machine).systems for passes in (1, 3))

    def spent(before: Any, after: Any) -> float:
        difference = {key: after.stats[key] - before.stats[key] for key in ("walk.cycles", "dtlb.l1.misses")}
        second_level = after.config["machine"]["tlb"]["l2_latency_cycles"]
        return float(difference["walk.cycles"] + second_level * difference["dtlb.l1.misses"]) / (2 * count)

    return [spent(*pair) for pair in zip(once, again, strict=True)]
