"""A comparison as JSON, CSV and a data frame."""

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pagelab.comparison.changes import Changes, Row
from pagelab.comparison.intervals import Change
from pagelab.comparison.sides import Side

if TYPE_CHECKING:
    import polars as pl

_TEXTS = ("system", "kind", "name", "metric")
_NUMBERS = ("a", "b", "change", "relative", "low", "high", "relative_low", "relative_high")


def _numbers(change: Change) -> dict[str, float | None]:
    low, high = change.interval or (None, None)
    relative_low, relative_high = change.relative_interval or (None, None)
    values = (change.a, change.b, change.difference, change.relative, low, high, relative_low, relative_high)
    return dict(zip(_NUMBERS, values, strict=True))


def _rows(comparison: Changes) -> Iterator[dict[str, Any]]:
    for system in comparison.systems:
        for row in system.rows():
            yield {"system": system.label, **_texts(row), **_numbers(row.change)}


def _texts(row: Row) -> dict[str, str]:
    return {"kind": row.kind, "name": row.name, "metric": row.metric}


def document(comparison: Changes, version: str) -> dict[str, Any]:
    """The document that `pagelab compare --json` writes."""
    return {
        "version": version,
        "status": comparison.status,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "differences": [vars(difference) for difference in comparison.differences],
        "limits": [
            {
                "limit": verdict.limit.text,
                "system": verdict.system,
                "outcome": verdict.outcome,
                **_numbers(verdict.change),
            }
            for verdict in comparison.verdicts
        ],
        "notes": list(comparison.notes),
        "changes": list(_rows(comparison)),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": side.kind,
        "recordings": len(side.recordings),
        "seeds": sorted({result.seed for results in side.recordings for result in results.systems}),
        "version": side.first.version,
        "sources": [
            {"name": source.name, "content_hash": source.content_hash} for source in side.first.systems[0].sources
        ],
    }


def as_json(comparison: Changes, version: str) -> str:
    """The document as text."""
    return json.dumps(document(comparison, version), indent=1, ensure_ascii=False) + "\n"


def as_csv(comparison: Changes) -> str:
    """A line of headings, and a line per figure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*_TEXTS, *_NUMBERS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(comparison))
    return text.getvalue()


def frame(comparison: Changes) -> "pl.DataFrame":
    """The same as a data frame."""
    import polars as pl

    schema = dict.fromkeys(_TEXTS, pl.String()) | dict.fromkeys(_NUMBERS, pl.Float64())
    return pl.DataFrame(list(_rows(comparison)), schema=schema)
