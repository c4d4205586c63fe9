"""What "PTEMagnet" is told by: misses of walks, lines of the host's PTEs, and time saved, over the seeds."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_runs import FRESH, JUDGED, ORDER_0, SEEDS, Workload
from pagelab_studies.study import Measurement, Measurements, MissingRunError

# A window with fewer walks of its program decides nothing. Neither does a ratio of fewer misses, of which chance alone
# makes a tenth more or less.
LEAST_WALKS = 1000
LEAST_MISSES = 100
# Places that served the references of walks which count as misses.
BEYOND_L2 = ("l3", "remote", "dram")
MEMORY = ("dram",)
# Pages whose PTEs share a line of 64 bytes.
GROUP = 8
# Per cent of a program's time that count as no change: less than the spread of measured runs
NO_CHANGE = 0.05
PARTS = {"of translation": "cycles.translation", "of data": "cycles.data_stall"}
"""Where the time of programs goes after first touches, but for a constant"""


def spread(values: Iterable[float]) -> Interval:
    """The mean over seeds, and from the lowest to the highest."""
    known = list(values)
    return Interval.from_values(known, sum(known) / len(known))


def all_seeds(measured: Measurements, workload: Workload, system: str, label: str = FRESH) -> list[Measurement]:
    return list(measured.seeds(workload.name, system, label).values())


def decided(verdict: bool | None, measurements: Iterable[Measurement]) -> bool | None:
    """A verdict, unless there are too few seeds, or walks in a window, to give one."""
    known = list(measurements)
    enough = len({m.run.seed for m in known}) >= len(SEEDS)
    return verdict if enough and all(m.main("walk.count") >= LEAST_WALKS for m in known) else None


def refuted(verdict: bool | None, measurements: Iterable[Measurement]) -> bool | None:
    """A verdict on a statement about all programs, for one of them. Fewer seeds than decide for it can refute it."""
    return verdict if verdict is False else decided(verdict, measurements)


class Misses:
    """Misses of the walks of some programs, each with the same seeds and each as if it made as many accesses.

    Args:
        programs: The measurements of each program, by seed.
        places: What served the references that count as misses.
        of_all: Whether the walks of co-runners count as well.
    """

    def __init__(
        self, programs: Sequence[dict[int, Measurement]], places: tuple[str, ...] = BEYOND_L2, *, of_all: bool = False
    ) -> None:
        self._seeds = [
            [by_seed[seed] for by_seed in programs] for seed in sorted(set.intersection(*map(set, programs)))
        ]
        self._places, self._of_all = places, of_all

    def _per_access(self, group: Sequence[Measurement], layer: str) -> float:
        return sum(m.walk_refs(layer, self._places, of_all=self._of_all) / m.window for m in group)

    def _walks(self, group: Sequence[Measurement]) -> float:
        return sum((m.stats["walk.count"] if self._of_all else m.main("walk.count")) / m.window for m in group)

    def per_walk(self, layer: str) -> Interval:
        """References to a layer's table that missed, per walk."""
        return spread(self._per_access(group, layer) / max(self._walks(group), 1e-9) for group in self._seeds)

    @property
    def ratio(self) -> Interval:
        """Misses in the host's table for each in the guest's; one in all windows where the guest has none."""
        least = [1 / sum(m.window for m in group) for group in self._seeds]
        return spread(
            self._per_access(group, "host") / max(self._per_access(group, "guest"), one)
            for group, one in zip(self._seeds, least, strict=True)
        )

    @property
    def too_few(self) -> bool:
        """Whether the guest misses so seldom in a window that the ratio is a quotient of almost nothing."""
        return any(
            sum(m.walk_refs("guest", self._places, of_all=self._of_all) for m in group) < LEAST_MISSES
            for group in self._seeds
        )

    @property
    def host_misses_more(self) -> bool | None:
        """None too where there are too few misses."""
        if self.too_few:
            return None
        return decided(self.ratio.above(1), (m for group in self._seeds for m in group))

    def __str__(self) -> str:
        guest, host = (self.per_walk(layer).value for layer in ("guest", "host"))
        return f"{self.ratio}, of {host:.2g} and {guest:.2g} misses per walk"


def misses(
    measured: Measurements, workload: Workload, places: tuple[str, ...], label: str, system: str = ORDER_0
) -> Misses:
    return Misses([measured.seeds(workload.name, system, label)], places)


def pooled(measured: Measurements, places: tuple[str, ...], label: str) -> Misses:
    """Those of all programs that the paper's statements are judged by."""
    return Misses([measured.seeds(workload.name, ORDER_0, label) for workload in JUDGED], places)


def lines(measurement: Measurement, guest: str = "guest") -> float:
    """Cache lines of the host's PTEs for each of the guest's, a layer of this name."""
    groups = measurement.stats[f"layer.{guest}.contiguity.groups"]
    return measurement.stats[f"layer.{guest}.contiguity.pte_lines"] / groups if groups else 0.0


def scattered(measurement: Measurement) -> float:
    """Per cent of the regions of 32 KiB, all of whose pages are there, whose host's PTEs are in over two lines.

    A run of adjacent frames takes one or two, wherever it begins.
    """
    pages: Counter[int] = Counter()
    host_lines: dict[int, set[int]] = {}
    for page, frame, count in measurement.contiguity_map["guest"]:
        for at in range(count):
            group = (page + at) // GROUP
            pages[group] += 1
            host_lines.setdefault(group, set()).add((frame + at) // GROUP)
    full = [len(host_lines[group]) for group, count in pages.items() if count == GROUP]
    return 100 * sum(count > 2 for count in full) / len(full) if full else 0.0


def not_in_one_block(measurement: Measurement) -> float:
    """Per cent of the regions of 32 KiB, all of whose pages are there, that are not one aligned block."""
    full = measurement.stats["layer.guest.contiguity.full_groups"]
    return 100 * (1 - measurement.stats["layer.guest.contiguity.contiguous_groups"] / full) if full else 0.0


def gain(measured: Measurements, workload: Workload, system: str, label: str = FRESH) -> Interval:
    """Per cent of the workload's cycles per access that a system saves against order-0 allocation, over the seeds."""
    before, after = (measured.seeds(workload.name, which, label) for which in (ORDER_0, system))
    both = sorted(before.keys() & after.keys())
    if not both:
        raise MissingRunError((workload.name, system, label))
    return spread(100 * (1 - after[seed].cycles_per_access / before[seed].cycles_per_access) for seed in both)


def points(before: Measurement, after: Measurement, part: str) -> float:
    """Per cent of all its cycles that a program saves in a part of them."""
    saved = before.main(part) / before.window - after.main(part) / after.window
    return 100 * saved / before.cycles_per_access


def gain_by_part(measured: Measurements, workload: Workload, system: str, label: str = FRESH) -> dict[str, Interval]:
    """What a system saves against order-0 allocation, of all cycles and of each part of them."""
    before, after = (measured.seeds(workload.name, which, label) for which in (ORDER_0, system))
    both = sorted(before.keys() & after.keys())
    saved = {"all": gain(measured, workload, system, label)}
    return saved | {
        name: spread(points(before[seed], after[seed], part) for seed in both) for name, part in PARTS.items()
    }


def band(as_set: Interval, at_equal_cost: Interval) -> Interval:
    """From reserved pages as cheap as they are set to equal cost, whose middle is the figure."""
    both = (as_set, at_equal_cost)
    middle = (as_set.value + at_equal_cost.value) / 2
    return Interval(min(one.low for one in both), middle, max(one.high for one in both))
