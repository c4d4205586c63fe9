"""What the walks of page faults cost on real processors, and how much of that a translation cache saves.

Models: cycles of walks are sums of the costs of finding the root, of levels, look-ups and fills. So the result for
    other costs follows from a run with the presets' costs.
Source: the replica of Linux 4.19's walk that `pagelab calibrate` has, in virtual machines of three processors: eight
    executions on an AMD EPYC of 2.6 GHz beside a load of 10 to 14 on two CPUs, eight on one of 2.4 GHz with a load of 1
    or 2, and eight on an Intel Xeon (model 207, Emerald Rapids, 2.9 GHz) with a load of 5 to 11. All were pinned, with
    real-time priority; medians of 11 runs each. How the compiler of the paper's kernel zeroes `struct vm_fault` is not
    known, so both ways count. Another replica, in C and built by GCC 12, was timed in the same way on the first one: it
    is in `TIMED` alone.
Deviations: a look-up that misses is assumed to cost the same, since the replica does not measure it separately. So the
    interval also includes the replicas' measurements of whole patterns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Measurement


@dataclass(frozen=True)
class Costs:
    """Cycles of the parts of a walk, including references, with all lines in the first-level cache."""

    walk: float
    root: float
    level: float
    look_up: float
    look_up_published: float
    fill: float

    def of_look_up(self, kernel: str) -> float:
        """The cost of the hardware's hint has not been measured."""
        return {"whole prefixes": self.look_up, "as published": self.look_up_published}.get(kernel, 0.0)


