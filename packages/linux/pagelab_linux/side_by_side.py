"""Traces of the same workload under several settings, side by side: per fault, one column per setting.

Models: nothing; it compares the counts of `pagelab linux trace`.
Source: docs/linux-trace.md.
Deviations: means are over all recorded faults of the workload, of whatever kinds: a mechanism may change the kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pagelab_linux.references import FOUND, LineSources
from pagelab_linux.stages import ALL_STAGES
from pagelab_linux.trace import Measured, Spread, Trace

ALL = "all"
"""Stage of the whole fault"""
REPEATED = "instructions without repetitions"
"""Name of the row in which a string instruction counts once, as on a processor"""


@dataclass(frozen=True)
class Places:
    """Where a machine's caches find the lines of a workload's faults, by stage, and of all of them."""

    faults: int
    in_a_row: Mapping[str, LineSources]
    empty_caches: Mapping[str, LineSources]


@dataclass(frozen=True)
class Row:
    """A number of each setting."""

    what: str
    stage: str
    """Or `ALL`"""
    values: Sequence[float]

    def apart(self, number: int) -> float | None:
        """Share by which a setting is above the first one; none if that is 0."""
        first = self.values[0]
        return self.values[number] / first - 1 if first else None


def rows(workload: str, traces: Sequence[Trace], places: Sequence[Places | None]) -> list[Row]:
    """Instructions, references and lines of each stage, and where lines are found if that is known for all.

    Args:
        places: Of the workload, by setting.
    """
    measured = [[each for each in trace.measured if each.workload == workload] for trace in traces]
    table: list[Row] = []
    for what, count in _COUNTED.items():
        for stage in (ALL,) if what == REPEATED else (*ALL_STAGES, ALL):
            values = [_mean(each, stage, count) for each in measured]
            if any(values) or stage == ALL:
                table.append(Row(what, stage, values))
    known = [each for each in places if each is not None]
    if len(known) < len(traces):
        return table
    for name, cold in (("in a row", False), ("empty caches", True)):
        each = [(place.empty_caches if cold else place.in_a_row)[ALL] for place in known]
        table += [Row(f"{name}: {place.upper()}", ALL, [one.lines[place] for one in each]) for place in FOUND]
        table.append(Row(f"{name}: cycles waited", ALL, [one.waited for one in each]))
    return table


_Count = Callable[[Mapping[str, Spread]], float]
_COUNTED: Mapping[str, _Count] = {
    "instructions": lambda counts: counts["instructions"].mean,
    REPEATED: lambda counts: counts["instructions"].mean - counts["repetitions"].mean,
    "references": lambda counts: counts["loads"].mean + counts["stores"].mean,
    "new lines": lambda counts: counts["new_lines"].mean,
}


def _mean(kinds: Sequence[Measured], stage: str, count: _Count) -> float:
    """Over all faults of all kinds."""
    faults = sum(kind.faults for kind in kinds)
    counts = [(kind.total if stage == ALL else kind.stages.get(stage), kind.faults) for kind in kinds]
    return sum(count(each) * number for each, number in counts if each) / faults if faults else 0.0
