"""`pagelab run`: replays and compares."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import pagelab
from pagelab.capture.program_exit import failures
from pagelab.capture.recorder import Program
from pagelab.capture.stretches import Stretches
from pagelab.cli.calibrated import tell_unused
from pagelab.cli.completion import names_of
from pagelab.cli.record import end_as_recorded, interrupts_for_the_program
from pagelab.cli.stretches import (
    Follow,
    Skip,
    StartAt,
    StartOnSignal,
    StopAt,
    Windows,
    stretches_of,
)
from pagelab.cli.terminal import Quiet, output_width, print_table, progress_bars, warn
from pagelab.cli.window_intervals import intervals
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.quantities import count
from pagelab.replay.simulation import Settings
from pagelab.results.request import WINDOWS_OF_PROFILES
from pagelab.results.results import Results

Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write all statistics to a file, compressed if its name ends with .json.gz, or to standard output. "
        f"{MISSING_FOLDERS}",
    ),
]

Full = Annotated[bool, typer.Option("--full", help="Print all rows of the comparison, with one column per system.")]

_ROLES = {"main": "", "co-runner": "beside ", "arrivals": "arrivals of "}


def command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRACE|WORKLOAD…",
            help="What to replay; with --live, a program and its arguments. A source may end with `@0` or `@1-3,5`, "
            "which pins it to CPUs, and `,memory_limit=SIZE`, which limits its memory.",
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            "-s",
            metavar="SYSTEM[@KERNEL][{KEY=VALUE,…}]",
            help="A system preset or TOML file, optionally with a kernel and settings for this system; repeat it to "
            "compare systems.",
            autocompletion=names_of("systems"),
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="SPEC[@CPUS][,memory_limit=SIZE]",
            help="Run this source alongside, and restart it whenever it ends, until the others have ended; repeatable.",
        ),
    ] = None,
    arrivals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC[@CPUS],per_second=RATE[,count=N][,spacing=uniform|poisson][,memory_limit=SIZE]",
            help="Start short-lived processes during the run; repeatable.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option("--machine", "-m", help="A machine preset or TOML file.", autocompletion=names_of("machines")),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", "-k", help="A kernel preset or TOML file.", autocompletion=names_of("kernels")),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key of all systems; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random choices; default: 1.")] = None,
    max_accesses: Annotated[
        str | None,
        typer.Option("--max-accesses", metavar="N", help="Replay at most N accesses of each source, such as 100M."),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option("--warm-up", metavar="N", help="Start counting after N accesses of all sources together."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check every translation against a flat map of all pages; slow.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of systems simulated at the same time; default: one per CPU.")
    ] = None,
    faults: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME.faults",
            help="Write the times of the programs' page faults as a fault trace; needs exactly one system. "
            f"{MISSING_FOLDERS}",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Also collect the report's data: costs over time, by memory and by code; slower."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help=f"Write a report of the run; implies --profile. {MISSING_FOLDERS}"),
    ] = None,
    interleavings: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Replay K legal schedules of the threads, and show the spread of the figures.",
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="auto|every=N,length=N[,warm=N][,offset=N]",
            help="Replay only a window of `length` instructions in each period of `every`; faults are counted for the "
            "whole source.",
        ),
    ] = None,
    full: Full = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Replay the program after `--` while it runs; no trace is written."),
    ] = False,
    cpus: Annotated[
        int | None,
        typer.Option(min=1, help="With --live: number of simulated CPUs for the program's threads; default: 1."),
    ] = None,
    skip: Skip = None,
    windows: Windows = None,
    start_at: StartAt = None,
    stop_at: StopAt = None,
    start_on_signal: StartOnSignal = False,
    follow: Follow = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Replay traces and workloads under one or several systems and print the results side by side."""
    destination = Path(json) if json not in (None, "-") else None
    if faults is not None and str(faults) in ("", ".", "-"):
        raise pagelab.UsageError("--faults takes the name of a new file, such as NAME.faults")
    for path, content in ((destination, "JSON"), (faults, "a fault trace"), (report, "HTML")):
        if path is not None:
            ensure_ending(path, content)
            ensure_writable(path)
    ensure_apart(faults, destination, report)
    profile = profile or report is not None
    common: Settings = {
        "with_": with_ or [],
        "machine": machine,
        "kernel": kernel,
        "set": settings or [],
        "seed": seed,
        "max_accesses": count("--max-accesses", max_accesses, least=1),
        "warm_up": count("--warm-up", warm_up),
        # The windows of a sample are already parts.
        "windows": WINDOWS_OF_PROFILES if profile and sample is None else None,
        "profile": profile,
        "check": check,
    }
    program = None
    if live:
        if sample is not None:
            raise pagelab.UsageError("--sample is not possible with --live; --windows skips while it records")
        _refuse(
            "with --live",
            {"--arrivals": arrivals, "--faults": faults, "--threads": threads, "--interleavings": interleavings},
        )
        stretches = stretches_of(skip, windows, start_at, stop_at, start_on_signal=start_on_signal)
        program, results = _live(
            sources or [], system or ["radix"], cpus or 1, (stretches, follow), common, quiet=quiet
        )
    else:
        in_stretches = {
            "--follow": follow,
            "--skip": skip,
            "--windows": windows,
            "--start-at": start_at,
            "--stop-at": stop_at,
        }
        _refuse("without --live", {"--cpus": cpus, **in_stretches, "--start-on-signal": start_on_signal})
        with progress_bars(quiet=quiet) as progress:
            results = pagelab.run(
                sources or [],
                system or ["radix"],
                arrivals=arrivals or [],
                faults=faults,
                interleavings=interleavings,
                sample=sample,
                threads=threads,
                progress=progress,
                **common,
            )
    if profile and (destination or json == "-"):
        # What names functions takes longer to import than many a run.
        from pagelab.comparison.functions import name_functions

        # The programs' files may have changed when somebody reads it.
        results = name_functions(results)
    if destination:
        write_atomically(destination, results.to_json())
    if report is not None:
        # Its libraries take longer to import than the command line takes to answer.
        from pagelab.report import write

        write(report, [results])
    for warning in [*results.warnings, *failures([*(sources or []), *(with_ or [])] if not live else [])]:
        warn(warning)
    if not quiet:
        tell_unused(machine, kernel, system or [])
    if json == "-":
        print(results.to_json(), end="")
    else:
        show(results, full=full)
    if program is not None:
        end_as_recorded(program)


