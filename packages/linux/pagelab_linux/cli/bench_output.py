"""`pagelab linux bench`: how its figures are shown and written."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pagelab import _engine
from pagelab_linux import rounds
from pagelab_linux.bench import Figure


def line(figure: Figure) -> str:
    """A figure when it has been measured."""
    in_round = f", round {figure.round}" if figure.round > 1 else ""
    name = f"{figure.setting}, {figure.workload}, {figure.levels} levels{in_round}"
    return f"{name}: {figure.per_fault:,.1f} per fault, {figure.faults:,} faults"


def table(figures: Sequence[Figure], unit: str) -> Table:
    """Figures measured once."""
    table = _grid(
        ("setting", "workload"), ("levels", "faults", f"{unit} per fault", "to the first", f"{unit}, all faults")
    )
    for figure in figures:
        first = next(other for other in figures if (other.workload, other.levels) == (figure.workload, figure.levels))
        apart = f"{100 * (figure.ticks / first.ticks - 1):+.2f} %" if first is not figure and first.ticks else ""
        cells = (f"{figure.faults:,}", f"{figure.per_fault:,.1f}", apart, f"{figure.ticks:,}")
        table.add_row(figure.setting, figure.workload, str(figure.levels), *cells)
    return table


def rounds_table(rows: Sequence[rounds.Row], unit: str) -> Table:
    """Medians of several rounds, and changes to the first setting in the same round. If any has too few rounds for an
    interval, the columns are headed as ranges."""
    certain = all(row.median.is_certain for row in rows)
    spread = "95 % interval" if certain else "range"
    table = _grid(("setting", "workload"), ("levels", "", "median", spread, "to the first", spread))
    for row in rows:
        what = f"{unit} {row.measure}" if row.measure in rounds.MEASURES else row.measure
        cells = [f"{row.median.value:,.1f}", f"{row.median.low:,.1f} to {row.median.high:,.1f}", "", ""]
        if row.change:
            cells[2:] = [f"{row.change.value:+.2f} %", f"{row.change.low:+.2f} to {row.change.high:+.2f} %"]
        table.add_row(row.setting, row.workload, str(row.levels), what, *cells)
    return table


def as_json(kernel: str, unit: str, figures: Sequence[Figure], failures: Sequence[str], missing: str | None) -> str:
    """All figures."""
    result: dict[str, Any] = {
        "pagelab_version": _engine.__version__,
        "kernel": kernel,
        "unit": unit,
        "events_missing": missing,
        "figures": [{**vars(figure), "per_fault": figure.per_fault} for figure in figures],
        "rounds": [asdict(row) for row in rounds.rows(figures)],
        "failures": list(failures),
    }
    return json.dumps(result, indent=2) + "\n"


def _grid(left: Sequence[str], right: Sequence[str]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in left:
        grid.add_column(title)
    for title in right:
        grid.add_column(title, justify="right")
    return grid
