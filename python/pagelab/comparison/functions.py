"""Functions of a run's code with their costs of paging, by symbol name: addresses differ between versions."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from pagelab.call_stacks.document import with_symbols
from pagelab.call_stacks.stacks import without_arguments
from pagelab.capture.symbols import look_up, unchanged
from pagelab.comparison.metrics import Costs
from pagelab.results.results import Results, SystemResult

_CLONE = re.compile(r"( \[clone [^]]*\])+$|(\.(constprop|isra|part|cold|lto_priv)(\.\d+)*)+$")
"""Suffixes that compilers add to the names of specialised copies"""

Key = tuple[str, str]
"""A function, empty if unknown, and its file"""


def name_functions(results: Results) -> Results:
    """The same results, whose profiles name the function of each instruction.

    Symbols are those of the programs' files as they are now. A file that was changed after a trace was recorded
    gives none.
    """
    document = results.to_document()
    entries = []
    for entry in document["results"]:
        profile = entry.get("profile")
        entries.append(entry if profile is None else {**entry, "profile": _named(profile, results)})
    return Results({**document, "results": entries})


def _named(profile: dict[str, Any], results: Results) -> dict[str, Any]:
    code = profile["code"]
    files = {row["file"] for row in code["rows"] if row["file"]}
    usable = unchanged(files, results)
    symbols = look_up((row["file"], row["offset"]) for row in code["rows"] if row["file"] in usable)
    rows = []
    for row in code["rows"]:
        symbol = symbols.get((row["file"], row["offset"]))
        rows.append(row if symbol is None else {**row, "function": _CLONE.sub("", symbol.function)})
    named = {**profile, "code": {**code, "rows": rows}}
    if profile.get("stacks"):
        named["stacks"] = with_symbols(profile["stacks"], results)
    return named


def from_profile(result: SystemResult) -> dict[Key, Costs]:
    """Costs by function; code of a file without symbols is one function without a name."""
    table = (result.profile or {})["code"]
    sums: dict[Key, Costs] = {}
    for row in table["rows"]:
        key = (row.get("function", ""), row["file"] or "")
        sums[key] = sums.get(key, Costs()) + Costs.from_row(row)
    others = Costs.from_row(table["others_cost"])
    if others != Costs():
        sums["", ""] = sums.get(("", ""), Costs()) + others
    return sums


def lacks_names(result: SystemResult) -> bool:
    """Whether the profile has code of programs' files, but names no function."""
    rows = (result.profile or {})["code"]["rows"]
    # The code of workloads is in no file.
    return any((row["file"] or "").startswith("/") for row in rows) and not any("function" in row for row in rows)


def nameless_files(runs: Sequence[Mapping[Key, Costs]]) -> set[str]:
    """Files without known names of functions."""
    named = {file for run in runs for function, file in run if function}
    return {file for run in runs for _, file in run} - named


def without_names(functions: Mapping[Key, Costs], files: Collection[str]) -> dict[Key, Costs]:
    """The same functions; those of some files become one without a name."""
    sums: dict[Key, Costs] = {}
    for (function, file), costs in functions.items():
        key = ("" if file in files else function, file)
        sums[key] = sums.get(key, Costs()) + costs
    return sums


def renamed(functions: Mapping[Key, Costs], files: Mapping[str, str]) -> dict[Key, Costs]:
    """The same functions, in files with their names in the other version."""
    sums: dict[Key, Costs] = {}
    for (function, file), costs in functions.items():
        key = (function, files.get(file, file))
        sums[key] = sums.get(key, Costs()) + costs
    return sums


def same_function(a: Collection[Key], b: Collection[Key]) -> dict[Key, Key]:
    """A's functions by B's keys if only parameters differ. Each exists on one side only, and its file has no other such
    function of that name."""
    alone = [_by_bare_name(one for one in side if one not in other) for side, other in ((a, b), (b, a))]
    pairs = ((alone[0].get(name, []), keys) for name, keys in alone[1].items())
    return {two[0]: one[0] for one, two in pairs if len(one) == len(two) == 1}


def _by_bare_name(keys: Iterable[Key]) -> dict[Key, list[Key]]:
    by_name: dict[Key, list[Key]] = {}
    for key in keys:
        if "(" in key[0]:
            by_name.setdefault((without_arguments(key[0]), key[1]), []).append(key)
    return by_name


def labels(keys: Sequence[Key]) -> list[str]:
    """The label of each function: its name, with the file if several files have one of that name."""
    names = [function for function, _ in keys]
    return [_label(function, file, several=names.count(function) > 1) for function, file in keys]


def _label(function: str, file: str, *, several: bool) -> str:
    name = PurePath(file).name
    if not function:
        return f"{name} (no symbols)" if name else "other code"
    return f"{function} in {name}" if several else function