def _refuse(where: str, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise pagelab.UsageError(f"{given[0]} is not possible {where}; remove it")


def _live(
    command: list[str],
    systems: list[str],
    cpus: int,
    recorded: tuple[Stretches | None, str | None],
    common: Settings,
    *,
    quiet: bool,
) -> tuple[Program, Results]:
    """Records a program and replays it meanwhile; says on standard error what came of the program.

    `recorded` is which stretches, and which children.
    """
    stretches, follow = recorded
    if not command:
        raise pagelab.UsageError("--live takes a program: pagelab run --live -s radix -- CMD…")
    # A progress bar would write into what a program shows on the terminal.
    with (
        interrupts_for_the_program(),
        progress_bars(quiet=quiet, hidden=sys.stdout.isatty()) as progress,
    ):
        run = pagelab.run_live(
            command, systems, cpus=cpus, stretches=stretches, follow=follow, progress=progress, **common
        )
    for loss in run.program.losses:
        warn(f"the recording is incomplete: {loss}")
    for note in run.program.notes:
        warn(note)
    if not quiet:
        millions = run.program.accesses / 1e6
        print(f"{command[0]}: {millions:,.1f} M accesses in {run.program.elapsed_seconds:.1f} s", file=sys.stderr)
        if run.program.stretches is not None:
            print(f"{command[0]}: {run.program.stretches.describe()}", file=sys.stderr)
    return run.program, run.results


def show(results: Results, *, full: bool = False) -> None:
    """Prints the sources, the machine, and the summary or the whole table."""
    first = results.systems[0]
    names = {role: [source.name for source in first.sources if source.role == role] for role in _ROLES}
    parts = [f"{words}{', '.join(names[role])}" for role, words in _ROLES.items() if names[role]]
    seeds = dict.fromkeys(str(result.seed) for result in results.systems)
    print(f"{', '.join(parts)} on {first.machine}, seed {' and '.join(seeds)}")
    if results.is_one_order:
        print(
            "one of many possible schedules of the threads; --interleavings K shows how much the figures depend on it"
        )
    spread = results.spread()
    if spread is not None:
        print()
        print_table(spread)
    for part in intervals(results):
        print()
        if isinstance(part, str):
            print(part)
        else:
            print_table(part)
    if not full:
        print()
        print_table(results.summary())
        return
    width = output_width()
    for table in [results.table()] if width is None else results.tables(width):
        print()
        print_table(table)


def show_command(
    files: Annotated[list[Path], typer.Argument(metavar="RESULT…", help="A result file of `pagelab run --json FILE`.")],
    full: Full = False,
) -> None:
    """Print saved results again. Several runs of the same sources are printed side by side, others one by one."""
    runs = [Results.load(file) for file in files]
    together = Results.side_by_side(runs, [str(file) for file in files]) if len(runs) > 1 else runs[0]
    shown = [together] if together is not None else runs
    for number, results in enumerate(shown):
        if len(shown) > 1:
            print(f"{chr(10) if number else ''}{files[number]}:")
        for warning in results.warnings:
            warn(f"{files[number]}: {warning}" if len(shown) > 1 else warning)
        show(results, full=full)
