"""Which memory was used when: mappings by address, intervals by time, and the working set of all of them.

Deviations: the kernel tells the used memory of a whole mapping, so a row is a mapping and not a range of addresses in
    it. Where an interval has no figure for a mapping, it is unknown, and not 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.observe.looks import Look, Looks
from pagelab.observe.mappings import HUGE_BYTES
from pagelab.observe.regions import Region

_SHADES = " ░▒▓█"
_STEPS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"


@dataclass(frozen=True)
class Interval:
    """A time between two looks, in seconds since the observation began."""

    begin: float
    end: float


@dataclass(frozen=True)
class Row:
    """A mapping, and which part of its largest resident size was used in each interval; none if unknown."""

    region: Region
    parts: Sequence[float | None]


@dataclass(frozen=True)
class HeatMap:
    """The used memory of the mappings of 2 MiB or more."""

    intervals: Sequence[Interval]
    rows: Sequence[Row]
    working_set: Sequence[int | None]
    """Bytes that all processes used in each interval"""


def heat_map(looks: Looks) -> HeatMap:
    """The heat map of an observation; one without intervals if it is not known which memory was used."""
    totals = looks.totals()
    numbers = [number for number, (look, _) in enumerate(totals) if look.interval_seconds is not None]
    intervals = [_interval(totals[number][0]) for number in numbers]
    large = [region for region in looks.all_regions() if region.largest.resident >= HUGE_BYTES]
    rows = [Row(region, [_part(region, number) for number in numbers]) for region in large]
    rows.sort(key=lambda row: (row.region.pid, row.region.begin))
    return HeatMap(intervals, rows, [totals[number][1].used for number in numbers])


def _interval(look: Look) -> Interval:
    return Interval(max(look.seconds - (look.interval_seconds or 0.0), 0.0), look.seconds)


def _part(region: Region, number: int) -> float | None:
    amounts = region.looks.get(number)
    if amounts is None or amounts.used is None:
        return None
    return min(amounts.used / region.largest.resident, 1.0)


def merged(values: Sequence[float | None], columns: int) -> list[float | None]:
    """The values in at most so many columns: the largest of those that share one."""
    step = max(-(-len(values) // columns), 1)
    parts = (values[at : at + step] for at in range(0, len(values), step))
    return [max((value for value in part if value is not None), default=None) for part in parts]


def shades(parts: Sequence[float | None]) -> str:
    """A letter per value: blank if nothing was used, a full block from 90 % on."""
    return "".join(_UNKNOWN if part is None else _SHADES[_level(part)] for part in parts)


def _level(part: float) -> int:
    if part < 0.01:
        return 0
    return 1 + sum(part >= bound for bound in (0.25, 0.5, 0.9))


def curve(values: Sequence[float | None]) -> str:
    """A letter per value, as high as the value is of the largest one."""
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join(_UNKNOWN if value is None else _STEPS[round(value / most * (len(_STEPS) - 1))] for value in values)
