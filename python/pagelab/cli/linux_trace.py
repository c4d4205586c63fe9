"""`pagelab linux trace`: how its figures are shown and written."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from rich.table import Table

from pagelab import _engine
from pagelab.linux.stages import OTHER
from pagelab.linux.trace import Check, Measured, Spread, Trace

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


def checks(found: Sequence[Check]) -> Table:
    """The trace beside the guest's own counts."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("workload")
    titles = ("faults", "recorded", "guest's count per fault", "in faults", "interrupts", "left out", "beside", "apart")
    for name in titles:
        grid.add_column(name, justify="right")
    for each in found:
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


def as_json(trace: Trace, kernel: str, levels: int) -> str:
    """All figures."""
    result = {
        "pagelab_version": _engine.__version__,
        "kernel": kernel,
        "levels": levels,
        "measured": [dataclasses.asdict(each) for each in trace.measured],
        "checks": [{**dataclasses.asdict(each), "traced": each.traced, "gap": each.gap} for each in trace.checks],
        "left_out": dict(trace.dropped),
    }
    return json.dumps(result, indent=2) + "\n"


def _cells(counts: Mapping[str, Spread]) -> list[str]:
    def mean(key: str) -> str:
        return f"{counts[key].mean:,.1f}"

    def spread(key: str) -> str:
        return f"{counts[key].p10:,.0f}–{counts[key].p90:,.0f}"

    first = [mean("instructions"), spread("instructions"), mean("repetitions")]
    return [*first, mean("loads"), mean("stores"), mean("lines"), spread("lines"), mean("new_lines")]
