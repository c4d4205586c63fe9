"""Rows about the program's memory: regions and pages, and what paging cost there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab.quantities import size_text
from pagelab.report.figures import paging_cost, percent, share
from pagelab.results.results import SystemResult
from pagelab.results.table import short

_MOST_REGIONS = 16
_MOST_PAGES = 12
# A page below this share of the cycles of paging is one of many.
_STANDS_OUT = 0.005


@dataclass(frozen=True)
class MemoryRow:
    """A region of memory as the page shows it."""

    what: str
    where: str
    size: str
    touched: str
    walks: str
    faults: str
    cycles: str
    """Its share of the cycles of paging, in per cent."""
    part: float
    """The same as a number from 0 to 1."""
    spark: Sequence[float]
    """Walks in equal parts of it, relative to the part with most; empty if there were none."""


def regions(result: SystemResult) -> tuple[list[MemoryRow], str]:
    """The most expensive regions, and what is omitted."""
    return _rows(result, "regions", _MOST_REGIONS)


def pages(result: SystemResult) -> tuple[list[MemoryRow], str]:
    """The same for single pages; none if no page stands out."""
    rows, note = _rows(result, "pages", _MOST_PAGES)
    if rows and rows[0].part < _STANDS_OUT:
        return [], f"No page takes more than {_STANDS_OUT:.1%} of the paging cycles."
    return rows, note


def _rows(result: SystemResult, kind: str, most: int) -> tuple[list[MemoryRow], str]:
    table = (result.profile or {})[kind]
    rows, whole = table["rows"], _whole(table)
    many = len({source.name for source in result.sources}) > 1
    processes = len({(row["source"], row["process"]) for row in rows}) > 1
    shown = [_row(result, row, whole, many, processes) for row in rows[:most]]
    left = len(rows) - len(shown) + table["others"]
    rest = whole - sum(paging_cost(row) for row in rows[:most])
    note = f"{left:,} more {kind} take {percent(share(rest, whole))} of the paging cycles." if left else ""
    return shown, note


def _whole(table: Mapping[str, Any]) -> int:
    return sum(paging_cost(row) for row in table["rows"]) + paging_cost(table["others_cost"])


def _row(result: SystemResult, row: Mapping[str, Any], whole: int, many: bool, processes: bool) -> MemoryRow:
    owner = result.sources[row["source"]].name + ", " if many else ""
    process = f"process {row['process']}, " if processes else ""
    walks = row.get("walks_by_part", [])
    most = max(walks, default=0)
    part = share(paging_cost(row), whole)
    return MemoryRow(
        what=f"{owner}{process}{area(row)}",
        where=f"{row['start']:#x}",
        size=size_text(row["end"] - row["start"]),
        touched=size_text(row["touched_bytes"]),
        walks=short(row["walks"]),
        faults=short(row["faults"]),
        cycles=percent(part),
        part=part,
        spark=[count / most for count in walks] if most else [],
    )


def area(row: Mapping[str, Any]) -> str:
    """What memory belongs to, in a word or by its file."""
    words = {
        "anonymous": "anonymous memory",
        "heap": "heap",
        "stack": "stack",
        "special": "of the kernel",
        "unmapped": "not mapped",
        "file": "a file",
    }
    return str(row.get("file") or words[row["kind"]])
