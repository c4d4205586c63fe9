"""`pagelab linux bench`: how its figures are shown and written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pagelab import _engine
from pagelab.cli.terminal import print_table
from pagelab_linux import hardware_unit, rounds
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


def hardware_table(made: Sequence[hardware_unit.Estimate]) -> Table:
    """What the hardware would gain by a load of a page that is not in memory, drive included."""
    table = _grid(("workload", "method"), ("levels", "Δ", "cycles by the kernel", "by hardware", "more per time"))
    for one in made:
        medians = (f"{median.value:,.1f}" for median in (one.delta, one.kernel, one.hardware))
        gain, spread = one.gain_percent, ""
        if gain.count > 1:
            spread = f" ({gain.low:+.1f} to {gain.high:+.1f})"
        table.add_row(one.workload, one.method, str(one.levels), *medians, f"{gain.value:+.1f} %{spread}")
    return table


def show_hardware(figures: Sequence[Figure], miss: hardware_unit.Miss) -> dict[str, Any]:
    """Prints the estimates and what each method counts, and returns them for JSON."""
    made = hardware_unit.estimates(figures, miss)
    print(
        f"\nhardware demand paging: a miss takes {miss.unit:,.1f} cycles by the simulated unit and {miss.drive:,.1f} "
        "by the drive"
    )
    if made:
        print_table(hardware_table(made))
    for method, what in hardware_unit.METHODS.items():
        if any(one.method == method for one in made):
            print(f"{method}: {what}")
        elif made:
            print(f"{method}: no estimate, as the simulated kernel takes longer for a miss than this one")
    return hardware_unit.to_dict(miss, made)


def as_json(
    kernel: str,
    unit: str,
    figures: Sequence[Figure],
    failures: Sequence[str],
    missing: str | None,
    hardware: Mapping[str, Any] | None = None,
) -> str:
    """All figures, and what the hardware would gain if that was asked."""
    result: dict[str, Any] = {
        "pagelab_version": _engine.__version__,
        "kernel": kernel,
        "unit": unit,
        "events_missing": missing,
        "figures": [{**vars(figure), "per_fault": figure.per_fault} for figure in figures],
        "rounds": [asdict(row) for row in rounds.rows(figures)],
        "failures": list(failures),
        **({"hardware": hardware} if hardware else {}),
    }
    return json.dumps(result, indent=2) + "\n"


def _grid(left: Sequence[str], right: Sequence[str]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in left:
        grid.add_column(title)
    for title in right:
        grid.add_column(title, justify="right")
    return grid
