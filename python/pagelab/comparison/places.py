"""Matched mappings and functions of both sides, with the cost of paging there in each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from pagelab.call_stacks.stacks import without_arguments
from pagelab.comparison import functions, mappings
from pagelab.comparison.intervals import Change
from pagelab.comparison.metrics import Costs
from pagelab.comparison.values import Runs, change, scale
from pagelab.results.results import SystemResult

_Values = Sequence[Costs]
"""Costs in each run of a side"""


@dataclass(frozen=True)
class CodePlace:
    """A mapping or a function of both versions."""

    kind: str
    """`mapping` or `function`."""
    name: str
    aliases: frozenset[str]
    """Other names for limits."""
    a: "_Values"
    b: "_Values"
    size_a: int | None
    """Bytes of a mapping; none if there is no such mapping, and for functions."""
    size_b: int | None

    def __add__(self, other: "CodePlace") -> "CodePlace":
        """Both together, under the name of the first."""
        return CodePlace(
            self.kind,
            self.name,
            self.aliases,
            [x + y for x, y in zip(self.a, other.a, strict=True)],
            [x + y for x, y in zip(self.b, other.b, strict=True)],
            _sum(self.size_a, other.size_a),
            _sum(self.size_b, other.size_b),
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def change_at(place: CodePlace, metric: str, a: Runs, b: Runs) -> Change:
    """The change of one of `PLACE_METRICS` there."""
    values = {
        id(result): costs
        for runs, side in ((a, place.a), (b, place.b))
        for result, costs in zip(runs.all, side, strict=True)
    }
    changed = change(a, b, lambda result: scale(result) * values[id(result)].get(metric))
    # The costs of every run are known.
    assert changed is not None
    return changed


@dataclass
class _Side:
    """The mappings of a side's first run, with their costs in all runs."""

    reference: list[mappings.Mapping]
    costs: list[list[Costs]] = field(default_factory=list)
    """By run, then by mapping"""
    others: list[Costs] = field(default_factory=list)
    files: list[dict[str, str]] = field(default_factory=list)
    """By run: files of it by what the first run calls them"""


def _gather(runs: Runs) -> _Side:
    every = [mappings.from_profile(result) for result in runs.all]
    side = _Side([mapping for mapping in every[0] if mapping.name != mappings.OTHERS])
    numbers = {id(mapping): number for number, mapping in enumerate(side.reference)}
    for one in every:
        costs, others, files = [Costs()] * len(side.reference), Costs(), {}
        for ours, theirs in mappings.match(every[0], one):
            if theirs is None:
                continue
            if ours is None or ours.name == mappings.OTHERS:
                others += theirs.costs
                continue
            costs[numbers[id(ours)]] = theirs.costs
            if ours.kind == "file":
                files[theirs.name] = ours.name
        side.costs.append(costs)
        side.others.append(others)
        side.files.append(files)
    return side


def compare_places(a: Runs, b: Runs) -> tuple[list[CodePlace], list[CodePlace]]:
    """Mappings and functions of runs that all have a profile."""
    sides = _gather(a), _gather(b)
    pairs = mappings.match(sides[0].reference, sides[1].reference)
    files = {two.name: one.name for one, two in pairs if one and two and one.kind == "file"}
    return _mappings(sides, pairs), _functions(a, b, sides, files)


def _mappings(sides: tuple[_Side, _Side], pairs: Sequence[mappings.Pair]) -> list[CodePlace]:
    numbers = [{id(mapping): number for number, mapping in enumerate(side.reference)} for side in sides]
    ends = [PurePath(one.name).name for pair in pairs for one in pair[:1] if one and one.kind == "file"]
    anonymous, places = 0, []
    for pair in pairs:
        known = next(mapping for mapping in pair if mapping)
        if known.kind == mappings.ANONYMOUS:
            anonymous += 1
        name, aliases = _names(pair, anonymous, ends)
        values = [
            [Costs() if mapping is None else run[number_of[id(mapping)]] for run in side.costs]
            for mapping, side, number_of in zip(pair, sides, numbers, strict=True)
        ]
        sizes = [None if mapping is None else mapping.size for mapping in pair]
        places.append(CodePlace("mapping", name, aliases, values[0], values[1], sizes[0], sizes[1]))
    others = CodePlace("mapping", mappings.OTHERS, frozenset(), sides[0].others, sides[1].others, None, None)
    return [*places, others] if any(cost != Costs() for cost in (*others.a, *others.b)) else places


def _names(pair: mappings.Pair, number: int, ends: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The name of a mapping, and its other names."""
    known = [mapping for mapping in pair if mapping]
    kind = known[0].kind
    if kind == mappings.ANONYMOUS:
        return f"anonymous {number}", frozenset({kind})
    paths = list(dict.fromkeys(mapping.name for mapping in known))
    if kind != "file":
        return paths[0], frozenset()
    # The whole path if the last part alone is ambiguous.
    short = list(dict.fromkeys(path if ends.count(PurePath(path).name) > 1 else PurePath(path).name for path in paths))
    return " → ".join(short), frozenset({*paths, *short, "file"})


def _functions(a: Runs, b: Runs, sides: tuple[_Side, _Side], files: Mapping[str, str]) -> list[CodePlace]:
    by_run = [
        [_of_run(result, own) for result, own in zip(runs.all, side.files, strict=True)]
        for runs, side in zip((a, b), sides, strict=True)
    ]
    by_run[1] = [functions.renamed(run, files) for run in by_run[1]]
    nameless = functions.nameless_files(by_run[0]) ^ functions.nameless_files(by_run[1])
    by_run = [[functions.without_names(run, nameless) for run in side] for side in by_run]
    own = [{key for run in side for key in run} for side in by_run]
    changed = functions.same_function(*own)
    by_run[1] = [{changed.get(key, key): costs for key, costs in run.items()} for run in by_run[1]]
    keys = list(dict.fromkeys(key for side in by_run for run in side for key in run))
    places = []
    for key, label in zip(keys, functions.labels(keys), strict=True):
        values = [[run.get(key, Costs()) for run in side] for side in by_run]
        # Without its arguments, a C++ function is easier to name.
        aliases = frozenset({key[0], key[0].split("(")[0], without_arguments(key[0])} - {""})
        places.append(CodePlace("function", label, aliases, values[0], values[1], None, None))
    return places


def _of_run(result: SystemResult, files: Mapping[str, str]) -> dict[functions.Key, Costs]:
    return functions.renamed(functions.from_profile(result), files)
