"""Functions of a run's code and what paging cost in them, by symbol name: addresses differ between versions."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from pagelab.comparison.metrics import Costs
from pagelab.results import Results, SystemResult
from pagelab.traces import is_trace, trace_info

_CLONE = re.compile(r"( \[clone [^]]*\])+$|(\.(constprop|isra|part|cold|lto_priv)(\.\d+)*)+$")
"""What compilers add to the names of specialised copies"""

Key = tuple[str, str]
"""A function, empty if it is unknown, and the file that holds it"""


def name_functions(results: Results) -> Results:
    """The same results, whose profiles name the function of each instruction.

    Symbols are those of the programs' files as they are now. A file that was changed after a trace was recorded
    gives none.
    """
    recorded = _recorded(results)
    document = results.to_document()
    entries = []
    for entry in document["results"]:
        profile = entry.get("profile")
        entries.append(entry if profile is None else {**entry, "profile": _named(profile, recorded)})
    return Results({**document, "results": entries})


def _named(profile: dict[str, Any], recorded: int | None) -> dict[str, Any]:
    # Its libraries take longer to import than the command line takes to answer.
    from pagelab.symbols import look_up

    code = profile["code"]
    files = {row["file"] for row in code["rows"] if row["file"]}
    usable = {file for file in files if recorded is None or not _changed_since(Path(file), recorded)}
    symbols = look_up((row["file"], row["offset"]) for row in code["rows"] if row["file"] in usable)
    rows = []
    for row in code["rows"]:
        symbol = symbols.get((row["file"], row["offset"]))
        rows.append(row if symbol is None else {**row, "function": _CLONE.sub("", symbol.function)})
    return {**profile, "code": {**code, "rows": rows}}


def _recorded(results: Results) -> int | None:
    """When the first of the traces that were replayed was recorded, in seconds since 1970; none of other sources."""
    sources = results.request.sources if results.request else []
    # What stands behind a name pins it to CPUs or limits its memory.
    names = [re.sub(r"(\.trace/?)([@,].*)$", r"\1", source) for source in sources]
    times = [trace_info(name)["meta"].get("started_unix_seconds") for name in names if is_trace(name)]
    return min((time for time in times if time is not None), default=None)


def _changed_since(file: Path, seconds: int) -> bool:
    try:
        # Recordings keep whole seconds. The time of the last change of the inode is also that of an installation.
        return int(file.stat().st_ctime) > seconds
    except OSError:
        return True


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
    """Whether the profile has code of programs' files, and names no function."""
    rows = (result.profile or {})["code"]["rows"]
    # The code of workloads is in no file.
    return any((row["file"] or "").startswith("/") for row in rows) and not any("function" in row for row in rows)


def nameless_files(runs: Sequence[Mapping[Key, Costs]]) -> set[str]:
    """Files of whose functions no name is known."""
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
    """The same functions, in files that are called as in the other version."""
    sums: dict[Key, Costs] = {}
    for (function, file), costs in functions.items():
        key = (function, files.get(file, file))
        sums[key] = sums.get(key, Costs()) + costs
    return sums


def labels(keys: Sequence[Key]) -> list[str]:
    """What to call each function: its name, with the file if several files have one of that name."""
    names = [function for function, _ in keys]
    return [_label(function, file, several=names.count(function) > 1) for function, file in keys]


def _label(function: str, file: str, *, several: bool) -> str:
    name = PurePath(file).name
    if not function:
        return f"{name} (no symbols)" if name else "other code"
    return f"{function} in {name}" if several else function
