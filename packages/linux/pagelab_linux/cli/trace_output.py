"""`pagelab linux trace`: how its figures are shown and written."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from pagelab import UsageError, _engine
from pagelab.cli.terminal import print_table
from pagelab_linux.bench import Setting, no_such
from pagelab_linux.references import FOUND, LineSources, faults, replay
from pagelab_linux.side_by_side import ALL, Places, Row
from pagelab_linux.stages import OTHER
from pagelab_linux.trace import Check, Measured, Spread, Trace, Workload

_MOST_OTHERS = 8


def table(each: Measured) -> Table:
    """Stages of the faults of one kind."""
    interrupted = f", {each.interrupted:,} interrupted" * bool(each.interrupted)
    title = f"{each.workload}: {each.kind}, {each.faults:,} faults{interrupted}"
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left")
    grid.add_column("stage")
    for name in ("instructions", "p10–p90", "repeated", "loads", "stores", "lines", "p10–p90", "new lines"):
        grid.add_column(name, justify="right")
    for stage, counts in each.stages.items():
        grid.add_row(stage, *_cells(counts))
    grid.add_row("all", *_cells(each.total), style="bold")
    return grid


def others(each: Measured) -> str:
    """The functions that the table of stages does not name; empty if there are none."""
    unknown = [part for part in each.parts if part.stage == OTHER]
    if not unknown:
        return ""
    listed = ", ".join(f"{part.function} {part.per_fault['instructions']:,.1f}" for part in unknown[:_MOST_OTHERS])
    more = f", and {len(unknown) - _MOST_OTHERS} more" * (len(unknown) > _MOST_OTHERS)
    return f"other: {listed}{more}"


def checks(checked: Sequence[Check]) -> Table:
    """The trace beside the guest's own counts."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("workload")
    titles = ("faults", "recorded", "guest's count per fault", "in faults", "interrupts", "left out", "beside", "apart")
    for name in titles:
        grid.add_column(name, justify="right")
    for each in checked:
        faults = each.faults or 1
        others = (each.interrupt_instructions, each.rest.left_out_instructions, each.rest.beside)
        grid.add_row(
            each.workload,
            f"{each.faults:,}",
            f"{each.traced_faults:,}",
            f"{each.ticks / faults:,.1f}",
            f"{each.fault_instructions / (each.traced_faults or 1):,.1f}",
            *(f"{number:,}" for number in others),
            f"{each.traced - each.ticks:+,} ({100 * each.gap:+.4f} %)",
        )
    return grid


def check_accesses(
    wanted: Sequence[Workload], settings: Sequence[Setting], accesses: Path | None, preset: Path | None, most: int
) -> None:
    """Refuses what cannot be, before a kernel is built.

    Raises:
        UsageError: naming what is wrong and what would be right.
    """
    if most < 1:
        raise UsageError(f"--most {most}: give at least 1 fault")
    if accesses and len(wanted) != 1:
        raise UsageError(f"--accesses {accesses}: a trace holds one workload; name it with --workload")
    if accesses and os.path.lexists(accesses):
        raise UsageError(f"--accesses {accesses}: exists; name another output")
    for option, file in (("--accesses", accesses), ("--preset", preset)):
        if file and len(settings) != 1:
            raise UsageError(f"{option} {file}: is of one setting, not of {len(settings)}; name one with --setting")


def check_machine(machine: str | None) -> None:
    """Refuses a machine that is neither a preset nor a file.

    Raises:
        UsageError: naming those that there are.
    """
    machines = [each["name"] for each in json.loads(_engine.list_json("machines"))]
    if machine and machine not in machines and not Path(machine).is_file():
        raise UsageError(no_such("machine", machine, machines))


