"""Rows about the program's code: the instructions with the highest cost of paging, by symbol and line if known."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab.capture.symbols import Symbol, look_up
from pagelab.report.figures import paging_cost, percent, share
from pagelab.results.results import SystemResult
from pagelab.results.table import short

_MOST_ROWS = 20


@dataclass(frozen=True)
class CodeRow:
    """A place in the code as the page shows it."""

    what: str
    line: str
    file: str
    walks: str
    faults: str
    cycles: str
    part: float


def rows(result: SystemResult) -> tuple[list[CodeRow], list[str]]:
    """The most expensive places, instructions of one line together, and what to know about them."""
    table = (result.profile or {})["code"]
    symbols = look_up((row["file"], row["offset"]) for row in table["rows"] if row["file"])
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in table["rows"]:
        sum_ = sums.setdefault(_place(row, symbols), [0, 0, 0])
        for at, name in enumerate(("walks", "faults")):
            sum_[at] += row[name]
        sum_[2] += paging_cost(row)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    whole = sum(sum_[2] for sum_ in sums.values()) + paging_cost(table["others_cost"])
    shown = [
        CodeRow(what, line, file, short(walks), short(faults), percent(share(cycles, whole)), share(cycles, whole))
        for (what, line, file), (walks, faults, cycles) in ordered[:_MOST_ROWS]
    ]
    rest = whole - sum(sum_[2] for _, sum_ in ordered[:_MOST_ROWS])
    left = len(ordered) - len(shown) + table["others"]
    notes = [f"{left:,} more places take {percent(share(rest, whole))} of the paging cycles."] if left else []
    if table["rows"] and not any(row["file"] or row["offset"] for row in table["rows"]):
        notes.append("The trace does not say which instruction made an access.")
    if any(row["file"] for row in table["rows"]) and not shutil.which("addr2line"):
        notes.append("Symbols are missing because addr2line is: install binutils and make the report again.")
    return shown, notes


def _place(row: Mapping[str, Any], symbols: Mapping[tuple[str, int], Symbol]) -> tuple[str, str, str]:
    file, offset = row["file"], row["offset"]
    if not file:
        return (f"{offset:#x}" if offset else "unknown instruction", "", "")
    symbol = symbols.get((file, offset))
    return (symbol.function, symbol.line, file) if symbol else (f"{Path(file).name}+{offset:#x}", "", file)
