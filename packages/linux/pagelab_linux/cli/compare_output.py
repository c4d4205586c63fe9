"""`pagelab linux compare`: how its figures are shown and written."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pagelab import _engine
from pagelab_linux.compare import Comparison, Row


def table(comparison: Comparison, rows: Sequence[Row]) -> Table:
    """Guest and simulator side by side."""
    simulator = comparison.simulator
    title = f"{comparison.name}: {comparison.step}, and {simulator.system}@{simulator.kernel}"
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left")
    grid.add_column("per fault, or in all")
    for name in ("guest", "simulator", "apart", "bound"):
        grid.add_column(name, justify="right")
    grid.add_column("")
    for row in rows:
        verdict = "" if row.agrees else "explained" if row.why else "differs"
        whole = row.guest == int(row.guest) and row.bound == 0
        numbers = (f"{number:,.0f}" if whole else f"{number:,.1f}" for number in (row.guest, row.simulator))
        bound = f"{100 * row.bound:.0f} %" + f" or {row.least:g}" * (row.least > 0)
        grid.add_row(row.what, *numbers, f"{100 * row.apart:+.1f} %", bound, verdict)
    return grid


def explanations(rows: Sequence[Row]) -> list[str]:
    """A line for each number that is beyond its bound."""
    return [f"{row.what}: {row.why or 'not explained'}" for row in rows if not row.agrees]


def as_json(kernel: str, levels: int, all_rows: Mapping[str, Sequence[Row]]) -> str:
    """All figures."""
    compared: dict[str, Any] = {
        name: [{**vars(row), "agrees": row.agrees} for row in rows] for name, rows in all_rows.items()
    }
    result = {"pagelab_version": _engine.__version__, "kernel": kernel, "levels": levels, "compared": compared}
    return json.dumps(result, indent=2) + "\n"
