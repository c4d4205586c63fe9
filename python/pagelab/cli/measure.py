"""`pagelab measure`: runs a program natively under page-size layouts."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pagelab import UsageError
from pagelab.capture.stretches import Stretches
from pagelab.cli.calibrated import tell_unused
from pagelab.cli.completion import names_of
from pagelab.cli.stretches import Windows
from pagelab.cli.terminal import Quiet, print_table, progress_bars, warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.quantities import size_text
from pagelab.run_time.measuring import LAYOUTS, Figure, Measured, Measurement, Plan, measure
from pagelab.run_time.replaying import Replaying
from pagelab.run_time.running import Files

_NO_OTHER = ", as --machine names no other; `pagelab calibrate --hardware` makes a preset"


def command(
    program: Annotated[list[str], typer.Argument(metavar="CMD…", help="The program and its arguments, after `--`.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help=f"Where to write all runs, for `pagelab model fit`. {MISSING_FOLDERS}",
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            "-l",
            metavar="LAYOUT",
            help="4k, thp, host (the unmodified program), or the part in huge pages: heap=25%, mmap=50%, "
            "heap=0-64MiB, or several of these with commas; repeatable. Default: 4k and thp.",
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", "-n", min=1, help="Number of timed runs per layout, alternating.")
    ] = 5,
    replay: Annotated[
        bool, typer.Option("--replay", help="Record the program and replay it under each layout, for walk cycles.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME.trace", help="Replay this recording instead of a new one; only for the layouts 4k and thp."
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where --replay keeps its recordings. Default: they are deleted."),
    ] = None,
    windows: Windows = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Replay all of a long recording instead of a sample. Takes much longer.")
    ] = False,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            "-m",
            help="The machine for replays, a preset or TOML file; default: that of `pagelab run`.",
            autocompletion=names_of("machines"),
        ),
    ] = None,
    nested: Annotated[bool, typer.Option("--nested", help="Replay in a virtual machine, with nested walks.")] = False,
    stdin: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The program's input, read from the start for each run.")
    ] = None,
    stdout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the last run's output goes. Default: it is discarded.")
    ] = None,
    any_status: Annotated[
        bool, typer.Option("--any-status", help="Accept a program that exits with a status other than 0.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a program natively with several page-size layouts, and measure run time and page faults."""
    if output:
        ensure_ending(output, "JSON")
    for path in (output, stdout):
        if path:
            ensure_writable(path)
    ensure_apart(output, stdout, stdin, traces)
    replays = replay or trace is not None
    if not replays and (machine or nested or traces or whole):
        raise UsageError("--machine, --nested, --traces and --whole only affect replays: add --replay or --trace")
    if traces:
        if trace:
            raise UsageError("--traces keeps the recordings of --replay: leave out --trace")
        traces.mkdir(parents=True, exist_ok=True)
    if windows and not replay:
        raise UsageError("--windows selects what --replay records: add --replay")
    with progress_bars(quiet=quiet) as progress:
        plan = Plan(
            layouts=layout or LAYOUTS,
            repeat=repeat,
            files=Files(stdin, stdout),
            any_status=any_status,
            record=replay,
            stretches=Stretches(windows=windows) if windows else None,
            trace=trace,
            keep_traces=traces,
            replaying=Replaying(machine, nested, whole, progress),
        )
        measured = measure(program, plan, (lambda _: None) if quiet else _say)
    if output:
        write_atomically(output, measured.to_json())
    if replays and not quiet:
        # No figure shown from replays contains the kernel's costs.
        tell_unused(machine, kernel="")
    _show(measured)


def _say(what: str) -> None:
    print(what, file=sys.stderr)


def _show(measured: Measurement) -> None:
    machine = measured.machine
    print(" ".join(measured.command))
    print(f"{machine.kernel}, {machine.cpu_model}, {machine.cpus} CPUs, huge pages: {machine.huge_pages}")
    if measured.counters_missing:
        print(f"counters: {measured.counters_missing}")
    if measured.walk_cycles_from == "replay":
        machines = dict.fromkeys(layout.replay.machine for layout in measured.layouts if layout.replay)
        print(f"walk cycles: of replays on {', '.join(machines)}{'' if measured.replay_machine else _NO_OTHER}")
    print()
    print_table(_table(measured))
    for warning in measured.warnings:
        warn(warning)


def _table(measured: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("layout")
    titles = ["huge", "of", "CPU s", "95 %", "user", "system", "wall", "faults"]
    counted = "cycles_user" in measured.layouts[0].runs[0].counters
    titles += ["cycles"] * counted + ["walk cycles", "TLB misses"] * any(layout.replay for layout in measured.layouts)
    for title in titles:
        table.add_column(title, justify="right")
    first = measured.layouts[0].figure(lambda run: run.cpu_seconds).median
    for layout in measured.layouts:
        cpu = layout.figure(lambda run: run.cpu_seconds)
        cells = [f"{layout.memory.huge_share:.0%}", size_text(layout.memory.anonymous_bytes)]
        cells += [f"{cpu.median:.3f} ×{cpu.median / first:.2f}", _interval(cpu)]
        cells += [f"{layout.figure(lambda run: run.user_seconds).median:.3f}"]
        cells += [f"{layout.figure(lambda run: run.system_seconds).median:.3f}"]
        cells += [f"{layout.figure(lambda run: run.wall_seconds).median:.3f}"]
        cells += [f"{layout.figure(lambda run: run.minor_faults + run.major_faults).median:,.0f}"]
        cells += [f"{layout.figure(lambda run: run.counters.get('cycles_user', 0)).median:,.0f}"] * counted
        table.add_row(layout.layout, *cells, *_replayed(layout))
    return table


def _replayed(measured: Measured) -> tuple[str, ...]:
    return (f"{measured.replay.walk_cycles:,}", f"{measured.replay.tlb_misses:,}") if measured.replay else ()


def _interval(figure: Figure) -> str:
    if figure.half_interval is None:
        return "–"
    return f"±{figure.half_interval:.3f}"