PRESET = Costs(walk=32, root=5, level=5, look_up=4, look_up_published=8, fill=4)
"""What `linux-4.19-stc*` charge."""
BY_STRING = (
    Costs(32.4, 6.4, 5.0, 3.6, 8.2, 2.1),
    Costs(32.3, 5.6, 5.3, 3.6, 8.3, 2.8),
    Costs(37.4, 10.3, 5.3, 3.6, 8.5, 2.2),
    Costs(32.4, 5.6, 5.3, 3.5, 7.9, 2.7),
    Costs(32.4, 5.7, 5.3, 3.6, 8.1, 2.1),
    Costs(32.4, 6.4, 5.0, 3.5, 8.1, 2.8),
    Costs(33.3, 4.9, 5.4, 3.6, 8.6, 2.7),
    Costs(32.4, 5.7, 5.3, 3.5, 8.5, 2.2),
    # The AMD EPYC of 2.4 GHz.
    Costs(53.1, 4.3, 5.6, 4.8, 7.5, 2.3),
    Costs(54.2, 5.0, 5.5, 6.5, 8.7, 5.9),
    Costs(56.3, 5.2, 5.5, 4.8, 6.4, 6.9),
    Costs(51.2, 4.8, 5.5, 5.1, 6.5, 4.6),
    Costs(55.7, 4.8, 5.6, 8.8, 6.6, 6.4),
    Costs(53.7, 2.8, 5.6, 5.7, 8.1, 5.3),
    Costs(42.9, 1.5, 6.1, 2.5, 7.6, 0.6),
    Costs(60.4, 4.8, 5.7, 5.9, 8.7, 6.8),
    # The Intel Xeon, in cycles of the core's clock. A look-up and a level may overlap the string instruction.
    Costs(69.9, 3.5, 1.9, 2.6, -2.8, 8.4),
    Costs(70.6, 5.9, 1.7, 0.8, 2.8, 8.0),
    Costs(70.1, 5.9, 2.7, 1.1, 2.0, 7.6),
    Costs(62.7, 8.0, 1.3, 0.8, 2.1, 7.1),
    Costs(61.4, 9.4, 1.5, 1.4, 2.4, 6.7),
    Costs(70.5, 7.7, 2.2, 2.7, 4.0, 5.7),
    Costs(68.3, 7.0, 1.9, 1.4, 1.4, 8.6),
    Costs(62.6, 8.7, 1.5, 0.8, 0.7, 5.0),
)
BY_STORES = (
    Costs(22.4, 2.8, 5.2, 3.6, 7.5, 3.0),
    Costs(22.5, 2.9, 5.2, 3.5, 16.5, 2.8),
    Costs(22.4, 2.8, 5.2, 3.5, 7.5, 3.0),
    Costs(27.4, 7.8, 5.2, 3.5, 7.5, 2.4),
    Costs(22.5, 2.9, 5.2, 3.5, 7.4, 2.8),
    Costs(22.5, 2.8, 5.2, 3.5, 7.7, 2.9),
    Costs(22.5, 2.9, 5.4, 3.6, 8.2, 2.8),
    Costs(22.4, 2.8, 4.8, 2.8, 6.9, 3.1),
    # The AMD EPYC of 2.4 GHz.
    Costs(30.6, 6.1, 3.9, 4.0, 4.9, 6.0),
    Costs(30.3, 5.1, 3.9, 2.6, 5.2, 4.2),
    Costs(31.6, 5.4, 4.5, 3.2, 5.6, 5.7),
    Costs(30.7, 6.3, 4.0, 2.7, 5.1, 4.0),
    Costs(30.7, 6.4, 4.3, 3.5, 5.0, 5.7),
    Costs(31.5, 5.5, 4.2, 3.3, 4.6, 5.1),
    Costs(24.5, 5.1, 3.8, 1.6, 4.6, -0.2),
    Costs(33.9, 5.1, 4.8, 4.3, 6.5, 6.0),
    # The Intel Xeon.
    Costs(34.8, 6.4, 7.5, 8.2, 10.9, 8.6),
    Costs(35.4, 4.5, 7.5, 6.1, 11.2, 9.0),
    Costs(35.9, 3.7, 7.5, 5.8, 8.7, 8.4),
    Costs(33.0, 6.9, 6.2, 3.7, 7.2, 7.2),
    Costs(33.3, 8.4, 6.6, 3.4, 4.4, 6.3),
    Costs(35.6, 5.2, 5.4, 3.1, 8.6, 6.3),
    Costs(33.8, 7.2, 6.5, 3.6, 6.2, 6.2),
    Costs(33.2, 8.5, 6.6, 4.0, 5.6, 5.4),
)
EVERY = (PRESET, *BY_STRING, *BY_STORES)
"""The presets' costs, then all measured ones."""
PROCESSORS = ("AMD 2.6 GHz", "AMD 2.4 GHz", "Intel 2.9 GHz")
"""In the order of the sets of costs, each with as many."""
ZEROED = ("string", "stores")
"""How `struct vm_fault` is zeroed."""
TIMED = {
    ("sequential", "whole prefixes"): (16.0, 50.0),
    ("semi-random", "whole prefixes"): (12.0, 42.0),
    ("random", "whole prefixes"): (-34.0, 25.0),
    ("sequential", "as published"): (8.0, 46.0),
    ("semi-random", "as published"): (0.0, 40.0),
    ("random", "as published"): (-33.0, 17.0),
}
"""Per cent saved of whole patterns by one thread on the replicas, with nothing touched between walks: lowest and
highest of all executions' medians."""


