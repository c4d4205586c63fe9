"""How results are written as JSON, and how files of this and older versions are read.

Format 2 is the engine's document, with one change: the statistics of windows and of orders of threads
are columns. `"windows_by_statistic": {"count": 3, "values": {"walk.count": [17, 12, 9], "fault.count": 0}}` are three
windows. A single number stands for a statistic that is the same in each. Format 1 had a mapping per window under the
key `windows`, and no key `format`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pagelab import _engine

FORMAT = 2
"""The format that `encode` writes. `decode` reads it and all earlier ones. It increases when an older pagelab would
misread a new file."""

_COLUMNS = {"windows": "windows_by_statistic", "orders": "orders_by_statistic"}
"""Keys of a system's result that are written as columns, and under which names."""

_MOST_ROWS = 1_000_000
"""More windows than any run has; a small file from elsewhere may claim any number."""


def encode(document: Mapping[str, Any]) -> str:
    """A document of results as JSON, one line per statistic's meaning and per part of a system's result.

    The same document gives the same bytes.
    """
    head = {key: value for key, value in document.items() if key not in {"format", "results", "statistics"}}
    systems = [_object(_to_columns(entry), "  ") for entry in document["results"]]
    lines = [
        f' "format": {FORMAT}',
        *(f" {_text(key)}: {_text(value)}" for key, value in head.items()),
        f' "results": {_enclosed("[]", ["  " + system for system in systems])}',
        f' "statistics": {_object(document["statistics"], " ")}',
    ]
    return _enclosed("{}", lines, "") + "\n"


def decode(text: str) -> dict[str, Any]:
    """The document of a file of results of any format, with a mapping per window.

    Raises:
        UsageError: the text is not JSON, not results, or results of a newer format.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _engine.UsageError(f"this is not a pagelab result file: not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _engine.UsageError("this is not a pagelab result file: the JSON document is no object")
    written_as = document.pop("format", 1)
    if type(written_as) is not int or written_as < 1:
        raise _engine.UsageError("this is not a pagelab result file: `format` is not the number of a format")
    if written_as > FORMAT:
        raise _engine.UsageError(
            f"results of format {written_as}, but this pagelab {_engine.__version__} reads formats up to {FORMAT}: "
            "update pagelab"
        )
    entries = document.get("results")
    if isinstance(entries, list):
        document["results"] = [_from_columns(entry) if isinstance(entry, dict) else entry for entry in entries]
    return document


def _to_columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {_COLUMNS.get(key, key): _columns(value) if key in _COLUMNS else value for key, value in entry.items()}


def _columns(rows: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row.get(name) for row in rows] for name in names}
    return {"count": len(rows), "values": {name: _shortest(column) for name, column in values.items()}}


def _shortest(column: list[int | None]) -> list[int | None] | int:
    first = column[0]
    return first if first is not None and all(value == first for value in column) else column


def _from_columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = {column: key for key, column in _COLUMNS.items()}
    return {names.get(key, key): _rows(key, value) if key in names else value for key, value in entry.items()}


def _rows(key: str, table: Any) -> list[dict[str, int]]:
    try:
        count, columns = table["count"], table["values"]
        if not 0 <= count <= _MOST_ROWS:
            raise ValueError
        rows: list[dict[str, int]] = [{} for _ in range(count)]
        for name, column in columns.items():
            values = [column] * count if type(column) is int else column
            if not isinstance(values, list):
                raise TypeError
            for row, value in zip(rows, values, strict=True):
                if value is not None:
                    row[name] = value
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _engine.UsageError(f"this is not a pagelab result file: `{key}` is not a table of statistics") from None
    return rows


def _object(values: Mapping[str, Any], indent: str) -> str:
    return _enclosed("{}", [f"{indent} {_text(key)}: {_text(value)}" for key, value in values.items()], indent)


def _enclosed(brackets: str, lines: Sequence[str], indent: str = " ") -> str:
    return "\n".join([brackets[0], ",\n".join(lines), indent + brackets[1]]) if lines else brackets


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
