"""Looks at the memory of all observed processes."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.idle import IdlePages
from pagelab.observe.layout import Pagemaps
from pagelab.observe.mappings import HUGE_BYTES, Mapping, mappings
from pagelab.observe.nodes import Topology, nodes_of_mappings, topology
from pagelab.observe.processes import identify
from pagelab.observe.regions import Amounts, ProcessRegions, Region
from pagelab.observe.used import SET_SECONDS, AccessedBits

_PAGE_BYTES = 4096
_LOOKS_PER_SAMPLE = 8
"""Looks per sample of the sizes of pages"""


@dataclass(frozen=True)
class Look:
    """One look at all processes."""

    seconds: float
    """Since the observation began"""
    processes: int
    mappings: int
    interval_seconds: float | None
    """How long the interval was whose used memory it tells"""
    cost_seconds: float
    """CPU time of this process"""
    in_program_seconds: float
    """CPU time that the look took in the program, estimated"""


@dataclass
class Looks:
    """Everything that the looks have shown."""

    bits: AccessedBits | IdlePages | None
    """None if accessed bits are not to be cleared"""
    pagemaps: Pagemaps = field(default_factory=Pagemaps)
    topology: Topology = field(default_factory=topology)
    regions: dict[int, ProcessRegions] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    """Why accessed bits of some processes are not cleared"""
    _cleared: dict[int, float] = field(default_factory=dict)
    _started: dict[int, int] = field(default_factory=dict)

    def look(self, pids: Iterable[int], begin: float) -> Look:
        """Looks at the processes; those that have ended are passed over.

        Args:
            pids: The processes.
            begin: When the observation began, by `time.monotonic`.
        """
        number, before, now = len(self.looks), time.process_time(), time.monotonic()
        seen = count = 0
        intervals, price = [], 0.0
        for pid in pids:
            with suppress(ProcessEndedError):
                listed = self._look_at(pid, number)
                if listed is None:
                    continue
                seen, count = seen + 1, count + len(listed)
                if pid in self._cleared:
                    intervals.append(now - self._cleared[pid])
                price += self._clear(pid, listed)
        interval = max(intervals, default=None)
        look = Look(now - begin, seen, count, interval, time.process_time() - before, price)
        if seen:
            self.looks.append(look)
        return look

    def _look_at(self, pid: int, number: int) -> list[Mapping] | None:
        identity = identify(pid)
        # The number may have gone to another process since.
        if self._started.setdefault(pid, identity.started) != identity.started:
            return None
        try:
            listed = mappings(pid)
        except UsageError as error:
            self.notes[str(error)] = None
            return None
        if self.bits is not None and pid in self._cleared:
            listed = self.bits.used(pid, listed)
        self.names[pid] = identity.name
        regions = self.regions.setdefault(pid, ProcessRegions(pid))
        regions.look(number, listed, used=pid in self._cleared)
        wanted = [one for one in listed if one.anonymous and one.size >= HUGE_BYTES and one.resident]
        with suppress(ProcessEndedError):
            # What was listed counts if it ends now.
            regions.set_layouts(self.pagemaps.layouts(pid, wanted, sizes=number % _LOOKS_PER_SAMPLE == 0))
            if self.topology.several:
                regions.set_nodes(nodes_of_mappings(pid))
        return listed

    def _clear(self, pid: int, listed: Sequence[Mapping]) -> float:
        """Begins an interval; returns what it costs the program, estimated."""
        if self.bits is None:
            return 0.0
        try:
            self.bits.clear(pid, listed)
        except UsageError as error:
            self.refused[str(error)] = None
            return 0.0
        first = pid not in self._cleared
        self._cleared[pid] = time.monotonic()
        # At most what is resident is used in the next interval; the last one is a better guess.
        entries = sum(
            one.huge // HUGE_BYTES
            + min(one.resident - one.huge, one.resident if first else one.referenced) // _PAGE_BYTES
            for one in listed
        )
        return entries * SET_SECONDS

    def all_regions(self) -> list[Region]:
        return [region for process in self.regions.values() for region in process.regions]

    def totals(self, pid: int | None = None) -> list[tuple[Look, Amounts]]:
        """The memory at each look, of all processes or of one."""
        sums: list[Amounts | None] = [None] * len(self.looks)
        for region in self.all_regions() if pid is None else self.regions[pid].regions:
            for number, amounts in region.looks.items():
                if number < len(sums):
                    before = sums[number]
                    sums[number] = amounts if before is None else before + amounts
        return [(look, amounts or Amounts()) for look, amounts in zip(self.looks, sums, strict=True)]
