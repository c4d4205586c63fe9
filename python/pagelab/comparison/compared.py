"""What changed between two versions of a program."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab._engine import UsageError, __version__
from pagelab.comparison import differences, document, words
from pagelab.comparison.changes import Changes, Row, SystemComparison
from pagelab.comparison.functions import lacks_names
from pagelab.comparison.limits import Limit, Verdict
from pagelab.comparison.metrics import CLASSES, TOTALS, Metric
from pagelab.comparison.places import compare_places
from pagelab.comparison.sides import Side
from pagelab.comparison.values import Runs, are_pairs, change_of_metric
from pagelab.output import write_atomically
from pagelab.results.results import SystemResult

if TYPE_CHECKING:
    import polars as pl


class NotComparableError(UsageError):
    """Two sides that differ in more than the program."""


@dataclass(frozen=True)
class Comparison(Changes):
    """Two versions of a program, side by side."""

    def to_document(self) -> dict[str, Any]:
        """The comparison as nested mappings and lists, as `--json` writes it."""
        return document.document(self, __version__)

    def to_json(self) -> str:
        """The same as text."""
        return document.as_json(self, __version__)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """A line per system, figure and place; also written to `path`, completely or not at all."""
        text = document.as_csv(self)
        if path is not None:
            write_atomically(Path(path), text)
        return text

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        return words.markdown(self)

    def to_polars(self) -> "pl.DataFrame":
        """A row per system, figure and place, with both values, the change and its interval."""
        return document.frame(self)


def compare_sides(a: Side, b: Side, limits: Iterable[Limit] = (), *, even_if_different: bool = False) -> Comparison:
    """Compares two finished sides.

    Raises:
        NotComparableError: a difference between the sides makes the comparison invalid.
        UsageError: a limit on a figure that was not counted.
    """
    pairs = _pair_systems(a, b)
    differing = differences.find(a, b, [(one.first, other.first) for one, other in pairs])
    void = [difference.describe() for difference in differing if difference.voids]
    if void and not even_if_different:
        raise NotComparableError(f"not comparable: {'; '.join(void)}. --even-if-different compares them anyway")
    systems = tuple(_compare_system(*pair) for pair in pairs)
    verdicts = tuple(_judge(limit, system) for limit in limits for system in systems)
    return Comparison(a, b, systems, tuple(differing), verdicts, tuple(_notes(a, b, systems)))


def _judge(limit: Limit, system: SystemComparison) -> Verdict:
    if limit.place is not None:
        change = system.at(limit.place, limit.metric)
    else:
        limit.ensure_known(system.a.first.stats)
        total = system.total(limit.metric)
        if total is None:
            raise UsageError(f"--fail-if {limit.text!r}: {limit.metric} was not counted under {system.label}")
        change = total
    return Verdict(limit, system.label, change, limit.judge(change))


def _pair_systems(a: Side, b: Side) -> list[tuple[Runs, Runs]]:
    """The systems of both sides; if each has only one, these are compared whatever they are."""
    left, right = _by_system(a), _by_system(b)
    if len(left) == len(right) == 1:
        return list(zip(left.values(), right.values(), strict=True))
    common = [key for key in left if key in right]
    if not common or len(common) != len(left) or len(common) != len(right):
        names = [", ".join(runs.first.label for runs in side.values()) for side in (left, right)]
        raise NotComparableError(f"not comparable: systems are {names[0]} in A, {names[1]} in B")
    return [(left[key], right[key]) for key in common]


def _by_system(side: Side) -> dict[tuple[str, ...], Runs]:
    """The runs of each system; runs that only differ in their seed belong to one system."""
    by_key: dict[tuple[str, ...], list[list[SystemResult]]] = {}
    for number, results in enumerate(side.recordings):
        for result in results.systems:
            settings = [setting for setting in result.settings if not setting.startswith("engine.seed=")]
            recordings = by_key.setdefault((result.system, *settings), [])
            if len(recordings) <= number:
                recordings.append([])
            recordings[-1].append(result)
    counts = {key: {len(seeds) for seeds in recordings} for key, recordings in by_key.items()}
    if any(len(by_key[key]) != len(side.recordings) or len(each) != 1 for key, each in counts.items()):
        raise UsageError(f"{side.name}: its results are not all of the same systems and seeds")
    return {key: Runs(tuple(map(tuple, recordings))) for key, recordings in by_key.items()}


def _compare_system(a: Runs, b: Runs) -> SystemComparison:
    profiled = all(result.profile is not None for result in (*a.all, *b.all))
    mappings, functions = compare_places(a, b) if profiled else ([], [])
    totals, classes = _rows("total", TOTALS, a, b), _rows("class", CLASSES, a, b)
    return SystemComparison(_label(a.first), a, b, totals, classes, tuple(mappings), tuple(functions))


def _rows(kind: str, metrics: Sequence[Metric], a: Runs, b: Runs) -> tuple[Row, ...]:
    changes = [(metric, change_of_metric(a, b, metric)) for metric in metrics]
    return tuple(Row(kind, metric.label, metric.name, change) for metric, change in changes if change)


def _label(result: SystemResult) -> str:
    settings = [setting for setting in result.settings if not setting.startswith("engine.seed=")]
    return f"{result.system}{{{','.join(settings)}}}" if settings else result.system


def _notes(a: Side, b: Side, systems: Sequence[SystemComparison]) -> Iterable[str]:
    """How certain the figures are, and what is missing."""
    first = systems[0]
    yield _about_intervals(a, b, first)
    if first.a.is_sampled:
        yield "The figures cover windows of the program: per 1,000 instructions, with intervals over the windows."
    if not first.mappings and not first.functions:
        yield "Mappings and functions are missing: results without `pagelab run --profile` do not hold them."
        return
    nameless = [name for name, runs in (("A", first.a), ("B", first.b)) if lacks_names(runs.first)]
    if nameless:
        yield (
            f"Functions of {' and '.join(nameless)} have no names, so code is compared by file: files have no symbols, "
            "are gone, or were changed after the recording, or binutils is not installed."
        )


def _about_intervals(a: Side, b: Side, system: SystemComparison) -> str:
    recordings = len(system.a.recordings), len(system.b.recordings)
    if system.a.is_sampled:
        return "Intervals: 95 %, over the windows."
    if min(recordings) > 1:
        return f"Intervals: 95 %, over {recordings[0]} recordings of A and {recordings[1]} of B (Welch)."
    if max(recordings) > 1:
        return "No intervals: one side has a single recording."
    if are_pairs(system.a, system.b):
        same = all(
            row.change.interval is not None and row.change.interval[0] == row.change.interval[1]
            for row in system.totals
        )
        equal = " Every seed gives the same change." if same else ""
        return f"Intervals: 95 %, over {len(system.a.seeds)} seeds, paired by seed.{equal}"
    if len(system.a.seeds) > 1 and len(system.b.seeds) > 1:
        return f"Intervals: 95 %, over {len(system.a.seeds)} seeds of A and {len(system.b.seeds)} of B (Welch)."
    if "program" in (a.kind, b.kind):
        return (
            "No intervals: each program was recorded once. Replays are exact; "
            "--repeat N shows how much recordings differ."
        )
    return "No intervals: these are exact counts of one recording each, the same in every replay."