def show(setting: str, trace: Trace, names: Sequence[str], machine: str | None) -> list[Places | None]:
    """Prints all of one setting; returns where a machine's caches find the lines of each workload's faults."""
    print(f"\n{setting}\n{'-' * len(setting)}")
    for each in trace.measured:
        print_table(table(each))
        unknown = others(each)
        if unknown:
            print(unknown)
    print_table(checks(trace.checks))
    left_out = [f"{number:,} {reason}" for reason, number in trace.dropped.items() if number]
    if left_out:
        print(f"not recorded: {', '.join(left_out)}")
    if machine is None:
        return [None] * len(names)
    placed: list[Places | None] = []
    for name, rows in zip(names, trace.references, strict=True):
        places = Places(faults(rows), replay(rows, machine, cold=False), replay(rows, machine, cold=True))
        print_table(found_table(name, places.faults, places.in_a_row, places.empty_caches))
        placed.append(places)
    return placed


def beside_table(workload: str, settings: Sequence[str], rows: Sequence[Row]) -> Table:
    """A workload's faults under all settings, and of whole faults how far they are from the first setting."""
    title = f"{workload}: per fault, all kinds"
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left")
    grid.add_column("")
    grid.add_column("stage")
    for name in settings:
        grid.add_column(name, justify="right")
    for row in rows:
        cells = [f"{value:,.1f}" for value in row.values]
        whole = row.stage == ALL
        for number in range(1, len(cells)):
            apart = row.apart(number)
            if whole and apart is not None:
                cells[number] += f" ({100 * apart:+.1f} %)"
        grid.add_row(row.what, row.stage, *cells, style="bold" if whole else None)
    return grid


def found_table(workload: str, faults: int, warm: Mapping[str, LineSources], cold: Mapping[str, LineSources]) -> Table:
    """Where caches find the lines of the faults, one after another and each with empty caches."""
    title = f"{workload}: where the lines of a fault are found, {faults:,} faults in a row, and each with empty caches"
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left")
    grid.add_column("stage")
    for name in ("references", "lines", "L1", "L2", "L3", "DRAM", "waited", "empty: L1", "DRAM", "waited"):
        grid.add_column(name, justify="right")
    for stage, each in warm.items():
        alone = cold[stage]
        cells = (each.references, each.all_lines, *(each.lines[place] for place in FOUND), each.waited)
        more = (alone.lines["l1"], alone.lines["dram"], alone.waited)
        style = "bold" if stage == "all" else None
        grid.add_row(stage, *(f"{number:,.1f}" for number in (*cells, *more)), style=style)
    return grid


def as_json(
    traces: Mapping[str, Trace],
    places: Mapping[str, Sequence[Places | None]],
    wanted: Sequence[Workload],
    beside: Mapping[str, Sequence[Row]],
    facts: Mapping[str, object],
) -> str:
    """All figures.

    Args:
        traces: By setting.
        places: By setting, of each workload.
        beside: By workload.
        facts: Of all of them.
    """
    settings = []
    for name, trace in traces.items():
        by_workload = {workload.name: each for workload, each in zip(wanted, places[name], strict=True) if each}
        settings.append(
            {
                "setting": name,
                "measured": [dataclasses.asdict(each) for each in trace.measured],
                "checks": [
                    {**dataclasses.asdict(each), "traced": each.traced, "gap": each.gap} for each in trace.checks
                ],
                "left_out": dict(trace.dropped),
                "found": {workload: dataclasses.asdict(each) for workload, each in by_workload.items()},
            }
        )
    sets = {
        workload: [
            {"what": row.what, "stage": row.stage, "values": dict(zip(traces, row.values, strict=True))} for row in rows
        ]
        for workload, rows in beside.items()
    }
    result = {"pagelab_version": _engine.__version__, **facts, "settings": settings, "side_by_side": sets}
    return json.dumps(result, indent=2) + "\n"


def _cells(counts: Mapping[str, Spread]) -> list[str]:
    def mean(key: str) -> str:
        return f"{counts[key].mean:,.1f}"

    def spread(key: str) -> str:
        return f"{counts[key].p10:,.0f}–{counts[key].p90:,.0f}"

    first = [mean("instructions"), spread("instructions"), mean("repetitions")]
    return [*first, mean("loads"), mean("stores"), mean("lines"), spread("lines"), mean("new_lines")]