@dataclass(frozen=True)
class Walks:
    """Sums over the walks of some faults."""

    count: float
    cycles: float
    hits: float = 0
    """Walks that did not begin at the root."""
    levels: float = 0
    """Skipped."""
    look_ups: float = 0
    fills: float = 0
    fill_cycles: float = 0

    @classmethod
    def from_measurement(cls, measurement: Measurement) -> "Walks":
        stats = measurement.stats
        names = [name for name in ("pgd", "p4d", "pud", "pmd", "pte") if f"stc.hits.{name}" in stats]
        hits = sum(stats[f"stc.hits.{name}"] - stats.get(f"stc.false_hits.{name}", 0) for name in names)
        return cls(
            stats["fault.walk.count"],
            stats["fault.before_pte.cycles"],
            hits,
            stats.get("stc.refs.spared", 0) - hits,
            stats.get("stc.lookups", 0),
            stats.get("stc.fills", 0),
            stats.get("fault.fill.cycles", 0),
        )

    def plus(self, other: "Walks", times: float = 1) -> "Walks":
        """The sum with another's, which counts this many times."""
        return Walks(*(mine + times * its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    def mean(self, costs: Costs, kernel: str, *, with_fills: bool = True, further_levels: int = 0) -> float:
        """Cycles per walk at other costs than the preset's. They are sums, so nothing needs to run again. Fills may
        be after the timed interval. `further_levels` are those of the page table beyond four."""
        cycles = self.cycles + (costs.walk - PRESET.walk) * self.count
        cycles += further_levels * (costs.level - PRESET.level) * self.count
        cycles -= (costs.root - PRESET.root) * self.hits + (costs.level - PRESET.level) * self.levels
        cycles += (costs.of_look_up(kernel) - PRESET.of_look_up(kernel)) * self.look_ups
        cycles += (costs.fill - PRESET.fill) * self.fills if with_fills else -self.fill_cycles
        return cycles / self.count

    @property
    def at_every_cost(self) -> tuple[float, ...]:
        """Cycles of these walks, made without a cache, at the presets' costs and at all measured ones."""
        return tuple(self.count * self.mean(costs, "no cache") for costs in EVERY)


@dataclass(frozen=True)
class Saving:
    """Per cent of the walks' cycles that a cache saves."""

    values: tuple[float, ...]
    """At the preset's costs, then at all measured ones, with fills in the timed interval; then the same without."""
    timed: tuple[float, ...] = ()
    """The replicas' saving for the same pattern."""

    @classmethod
    def between(
        cls,
        kernel: str,
        before: Walks,
        after: Walks,
        timer: float = 0.0,
        timed: tuple[float, ...] = (),
        further_levels: int = 0,
    ) -> "Saving":
        def saved(costs: Costs, with_fills: bool) -> float:
            mean = after.mean(costs, kernel, with_fills=with_fills, further_levels=further_levels)
            return 100 * (1 - (mean + timer) / (before.mean(costs, kernel, further_levels=further_levels) + timer))

        return cls(tuple(saved(costs, with_fills) for with_fills in (True, False) for costs in EVERY), timed)

    @classmethod
    def mean_of(cls, savings: Iterable["Saving"]) -> "Saving":
        """The pair for each set of costs."""
        known = list(savings)
        values = zip(*(saving.values for saving in known), strict=True)
        timed = zip(*(saving.timed for saving in known), strict=True) if all(saving.timed for saving in known) else ()
        return cls(*(tuple(sum(each) / len(known) for each in part) for part in (values, timed)))

    def beyond(self, other: "Saving") -> "Saving":
        """The difference of two figures at the same costs."""
        return Saving(tuple(mine - its for mine, its in zip(self.values, other.values, strict=True)))

    def minus(self, other: "Saving") -> Interval:
        """The range of that difference."""
        return self.beyond(other).interval

    @property
    def by_costs(self) -> dict[str, Interval]:
        """The range at the costs of each processor and way of zeroing alone, with fills in the interval or after it."""
        return apart(self.values)

    @property
    def interval(self) -> Interval:
        return Interval.from_values((*self.values, *self.timed), self.values[0])


def apart(values: Sequence[float]) -> dict[str, Interval]:
    """The ranges of a figure at the costs of each processor and way of zeroing, of its values at all costs."""
    half = len(values) // 2
    each = len(BY_STRING) // len(PROCESSORS)
    of_group: dict[str, Interval] = {}
    for number, processor in enumerate(PROCESSORS):
        for number_of_kind, zeroed in enumerate(ZEROED):
            # The presets' costs come first.
            first = 1 + number_of_kind * len(BY_STRING) + number * each
            known = (*values[first : first + each], *values[half + first : half + first + each])
            of_group[_group(processor, zeroed)] = Interval.from_values(known)
    return of_group


def gains_at(savings: Iterable[Saving]) -> str:
    """By whose costs all these figures are above 0, by whose one is not, and by whose that is open, in words."""
    known = [saving.by_costs for saving in savings]
    verdicts = {group: all_hold(one[group].above(0) for one in known) for group in known[0]}
    parts = []
    for verdict, word in ((True, "yes"), (False, "no"), (None, "open")):
        groups = []
        for processor in PROCESSORS:
            ways = [zeroed for zeroed in ZEROED if verdicts[_group(processor, zeroed)] is verdict]
            if ways:
                groups.append(processor if len(ways) == len(ZEROED) else _group(processor, *ways))
        if groups:
            parts.append(f"{word} by the costs of {', '.join(groups)}")
    return "; ".join(parts)


def _group(processor: str, *ways: str) -> str:
    return f"{processor} ({', '.join(ways)})"
