"""The results of a sweep as a table: a row per configuration, with the mean over its seeds."""

import os
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from pagelab.results.summary import COLUMNS, busy, figures
from pagelab.sweep.folder import load, runs

MOST_ROWS = 40
_PARAMETERS = ("source", "system", "machine", "kernel")
_STATES = ("state", "error")


def outcome(folder: str | os.PathLike[str], most_rows: int = MOST_ROWS) -> Table:
    """The runs and their key figures, compact: parameters that all runs share are omitted.

    Ratios are to the first row. Configurations without a finished run have no figures.

    Raises:
        UsageError: the folder holds no sweep.
    """
    every = runs(folder)
    names = [name for name in every.columns if name not in ("key", "seed", *_STATES)]
    shown = [name for name in names if every[name].n_unique() > 1] or ["system"]
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for run in every.iter_rows(named=True):
        grouped.setdefault(tuple(run[name] for name in names), []).append(run["key"])
    stats = _statistics(folder)

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left")
    for name in shown:
        table.add_column(Text(name.split(".")[-1] if name not in _PARAMETERS else name), overflow="fold")
    table.add_column("runs", justify="right", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(Text("\n".join(heading)), justify="right", no_wrap=True)
    several = any(len(set(keys)) > 1 for keys in grouped.values())
    if several:
        table.add_column(Text("seeds\napart\n%"), justify="right", no_wrap=True)
    first: Mapping[str, int] | None = None
    for values, keys in list(grouped.items())[:most_rows]:
        there = [stats[key] for key in dict.fromkeys(keys) if key in stats]
        wanted = len(set(keys))
        row = [_text(value) for name, value in zip(names, values, strict=True) if name in shown]
        row.append(str(wanted) if len(there) == wanted else f"{len(there)}/{wanted}")
        if there:
            mean = _mean(there)
            first = first or mean
            row += figures(mean, first)
            row += [_apart(there)] * several
        table.add_row(*map(Text, row))
    notes = []
    if len(grouped) > most_rows:
        notes.append(f"{len(grouped) - most_rows} more rows: pagelab.sweep.load({os.fspath(folder)!r}) has all")
    if several:
        notes.append("Means over seeds; apart: the largest minus the smallest busy cycles, in percent of the mean.")
    if notes:
        table.caption = Text("\n".join(["", *notes]), no_wrap=True, overflow="ignore")
        table.caption_style = ""
    return table


def _statistics(folder: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """All statistics by the key of their run."""
    stats: dict[str, dict[str, int]] = {}
    for key, statistic, value in load(folder).select("key", "statistic", "value").iter_rows():
        stats.setdefault(key, {})[statistic] = value
    return stats


def _mean(several: list[dict[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for stats in several for name in stats)
    counts = {name: [stats[name] for stats in several if name in stats] for name in names}
    return {name: round(sum(values) / len(values)) for name, values in counts.items()}


def _apart(several: list[dict[str, int]]) -> str:
    cycles = [busy(stats) for stats in several]
    if len(cycles) < 2:
        return "–"
    return f"{100 * (max(cycles) - min(cycles)) * len(cycles) / max(sum(cycles), 1):.2g}"


def _text(value: object) -> str:
    return "–" if value is None else str(value)
