"""Two observations, such as before and after huge pages were switched on: what changed, with 95 % intervals.

Models: the interval of a difference is made of the intervals of both values (MOVER; Newcombe 1998 for shares): each
    side's distance to its bound, squared and added. Intervals of shares of time are Wilson's, of the samples. Those of
    rates are Student's, of blocks of equal CPU time. Those of memory are of the median look, by the sign test.
Deviations: blocks and looks that follow each other are taken to be independent. If they are alike for a long time, the
    intervals are too narrow. What a program is asked to do may differ, too: no interval knows of that.
"""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.confidence.sign_test import median_interval
from pagelab.confidence.students_t import students_t
from pagelab.confidence.wilson import share_interval
from pagelab.quantities import size_text

FORMAT = "pagelab observation"
_NAMES = {"other": "other work of the kernel"}
_BLOCKS = 20
_LEAST_BLOCKS = 4


@dataclass(frozen=True)
class Value:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def minus(self, other: "Value") -> "Value":
        change = self.value - other.value
        down = math.hypot(self.value - self.low, other.high - other.value)
        up = math.hypot(self.high - self.value, other.value - other.low)
        return Value(change, change - down, change + up)


@dataclass(frozen=True)
class Difference:
    """A figure of both observations."""

    name: str
    unit: str
    """`share` of the CPU time, `bytes`, or what stands behind a number"""
    before: Value
    after: Value

    @property
    def change(self) -> Value:
        return self.after.minus(self.before)

    @property
    def changed(self) -> bool:
        """Whether the interval of the change is on one side of 0."""
        change = self.change
        return change.low > 0 or change.high < 0


def read(path: Path) -> dict[str, Any] | None:
    """The observation in a file; none if it is something else."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("format") == FORMAT else None


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str] = ("the first", "the second")
) -> list[Difference]:
    """The figures that both observations have.

    Args:
        before: An observation.
        after: Another one.
        names: Their files, for errors.

    Raises:
        UsageError: one of them is damaged.
    """
    pairs = []
    for document, name in zip((before, after), names, strict=True):
        try:
            pairs.append(dict(_values(document)))
        except KeyError as error:
            raise UsageError(f"{name} is damaged, or of another version: it has no {error.args[0]!r}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{name} is damaged, or of another version: {error}") from None
    samples = [document["time"]["samples"] for document in (before, after)]
    for own, other, count in zip(pairs, reversed(pairs), samples, strict=True):
        if any(unit == "share" for _, unit in own):
            # What no sample of a side shows is nothing there.
            nothing = Value(0.0, *share_interval(0, count))
            own.update((key, nothing) for key in list(other) if key[1] == "share" and key not in own)
    return [Difference(*key, value, pairs[1][key]) for key, value in pairs[0].items() if key in pairs[1]]


def _values(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Value]]:
    times, faults = document["time"], document["faults"]
    if not times["missing"] and times["samples"]:
        for name, share in {**times["activities"], **times["kernel"]}.items():
            yield (_NAMES.get(name, name), "share"), Value(share["share"], share["low"], share["high"])
        if faults["seconds"] and faults["count"]:
            seconds = faults["seconds"]
            each = (1e6 * seconds[key] / faults["count"] for key in ("share", "low", "high"))
            yield ("time per fault", "µs"), Value(*each)
    rate = _rate(faults["over_time"])
    if rate is not None:
        yield ("faults per CPU second", ""), rate
    for name in ("resident", "huge", "used", "swapped"):
        sizes = [look[name] for look in document["looks"] if look[name] is not None]
        if sizes:
            low, high = median_interval(sizes)
            yield (f"{name} memory, median look", "bytes"), Value(statistics.median(sizes), low, high)


def _rate(rates: Sequence[Mapping[str, float]]) -> Value | None:
    """Faults per second of CPU time: of all, with the interval of the mean of blocks."""
    total = rates[-1]["cpu_seconds"] if rates else 0.0
    if total <= 0:
        return None
    blocks, begin = [], {"cpu_seconds": 0.0, "faults": 0.0}
    for at in rates:
        length = at["cpu_seconds"] - begin["cpu_seconds"]
        if length >= total / _BLOCKS:
            blocks.append((at["faults"] - begin["faults"]) / length)
            begin = dict(at)
    mean = rates[-1]["faults"] / total
    if len(blocks) < _LEAST_BLOCKS:
        return None
    error = students_t(len(blocks) - 1) * statistics.stdev(blocks) / math.sqrt(len(blocks))
    return Value(mean, max(mean - error, 0.0), mean + error)


def remarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What else differs between two observations."""
    lines = []
    for key, what in (("target", "what was observed"), ("kernel", "the kernel"), ("version", "the version of pagelab")):
        if before.get(key) != after.get(key):
            lines.append(f"{what} differs: {before.get(key)} and {after.get(key)}")
    return lines


HEADINGS = ("", "before", "after", "change", "95 % interval")


def rows(all_of_them: Sequence[Difference]) -> list[tuple[str, ...]]:
    """A row for each; those that changed have an asterisk."""
    return [
        (
            f"{'* ' if one.changed else ''}{one.name}",
            _text(one.before.value, one.unit),
            _text(one.after.value, one.unit),
            _change(one.change.value, one.unit),
            f"{_change(one.change.low, one.unit)} to {_change(one.change.high, one.unit)}",
        )
        for one in all_of_them
    ]


def document(all_of_them: Sequence[Difference], notes: Sequence[str]) -> dict[str, Any]:
    """The comparison as JSON."""
    figures = [{**asdict(one), "change": asdict(one.change), "changed": one.changed} for one in all_of_them]
    return {"format": "pagelab comparison of observations", "differences": figures, "notes": list(notes)}


def _text(value: float, unit: str) -> str:
    if unit == "share":
        return f"{value:.1%}"
    if unit == "bytes":
        return size_text(value)
    return f"{value:,.0f}" if not unit else f"{value:.2f} {unit}"


def _change(value: float, unit: str) -> str:
    """A difference with its sign. That of two shares is in percentage points."""
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return sign + (f"{100 * abs(value):.1f} points" if unit == "share" else _text(abs(value), unit))
