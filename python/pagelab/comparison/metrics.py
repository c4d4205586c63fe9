"""The figures that are compared, and that may have limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pagelab.results.headline import busy_cycles, faults

Stats: TypeAlias = Mapping[str, int]


@dataclass(frozen=True)
class Metric:
    """A figure of a run."""

    name: str
    """The name in `--fail-if` and JSON."""
    label: str
    unit: str
    value: Callable[[Stats], int | None]
    """None if the run did not count it."""
    divisor: Callable[[Stats], int | None] | None = None
    """The divisor, if it is a ratio."""

    def evaluate(self, stats: Stats) -> float | None:
        """The figure of one run; none if the run did not count it or would divide by 0."""
        value = self.value(stats)
        if value is None or self.divisor is None:
            return value
        divisor = self.divisor(stats)
        return value / divisor if divisor else None


def _count(name: str) -> Callable[[Stats], int | None]:
    return lambda stats: stats.get(name)


def _busy(stats: Stats) -> int | None:
    return busy_cycles(stats) if "cycles" in stats else None


def _faults(stats: Stats) -> int | None:
    return faults(stats) if "fault.minor.count" in stats else None


def statistic(name: str) -> Metric:
    """A raw statistic of the engine by its own name."""
    return Metric(name, name, "", _count(name))


TOTALS = (
    Metric("cycles", "busy cycles", "cycles", _busy),
    Metric("elapsed_cycles", "elapsed cycles", "cycles", _count("elapsed_cycles")),
    Metric("instructions", "instructions", "count", _count("instructions")),
    Metric("accesses", "accesses", "count", _count("accesses")),
    Metric("l1_tlb_misses", "L1 data TLB misses", "count", _count("dtlb.l1.misses")),
    Metric("tlb_misses", "L2 data TLB misses", "count", _count("dtlb.l2.misses")),
    Metric("code_tlb_misses", "L2 code TLB misses", "count", _count("itlb.l2.misses")),
    Metric("walks", "page walks", "count", _count("walk.count")),
    Metric("walk_refs", "references of walks", "count", _count("walk.refs")),
    Metric("refs_per_walk", "references per walk", "ratio", _count("walk.refs"), _count("walk.count")),
    Metric("walk_cycles", "cycles of walks", "cycles", _count("walk.cycles")),
    Metric("cycles_per_walk", "cycles per walk", "ratio", _count("walk.cycles"), _count("walk.count")),
    Metric("faults", "page faults", "count", _faults),
    Metric("minor_faults", "minor faults", "count", _count("fault.minor.count")),
    Metric("major_faults", "major faults", "count", _count("fault.major.count")),
    Metric("host_faults", "faults of hosts", "count", _count("fault.nested.count")),
    Metric("zero_page_faults", "reads of the zero page", "count", _count("fault.zero_page.count")),
    Metric("file_faults", "faults of cached files", "count", _count("fault.cached.count")),
    Metric("copy_faults", "copies on write", "count", _count("fault.copy.count")),
)
CLASSES = (
    Metric("base_cycles", "instructions", "cycles", _count("cycles.base")),
    Metric("data_cycles", "data stalls", "cycles", _count("cycles.data_stall")),
    Metric("translation_cycles", "address translation", "cycles", _count("cycles.translation")),
    Metric("fault_cycles", "page faults", "cycles", _count("cycles.fault")),
    Metric("fetch_cycles", "fetched instructions", "cycles", _count("cycles.fetch")),
    Metric("branch_cycles", "mispredicted branches", "cycles", _count("cycles.branch")),
    Metric("sibling_cycles", "hardware threads", "cycles", _count("cycles.sibling")),
    Metric("io_cycles", "devices", "cycles", _count("cycles.io")),
    Metric("lock_cycles", "waiting for locks", "cycles", _count("cycles.lock_wait")),
    Metric("blocked_cycles", "waiting for threads", "cycles", _count("cycles.blocked")),
    Metric("kernel_cycles", "other kernel work", "cycles", _count("cycles.kernel")),
    Metric("stolen_cycles", "interrupts", "cycles", _count("cycles.stolen")),
)
"""Classes of cycles; they sum to the busy cycles"""

METRICS = {metric.name: metric for metric in (*TOTALS, *CLASSES)}

PLACE_METRICS = ("paging_cycles", "translation_cycles", "fault_cycles", "walks", "faults")
"""Figures of a mapping or function, as `walks[heap]`"""


@dataclass(frozen=True)
class Costs:
    """The cost of paging at a place in memory or code."""

    walks: float = 0
    translation_cycles: float = 0
    faults: float = 0
    fault_cycles: float = 0

    @classmethod
    def from_row(cls, row: Mapping[str, int]) -> "Costs":
        """From a row of a profile."""
        return cls(row["walks"], row["translation_cycles"], row["faults"], row["fault_cycles"])

    @property
    def paging_cycles(self) -> float:
        return self.translation_cycles + self.fault_cycles

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            self.walks + other.walks,
            self.translation_cycles + other.translation_cycles,
            self.faults + other.faults,
            self.fault_cycles + other.fault_cycles,
        )

    def get(self, metric: str) -> float:
        """One of `PLACE_METRICS`."""
        value: float = getattr(self, metric)
        return value
