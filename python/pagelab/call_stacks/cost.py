"""The cost of paging at some place, and the metrics by which stacks are sorted, drawn and exported."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

METRICS = {
    "cycles": "cycles",
    "walks": "walks",
    "translation_cycles": "cycles of translation",
    "faults": "page faults",
    "fault_cycles": "cycles of page faults",
}
"""Metrics by their name in options, tables and exports, with their name in sentences; `cycles` is the sum of both kinds
of cycles"""


@dataclass(frozen=True)
class Cost:
    """Counts of a profile's row, as the engine's `Cost` has them."""

    walks: int = 0
    translation_cycles: int = 0
    faults: int = 0
    fault_cycles: int = 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Cost":
        """From a row of a profile. Faults of skipped stretches of a program have no call stack and are left out.

        Raises:
            KeyError: a count is missing.
            TypeError: a count is no number that is at least 0.
        """
        counts = {field.name: row[field.name] for field in fields(cls)}
        for name, count in counts.items():
            if type(count) is not int or count < 0:
                raise TypeError(f"{name} is {count!r}")
        return cls(**counts)

    @property
    def cycles(self) -> int:
        """Cycles of translation and of page faults."""
        return self.translation_cycles + self.fault_cycles

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.walks + other.walks,
            self.translation_cycles + other.translation_cycles,
            self.faults + other.faults,
            self.fault_cycles + other.fault_cycles,
        )

    def __bool__(self) -> bool:
        return any((self.walks, self.translation_cycles, self.faults, self.fault_cycles))

    def get(self, metric: str) -> int:
        """The count of one of `METRICS`."""
        count: int = getattr(self, metric)
        return count


NOTHING = Cost()


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of several costs."""
    return sum(costs, NOTHING)
