"""The plausible range of each measured figure; a figure outside it was not measured well.

Source: latencies of processors from 2008 to 2024 (A. Fog, "The microarchitecture of Intel, AMD and VIA CPUs";
    7-cpu.com), and costs of Linux's page faults, forks and switches on bare machines and in virtual ones.
Deviations: all limits are estimates. They are wide: half as much again as what was published, or more, and several
    times that where a hypervisor takes part.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """The range of a figure, in cycles unless its name says otherwise."""

    least: float
    most: float
    why: str

    def refusal(self, value: float) -> str | None:
        """Why a value is implausible; none if it is plausible."""
        if self.least <= value <= self.most:
            return None
        return f"{value:,.4g} is outside of {self.least:,g} to {self.most:,g}: {self.why}"


_PER_CYCLE = "bytes per cycle of its clock"

MACHINE: Mapping[str, Range] = {
    "tlb.l2_latency_cycles": Range(1, 40, "second-level TLBs take 5 to 9 cycles beyond the first"),
    "cache.l1.latency_cycles": Range(2, 10, "first-level caches take 3 to 5 cycles"),
    "cache.l2.latency_cycles": Range(6, 50, "second-level caches take 9 to 20 cycles"),
    "cache.l3.latency_cycles": Range(
        15, 200, "last-level caches take 26 to 130 cycles; more is mostly memory's, where others use the cache"
    ),
    "cache.dram_latency_cycles": Range(
        60, 3000, "memory takes 50 to 250 ns, and twice that on another node or a busy host"
    ),
    "cache.cache_to_cache_latency_cycles": Range(
        20, 3000, "a line from another core takes 15 to 250 ns, and more on a busy host"
    ),
    "cache.far_cores": Range(20, 6000, "a line from another cluster or package takes 50 to 500 ns"),
    "cache.bulk_parallelism": Range(1, 128, "a core has 10 to 64 lines under way, prefetchers included"),
    "bulk.store_bytes_per_cycle.l1": Range(4, 128, f"a core writes 16 to 64 bytes per cycle into its L1; {_PER_CYCLE}"),
    "bulk.store_bytes_per_cycle.l2": Range(2, 128, f"a core writes 8 to 64 bytes per cycle into its L2; {_PER_CYCLE}"),
    "bulk.store_bytes_per_cycle.l3": Range(1, 64, f"a core writes 4 to 32 bytes per cycle into the L3; {_PER_CYCLE}"),
    "bulk.store_bytes_per_cycle.memory": Range(0.25, 32, f"a core writes 4 to 60 GB/s to memory; {_PER_CYCLE}"),
    "bulk.store_bytes_per_cycle.non_temporal": Range(0.25, 32, f"a core writes 4 to 60 GB/s to memory; {_PER_CYCLE}"),
    "bulk.load_bytes_per_cycle.l1": Range(4, 256, f"a core reads 16 to 128 bytes per cycle from its L1; {_PER_CYCLE}"),
    "bulk.load_bytes_per_cycle.l2": Range(2, 256, f"a core reads 16 to 64 bytes per cycle from its L2; {_PER_CYCLE}"),
    "bulk.load_bytes_per_cycle.l3": Range(1, 128, f"a core reads 4 to 32 bytes per cycle from the L3; {_PER_CYCLE}"),
    "bulk.load_bytes_per_cycle.memory": Range(0.25, 64, f"a core reads 4 to 60 GB/s from memory; {_PER_CYCLE}"),
}
"""By the key of a machine preset."""

_FAULT = "a minor fault takes 0.1 to 1 µs on bare machines, and up to 10 µs in virtual ones"
KERNEL: Mapping[str, Range] = {
    "zero-page-read": Range(200, 100_000, _FAULT),
    "first-write": Range(300, 200_000, _FAULT),
    "zero-page-write": Range(300, 200_000, _FAULT),
    "forked-write": Range(300, 200_000, _FAULT),
    "file-read": Range(200, 100_000, _FAULT),
    "file-read-around": Range(300, 300_000, "it maps 16 pages at once"),
    "context-switch": Range(
        200, 200_000, "a switch of processes takes 0.5 to 5 µs, and several times that on a busy host"
    ),
    "fork-page": Range(5, 20_000, "copying an entry and counting its page takes 20 to 200 ns"),
    "invalidate-page": Range(
        20, 50_000, "an entry is changed and INVLPG takes 100 to 500 cycles, with an exit in some guests"
    ),
    "mapping-call": Range(
        200, 200_000, "mmap or munmap of a page takes 0.3 to 2 µs, and more with mitigations or in some guests"
    ),
    "unmap-page": Range(20, 50_000, "freeing a page and its entry takes 30 to 500 ns"),
    "change-page": Range(5, 20_000, "changing an entry takes 5 to 150 ns"),
    "shootdown": Range(
        200, 400_000, "an IPI takes 0.5 to 2 µs on bare machines, and up to 50 µs where it leaves the guest"
    ),
    "system-call": Range(20, 50_000, "a system call takes 50 to 500 ns"),
    "walk": Range(1, 2_000, "it reads four entries, which are in caches"),
}
"""By the benchmark's name (`crates/pagelab-host`)."""
