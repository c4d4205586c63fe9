"""Matches the mappings of two runs: addresses differ between versions of a program.

Heap and stack are matched by their kind, files by path and then by name. Anonymous memory is matched in the order
in which Linux creates mappings, from high addresses to low ones: the order is kept, and similar sizes
go together.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pagelab.comparison.metrics import Costs
from pagelab.results.results import SystemResult

ANONYMOUS = "anonymous"
OTHERS = "other mappings"
_NAMES = {"heap": "heap", "stack": "stack", "special": "kernel's pages", "unmapped": "not mapped"}
_UNMATCHED = 1.5
"""The cost of leaving a mapping unmatched, in doublings of size: mappings match up to eight times the size."""

Pair = tuple["Mapping | None", "Mapping | None"]


@dataclass(frozen=True)
class Mapping:
    """A part of a program's memory in one run."""

    kind: str
    name: str
    """A file's path, or the kind of memory."""
    size: int
    """From its first to its last byte in use."""
    costs: Costs
    process: int = 0
    start: int = 0


def from_profile(result: SystemResult) -> list[Mapping]:
    """The mappings of the main sources, merged by file; the rest comes last."""
    table = (result.profile or {})["regions"]
    by_name: dict[tuple[str, str], Mapping] = {}
    anonymous, others = [], Costs.from_row(table["others_cost"])
    for row in table["rows"]:
        mapping = _from_row(row)
        if result.sources[row["source"]].role != "main":
            others += mapping.costs
        elif mapping.kind == ANONYMOUS:
            anonymous.append(mapping)
        else:
            known = by_name.get((mapping.kind, mapping.name))
            by_name[mapping.kind, mapping.name] = mapping if known is None else _joined(known, mapping)
    anonymous.sort(key=lambda mapping: (mapping.process, -mapping.start))
    rest = [Mapping("others", OTHERS, 0, others)] if others != Costs() else []
    return [*by_name.values(), *anonymous, *rest]


def _from_row(row: dict[str, Any]) -> Mapping:
    kind, costs = row["kind"], Costs.from_row(row)
    name = str(row.get("file") or _NAMES.get(kind, kind))
    return Mapping(kind, name, row["end"] - row["start"], costs, row["process"], row["start"])


def _joined(one: Mapping, other: Mapping) -> Mapping:
    return replace(one, size=one.size + other.size, costs=one.costs + other.costs)


def match(a: Sequence[Mapping], b: Sequence[Mapping]) -> list[Pair]:
    """Each mapping of both runs once, with its counterpart if it has any."""
    anonymous = [[mapping for mapping in side if mapping.kind == ANONYMOUS] for side in (a, b)]
    named = [[mapping for mapping in side if mapping.kind != ANONYMOUS] for side in (a, b)]
    return [*_match_named(*named), *_align(*anonymous)]


def _match_named(a: Sequence[Mapping], b: Sequence[Mapping]) -> list[Pair]:
    pairs: list[Pair] = []
    left, right = list(a), list(b)
    # From the surest sign to the weakest; a name that several mappings have does not count.
    for key in (_path, _base_name, _without_version):
        keys = [[key(mapping) for mapping in side] for side in (left, right)]
        for mapping in list(left):
            wanted = key(mapping)
            if keys[0].count(wanted) == 1 and keys[1].count(wanted) == 1:
                other = next(candidate for candidate in right if key(candidate) == wanted)
                pairs.append((mapping, other))
                left.remove(mapping)
                right.remove(other)
    files = [[mapping for mapping in side if mapping.kind == "file"] for side in (left, right)]
    if len(files[0]) == len(files[1]) == 1:
        # The program itself, in most cases: ./old and ./new.
        pairs.append((files[0][0], files[1][0]))
        left.remove(files[0][0])
        right.remove(files[1][0])
    return [*pairs, *((mapping, None) for mapping in left), *((None, mapping) for mapping in right)]


def _path(mapping: Mapping) -> tuple[str, str]:
    return mapping.kind, mapping.name


def _base_name(mapping: Mapping) -> tuple[str, str]:
    return mapping.kind, PurePath(mapping.name).name


def _without_version(mapping: Mapping) -> tuple[str, str]:
    """`libz.so.1.2.13` and `libz.so.1.3` have one name."""
    return mapping.kind, re.sub(r"[-.]?\d[\d.]*", "", PurePath(mapping.name).name)


def _align(a: Sequence[Mapping], b: Sequence[Mapping]) -> list[Pair]:
    """Pairs in order at the least cost: doublings of size between the two of a pair, and the unmatched ones."""
    costs = [[_UNMATCHED * (i + j) for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            costs[i][j] = min(
                costs[i - 1][j - 1] + _doublings(a[i - 1], b[j - 1]),
                costs[i - 1][j] + _UNMATCHED,
                costs[i][j - 1] + _UNMATCHED,
            )
    pairs: list[Pair] = []
    i, j = len(a), len(b)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + _doublings(a[i - 1], b[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((a[i], b[j]))
        elif i and costs[i][j] == costs[i - 1][j] + _UNMATCHED:
            i -= 1
            pairs.append((a[i], None))
        else:
            j -= 1
            pairs.append((None, b[j]))
    return pairs[::-1]


def _doublings(a: Mapping, b: Mapping) -> float:
    return abs(math.log2(b.size / a.size))
