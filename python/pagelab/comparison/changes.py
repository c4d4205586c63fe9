"""The figures that changed between two versions of a program, of the whole run and by place."""

import difflib
from dataclasses import dataclass

from pagelab._engine import UsageError
from pagelab.comparison.differences import Difference
from pagelab.comparison.intervals import Change
from pagelab.comparison.limits import EXCEEDED, UNDECIDED, Verdict
from pagelab.comparison.metrics import METRICS, PLACE_METRICS, statistic
from pagelab.comparison.places import CodePlace, change_at
from pagelab.comparison.sides import Side
from pagelab.comparison.values import Runs, change_of_metric


@dataclass(frozen=True)
class Row:
    """The change of a figure of the whole run, of a mapping or of a function."""

    kind: str
    """`total`, `class` (of cycles), `mapping` or `function`."""
    name: str
    metric: str
    """The name that `--fail-if` uses."""
    change: Change


@dataclass(frozen=True)
class SystemComparison:
    """What changed under one system."""

    label: str
    a: Runs
    b: Runs
    totals: tuple[Row, ...]
    classes: tuple[Row, ...]
    mappings: tuple[CodePlace, ...]
    functions: tuple[CodePlace, ...]

    def rows(self) -> list[Row]:
        """All figures, those of mappings and functions included."""
        places = [
            Row(place.kind, place.name, metric, change_at(place, metric, self.a, self.b))
            for place in (*self.mappings, *self.functions)
            for metric in PLACE_METRICS
        ]
        return [*self.totals, *self.classes, *places]

    def total(self, metric: str) -> Change | None:
        """The change of a metric of the whole run; none if it was not counted."""
        known = METRICS.get(metric) or statistic(metric)
        return change_of_metric(self.a, self.b, known)

    def at(self, place: str, metric: str) -> Change:
        """The change of a metric at a mapping or function.

        Raises:
            UsageError: there is no such place.
        """
        for kind in (self.mappings, self.functions):
            matching = [one for one in kind if one.name == place] or [one for one in kind if place in one.aliases]
            if matching:
                whole = matching[0]
                for one in matching[1:]:
                    whole = whole + one
                return change_at(whole, metric, self.a, self.b)
        if not self.mappings and not self.functions:
            raise UsageError(f"[{place}]: mappings and functions are known only with profiles on both sides")
        places = (*self.functions, *self.mappings)
        names = dict.fromkeys(name for one in places for name in sorted(one.aliases | {one.name}))
        if near := difflib.get_close_matches(place, names, 3):
            raise UsageError(f"[{place}]: no mapping or function of that name; did you mean {' or '.join(near)}?")
        listed = [", ".join(one.name for one in kind[:8]) for kind in (self.mappings, self.functions)]
        raise UsageError(
            f"[{place}]: no mapping or function of that name; some mappings are {listed[0]}, some functions {listed[1]}"
        )


@dataclass(frozen=True)
class Changes:
    """Two sides, the changes under each system, and the exceeded limits."""

    a: Side
    b: Side
    systems: tuple[SystemComparison, ...]
    differences: tuple[Difference, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]

    @property
    def status(self) -> int:
        """1 if a limit is exceeded, else 0."""
        return int(any(verdict.outcome == EXCEEDED for verdict in self.verdicts))

    @property
    def undecided(self) -> list[Verdict]:
        """Limits that the intervals do not decide."""
        return [verdict for verdict in self.verdicts if verdict.outcome == UNDECIDED]
