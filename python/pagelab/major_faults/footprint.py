"""What a major fault evicts from the program's caches.

Models: nothing; it measures. A working set as large as a cache is read in random order before and after a fault
    (crates/pagelab-host/src/footprint.rs). The additional time afterwards, divided by how much longer a line takes from
    the next cache than from this one, is the number of lost lines.
Source: sizes from /sys/devices/system/cpu/cpuN/cache (Documentation/ABI/testing/sysfs-devices-system-cpu).
Parameters: the CPU, faults per pass, runs.
Deviations: a line is assumed to come from the next cache. One that comes from farther away counts as several, up to all
    lines of the working set. Lines that come back to a full cache evict others, which also count as lost. Lines of the
    kernel that evict nothing of the working set are not seen. Longer translations count as lines. Lines lost from L2
    are measured with a set of half its size: a set of its full size does not stay in it, since L2 is indexed by
    physical addresses.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.major_faults.recorder import Target, ensure_cold
from pagelab.major_faults.stages import Spread

_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
APART = 1.3
"""How many times longer a line must take from the next cache for the two to be distinguished"""


class NoFootprintError(Exception):
    """What faults evict cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Caches:
    """Sizes of a CPU's caches in bytes."""

    line: int
    l1d: int
    l2: int
    l3: int

    @property
    def working_sets(self) -> list[int]:
        """As large as L1D, as half of L2 and as L2."""
        return [self.l1d, self.l2 // 2, self.l2]

    @property
    def latencies_of(self) -> list[int]:
        """Sets that fit L1D, L2 and L3."""
        return [self.l1d // 2, self.l2 // 4, min(4 * self.l2, self.l3 // 2)]


def caches(cpu: int) -> Caches:
    """The caches of a CPU, as the kernel reports them.

    Raises:
        NoFootprintError: the kernel does not know them, or their sizes are too similar.
    """
    sizes: dict[str, int] = {}
    for folder in (_CPUS / f"cpu{cpu}" / "cache").glob("index*"):
        try:
            level, kind, size, line = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size", "coherency_line_size")
            )
            if kind != "Instruction":
                sizes[level] = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
                if level == "1":
                    sizes["line"] = int(line)
        except (OSError, ValueError):
            continue
    names = {"line": "length of a line", "1": "size of L1D", "2": "size of L2", "3": "size of L3"}
    missing = [what for key, what in names.items() if sizes.get(key, 0) <= 0]
    if missing:
        raise NoFootprintError(f"{_CPUS}/cpu{cpu}/cache does not tell the {', the '.join(missing)}")
    host = Caches(sizes["line"], sizes["1"], sizes["2"], sizes["3"])
    # A quarter of L2 does not fit L1D, and some of L3 does not fit L2.
    if host.l2 < 8 * host.l1d or host.l3 < 4 * host.l2:
        raise NoFootprintError(
            f"L1D, L2 and L3 have {host.l1d >> 10}, {host.l2 >> 10} and {host.l3 >> 10} KiB; each must be several "
            "times as large as the one before (L2 eight times, L3 four times) for sets that lie in one alone"
        )
    return host


@dataclass(frozen=True)
class Loss:
    """What a working set loses by a fault."""

    name: str
    """The cache that it is as large as"""
    bytes: int
    lines: int
    """Of the working set"""
    cycles: Spread
    """By which reading all of it takes longer after a fault, minus the control"""
    lost: Spread
    """Lines, none to all, if each comes from the next cache"""
    least: float | None
    """Their median if each comes from L3, if that is not the next cache"""


@dataclass(frozen=True)
class Footprint:
    """What a fault evicts."""

    latencies: tuple[float, float, float]
    """Cycles per line from L1D, L2 and L3"""
    l1d: Loss
    """Of a set as large as L1D"""
    half_l2: Loss
    """Of one as large as half of L2"""
    l2: Loss
    """Of one as large as L2, some of which it has lost before"""
    filled: bool
    """Whether our own loop ran on the CPU while faults slept"""

    @property
    def losses(self) -> tuple[Loss, Loss, Loss]:
        return self.l1d, self.half_l2, self.l2


@dataclass(frozen=True)
class FootprintPass:
    """One pass over all working sets."""

    latencies: Sequence[float]
    """Cycles per line from L1D, L2 and L3"""
    lines: Sequence[int]
    after_fault: Sequence[Sequence[float]]
    """Cycles that the working set took longer, fault by fault"""
    control: Sequence[Sequence[float]]
    """The same with nothing between"""
    filled: bool

    def more(self, at: int) -> list[float]:
        """Additional cycles of a working set after each fault, minus those without a fault."""
        control = statistics.median(self.control[at])
        return [cycles - control for cycles in self.after_fault[at]]


def displace(target: Target, seed: int, caches: Caches) -> FootprintPass:
    """Touches pages that the page cache does not hold, between readings of working sets.

    Raises:
        MajorFaultError: the page cache holds them all the same.
        NoFootprintError: the engine cannot time that here.
    """
    asked = {
        "faults": target.faults,
        "seed": seed,
        "cpu": target.cpu,
        "thread": target.thread,
        "line_bytes": caches.line,
        "working_sets": caches.working_sets,
        "latencies_of": caches.latencies_of,
    }
    try:
        timings = json.loads(_engine.displace_json(target.path, json.dumps(asked)))
    except UsageError as error:
        raise NoFootprintError(str(error)) from None
    sets = timings["working_sets"]
    ensure_cold(target.faults * len(sets), timings["resident"], timings["major_faults"])
    lines, after, control = ([each[key] for each in sets] for key in ("lines", "after_fault", "control"))
    return FootprintPass(timings["latencies"], lines, after, control, timings["real_time"])


def footprint(passes: Sequence[FootprintPass], caches: Caches) -> Footprint:
    """The result of the passes of all runs.

    Raises:
        NoFootprintError: the caches cannot be distinguished.
    """
    l1d, l2, l3 = (statistics.median(done.latencies[at] for done in passes) for at in range(3))
    if l2 < APART * l1d or l3 < APART * l2:
        raise NoFootprintError(
            f"a line takes {l1d:.1f} cycles from L1D, {l2:.1f} from L2 and {l3:.1f} from L3, which cannot be "
            "distinguished; other programs share the caches, or they are not as large as the kernel says"
        )
    return Footprint(
        latencies=(l1d, l2, l3),
        l1d=_loss("L1D", caches, 0, l2 - l1d, passes, furthest=l3 - l1d),
        half_l2=_loss("half L2", caches, 1, l3 - l2, passes),
        l2=_loss("L2", caches, 2, l3 - l2, passes),
        filled=all(done.filled for done in passes),
    )


def _loss(
    name: str, caches: Caches, at: int, beyond: float, passes: Sequence[FootprintPass], furthest: float | None = None
) -> Loss:
    """The loss of a working set whose lines take this many more cycles from the next cache, or from L3."""
    lines = passes[0].lines[at]
    more = [done.more(at) for done in passes]
    cycles, lost = Spread.from_runs(more), Spread.from_runs([_lost(run, beyond, lines) for run in more])
    assert cycles
    assert lost
    least = None if furthest is None else _lost([cycles.median], furthest, lines)[0]
    return Loss(name, caches.working_sets[at], lines, cycles, lost, least)


def _lost(more: Iterable[float], beyond: float, lines: int) -> list[float]:
    return [min(max(cycles / beyond, 0.0), float(lines)) for cycles in more]
