"""How long a modified line takes from one core to another, by the distance of the cores.

Models: two CPUs change a word in turns with a compare-and-exchange; half of a round trip is one transfer. Cores are
    near each other if they share the last-level cache, farther apart in one package, and farthest in different ones.
Source: core-to-core-latency (github.com/nviennot/core-to-core-latency), whose method this is; Linux's description of
    the CPUs (`topology` and `cache` in /sys/devices/system/cpu).
Deviations: the figure contains the compare-and-exchange itself. A virtual machine may say that its CPUs share a cache,
    although the host has them on distant cores: the figure is then that of the cores where they were.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from pagelab.hardware.measured import Figure

_CPUS = Path("/sys/devices/system/cpu")
_PAIRS = 4
"""Most pairs of a distance that are measured"""
_UNEQUAL = 1.5
"""How many times longer a pair takes than another of the same distance, or than at another time, to raise a doubt"""


class Distance(IntEnum):
    """What two cores share."""

    CACHE = 0
    PACKAGE = 1
    MACHINE = 2

    def __str__(self) -> str:
        return ("that share the last-level cache", "with different last-level caches", "in different packages")[self]


@dataclass(frozen=True)
class Cpu:
    """Where Linux says that a CPU is."""

    number: int
    core: int
    """Within its package."""
    package: int
    cache: str
    """The CPUs that share its last-level cache, as a list."""

    def distance(self, other: "Cpu") -> Distance | None:
        """None if the two are hardware threads of one core."""
        if self.package != other.package:
            return Distance.MACHINE
        if self.cache != other.cache:
            return Distance.PACKAGE
        return None if self.core == other.core else Distance.CACHE


@dataclass(frozen=True)
class Transfer:
    """The transfers of one distance."""

    distance: Distance
    cycles: Figure
    """The median pair's."""
    pairs: int
    slowest: float
    """By how much the slowest pair takes longer than the quickest, as a factor."""
    group: int
    """Cores that are nearer to each other than this."""

    @property
    def what(self) -> str:
        return f"a modified line between cores {self.distance}"

    @property
    def how(self) -> str:
        pairs = f"{self.pairs} pairs" if self.pairs > 1 else "a pair"
        return f"{pairs} of CPUs on cores {self.distance}, which change a word in turns"

    @property
    def doubt(self) -> str | None:
        """Why the description of the CPUs is not believed; none if it is plausible."""
        if self.cycles.upper_quartile > _UNEQUAL * self.cycles.lower_quartile:
            return (
                f"{self.what} took {self.cycles.lower_quartile:.0f} cycles at one time and "
                f"{self.cycles.upper_quartile:.0f} at another: a host probably moves virtual CPUs between distant cores"
            )
        if self.slowest <= _UNEQUAL:
            return None
        return (
            f"{self.what} takes {self.slowest:.1f} times as long for some CPUs as for others: they are probably not "
            "where Linux says that they are"
        )


def cpus(folder: Path = _CPUS) -> list[Cpu]:
    """The CPUs that this process may use and that Linux describes."""
    described = (_cpu(folder / f"cpu{number}", number) for number in sorted(os.sched_getaffinity(0)))
    return [cpu for cpu in described if cpu]


def _cpu(folder: Path, number: int) -> Cpu | None:
    try:
        topology = folder / "topology"
        core, package = (int((topology / name).read_text()) for name in ("core_id", "physical_package_id"))
        levels = {int((index / "level").read_text()): index for index in (folder / "cache").glob("index*")}
        cache = (levels[max(levels)] / "shared_cpu_list").read_text().strip() if levels else ""
    except (OSError, ValueError):
        return None
    return Cpu(number, core, package, cache)


def pairs(cpus: Sequence[Cpu]) -> Iterator[tuple[int, int]]:
    """The first CPU with others of each distance, spread over them."""
    for others in _by_distance(cpus).values():
        step = max(len(others) / _PAIRS, 1)
        chosen = {int(step * number) for number in range(_PAIRS)}
        yield from ((cpus[0].number, others[at].number) for at in sorted(chosen) if at < len(others))


def transfers(cpus: Sequence[Cpu], measured: Mapping[tuple[int, int], Figure]) -> Iterator[Transfer]:
    """What was measured, the nearest cores first."""
    for distance, others in sorted(_by_distance(cpus).items()):
        figures = [measured[pair] for cpu in others if (pair := (cpus[0].number, cpu.number)) in measured]
        if figures:
            by_cycles = sorted(figures, key=lambda figure: figure.value)
            middle = statistics.median_low(figure.value for figure in figures)
            typical = next(figure for figure in by_cycles if figure.value == middle)
            slowest = by_cycles[-1].value / by_cycles[0].value if by_cycles[0].value else 1.0
            yield Transfer(distance, typical, len(figures), slowest, _group(cpus, distance))


def _by_distance(cpus: Sequence[Cpu]) -> dict[Distance, list[Cpu]]:
    """The others of the first CPU."""
    others: dict[Distance, list[Cpu]] = {}
    for cpu in cpus[1:]:
        distance = cpus[0].distance(cpu)
        if distance is not None:
            others.setdefault(distance, []).append(cpu)
    return others


def _group(cpus: Sequence[Cpu], distance: Distance) -> int:
    """Cores, the first CPU's included, that are nearer to it than this."""
    near = (cpu for cpu in cpus if (apart := cpus[0].distance(cpu)) is None or apart < distance)
    return len({(cpu.package, cpu.cache, cpu.core) for cpu in near})
