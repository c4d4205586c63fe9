"""`pagelab major-faults`: native major faults of a program, compared with simulated ones."""

import json as json_format
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pagelab import _engine
from pagelab.cli.terminal import Quiet, print_table, warn
from pagelab.major_faults.beside import (
    RESTS_ON,
    Estimate,
    Refusal,
    Simulated,
    estimate,
    percent_apart,
    simulated,
    warnings,
)
from pagelab.major_faults.native import Native, Plan, Range, measure
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically


def command(
    program: Annotated[list[str], typer.Argument(metavar="CMD…", help="The program and its arguments, after `--`.")],
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Memory limit of the program, page cache included, set by a cgroup."
        ),
    ] = None,
    cold: Annotated[
        list[Path] | None,
        typer.Option("--cold", metavar="FILE", help="Drop this file from the page cache before each run; repeatable."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", metavar="N", help="How often to run the program.")] = Plan.runs,
    operations: Annotated[
        int | None,
        typer.Option(
            "--operations",
            metavar="N",
            help="Number of operations per run, if the program does not print operations=N.",
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="RESULTS.json",
            help="A result file of `pagelab run --json` for a recording of the program; repeatable.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE|-", help=f"Write all results to a file, or to standard output. {MISSING_FOLDERS}"
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Count a program's native major faults, compare them with replays, and estimate hardware demand paging's gain.

    The program may print operations=N, seconds=S, major_faults=N and minor_faults=N, one per line, for
    its requests alone. Without them, the whole process counts.
    """
    destination = Path(json) if json not in (None, "-") else None
    if destination:
        ensure_ending(destination, "JSON")
        ensure_writable(destination)
        for path in (*(against or ()), *(cold or ())):
            ensure_apart(path, destination)
    # Before anything runs in vain.
    systems = simulated(against or [])
    plan = Plan(program, runs, _memory(memory), cold or [], operations)
    native = measure(plan, None if quiet else partial(print, file=sys.stderr))
    outcome = estimate(native, systems) if systems else None
    for warning in warnings(native, systems):
        warn(warning)
    text = json_format.dumps(_document(native, systems, outcome), indent=1, ensure_ascii=False) + "\n"
    if destination:
        write_atomically(destination, text)
    if json == "-":
        print(text, end="")
    else:
        _show(native, systems, outcome)


def _memory(size: str | None) -> int | None:
    if size is None:
        return None
    try:
        return _engine.parse_bytes(size)
    except _engine.UsageError as error:
        raise _engine.UsageError(f"--memory: {error}") from None


def _document(native: Native, systems: Sequence[Simulated], outcome: Estimate | Refusal | None) -> dict[str, Any]:
    return {
        "version": _engine.__version__,
        "native": native.to_dict(),
        "simulated": [
            {**vars(system), "misses": system.misses, "percent_of_native": percent_apart(system.misses, native)}
            for system in systems
        ],
        "estimate": outcome.to_dict() if outcome else None,
    }


def _show(native: Native, systems: Sequence[Simulated], outcome: Estimate | Refusal | None) -> None:
    plan = native.plan
    limit = f"at most {plan.memory_bytes / (1 << 20):,.0f} MiB (cgroup v{native.cgroup})" if plan.memory_bytes else ""
    dropped = f"cold: {', '.join(map(str, plan.cold))}" if plan.cold else ""
    how = ", ".join(filter(None, (f"{plan.runs} run{'s' * (plan.runs != 1)}", limit, dropped)))
    print(f"{shlex.join(plan.command)}\n{how}; {'its requests' if native.reported else 'the whole process'}\n")
    print_table(_native(native))
    if systems:
        print()
        print_table(_beside(native, systems))
    if isinstance(outcome, Refusal):
        print(f"\nno estimate of operations per second with the unit: {outcome.reason}")
    elif outcome:
        print("\nestimate with the unit: operations / (time − misses · Δ)\n")
        print_table(_estimate(native, outcome))
        print(f"\nthis is an estimate, not a measurement; it assumes: {RESTS_ON}")


def _empty(first: str, *titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first)
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _cells(values: Range, digits: int = 0) -> tuple[str, ...]:
    return tuple(f"{value:,.{digits}f}" for value in (values.median, values.least, values.most))


def _native(native: Native) -> Table:
    table = _empty("native", "median", "least", "most")
    table.add_row("major faults", *_cells(native.range_of("major_faults")))
    table.add_row("minor faults", *_cells(native.range_of("minor_faults")))
    table.add_row("time in s", *_cells(native.range_of("seconds"), 3))
    if native.operations is not None and native.range_of("seconds").least > 0:
        table.add_row("operations per second", *_cells(_rates(native)))
    if native.range_of("major_faults").least > 0:
        each = Range.from_values(1e6 * run.seconds / run.major_faults for run in native.runs)
        table.add_row("time per major fault in µs", *_cells(each, 1))
    return table


def _rates(native: Native) -> Range:
    assert native.operations is not None
    return Range.from_values(native.operations / run.seconds for run in native.runs)


def _beside(native: Native, systems: Sequence[Simulated]) -> Table:
    table = _empty("", "major faults", "by the unit", "both", "to native", "mean latency in µs")
    median = native.range_of("major_faults").median
    table.add_row("native", f"{median:,.0f}", "", f"{median:,.0f}", "", "")
    for system in systems:
        apart = percent_apart(system.misses, native)
        table.add_row(
            system.label,
            f"{system.by_kernel:,}",
            f"{system.by_unit:,}" if system.has_unit else "",
            f"{system.misses:,}",
            f"{apart:+.1f} %" if apart is not None else "–",
            f"{system.latency_ns / 1000:,.2f}" if system.latency_ns is not None else "–",
        )
    return table


def _estimate(native: Native, outcome: Estimate) -> Table:
    table = _empty("", "median", "least", "most")
    delta = outcome.delta_ns
    in_microseconds = Range(delta.median / 1000, delta.least / 1000, delta.most / 1000)
    table.add_row("Δ in µs, kernel less unit", *_cells(in_microseconds, 2))
    table.add_row("operations per second, native", *_cells(_rates(native)))
    table.add_row("operations per second, estimated", *_cells(outcome.operations_per_second))
    table.add_row("more by, in %", *_cells(outcome.gain_percent, 1))
    return table
