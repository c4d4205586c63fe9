"""`pagelab compare`: what changed between two versions of a program."""

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pagelab import PagelabError, UsageError
from pagelab.cli import command as base
from pagelab.cli.compare_observations import compare, observations
from pagelab.cli.completion import names_of
from pagelab.cli.record import Bounds, record_to
from pagelab.cli.terminal import Quiet, print_table, progress_bars, warn
from pagelab.comparison.compared import compare_sides
from pagelab.comparison.limits import Limit
from pagelab.comparison.metrics import METRICS, PLACE_METRICS
from pagelab.comparison.sides import Plan, ReplayOptions, Side, make, plan
from pagelab.comparison.words import Table, parts, result
from pagelab.output import (
    MISSING_FOLDERS,
    ensure_absent,
    ensure_apart,
    ensure_ending,
    ensure_writable,
    new_folder,
    write_atomically,
)
from pagelab.quantities import count

_COMMANDS = "pagelab.compare.commands"
_OWN_OPTIONS = ("--fail-if", "--markdown", "--even-if-different")
_CONTENTS = {"--markdown": "Markdown", "--json": "JSON", "--csv": "CSV"}
"""The name of each for `ensure_ending`"""
_NOTHING = Path(os.devnull)
_SYNTAX = "pagelab compare A B, pagelab compare A -- NEW ARGS, or pagelab compare -- OLD ARGS -- NEW ARGS"
_OWN_DASHES = "one that takes `--` itself is written as sh -c 'exec PROGRAM -- ARGS'"


class Command(base.Command):
    """A command that distinguishes programs, each after its own `--`, from results, traces and workloads."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        groups: list[list[str]] = [[]]
        for word in args:
            if word == "--":
                groups.append([])
            else:
                groups[-1].append(word)
        ctx.meta[_COMMANDS] = groups[1:]
        return super().parse_args(ctx, groups[0])


def command(
    context: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B",
            help="The old version and the new one: results (a file of `run --json`, or a folder of such files), "
            "traces, workloads, or observations (files of `observe --json`). To record programs, put `--` before each: "
            "`-- ./old ARGS -- ./new ARGS`, or `baseline.json -- ./new ARGS`.",
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC[PLACE]>CHANGE",
            help="Exit with status 1 if a metric changed by more than this, such as `walks>+3%`, `walk_refs>+1000` or "
            rf"`walks\[heap]>+3%`; repeatable. Metrics: {', '.join(METRICS)}. "
            f"Of a mapping or function: {', '.join(PLACE_METRICS)}.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Replay with N seeds, to compute intervals.")] = 1,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", "-n", min=1, metavar="N", help="Record each program N times, alternately, to compute intervals."
        ),
    ] = 1,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE|-", help=f"Write the comparison as Markdown. {MISSING_FOLDERS}")
    ] = None,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write it as JSON.")] = None,
    csv: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write all changes as CSV.")] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Save the results of B as the next baseline; with --repeat, a folder of result files.",
        ),
    ] = None,
    even_if_different: Annotated[
        bool,
        typer.Option("--even-if-different", help="Compare even if machine, system, version or other settings differ."),
    ] = False,
    totals: Annotated[
        bool, typer.Option("--totals", help="Compare totals only, without mappings and functions; faster.")
    ] = False,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            "-s",
            metavar="SYSTEM",
            help="The system to replay under; default: that of the other side's results, or radix. Repeatable.",
            autocompletion=names_of("systems"),
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
        typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random choices; default: 1.")] = None,
    max_accesses: Annotated[
        str | None, typer.Option("--max-accesses", metavar="N", help="Replay at most N accesses, such as 100M.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show what changed between two versions of a program: totals, cycles by class, mappings and functions.

    The exit status is 0 if no limit is exceeded, 1 if one is, and 2 if the two cannot be compared or something failed.
    """
    outputs = {"--markdown": markdown, "--json": json, "--csv": csv}
    if sum(file == "-" for file in outputs.values()) > 1:
        raise UsageError(f"only one of {', '.join(outputs)} can go to standard output")
    try:
        files = {name: Path(file) for name, file in outputs.items() if file not in (None, "-")}
        ensure_apart(*files.values(), save)
        for source, path in itertools.product(sources or [], files.values()):
            ensure_apart(Path(source), path)
        for name, path in files.items():
            ensure_ending(path, _CONTENTS[name])
        if save and repeat > 1:
            ensure_absent(save)
        elif save:
            ensure_ending(save, "JSON")
        for path in (*files.values(), *([save] if save else [])):
            ensure_writable(path)
        if known := observations([*(sources or []), *map(" ".join, context.meta[_COMMANDS])]):
            given = {"--fail-if": fail_if, "--save": save, "--system": system, "--machine": machine, "--set": settings}
            compare(sources or [], known, outputs, [name for name, value in given.items() if value])
            return
        limits = [Limit.parse(text) for text in fail_if or []]
        for limit in limits:
            limit.ensure_plausible()
        if seed is not None and seeds > 1:
            raise UsageError("--seed sets one seed and --seeds several: leave one out")
        options = ReplayOptions(
            systems=system or [],
            machine=machine,
            kernel=kernel,
            set=settings or [],
            seed=seed,
            seeds=seeds,
            max_accesses=count("--max-accesses", max_accesses, least=1),
            profile=not totals,
        )
        plans = _plans(sources or [], context.meta[_COMMANDS])
        sides = _make(plans, options, repeat, quiet=quiet)
        if repeat > 1 and any(len(side.recordings) == 1 for side in sides):
            warn(
                "one side has a single recording, so there are no intervals: any difference counts as a change of the "
                "program"
            )
        for side in sides:
            for warning in dict.fromkeys(warning for results in side.recordings for warning in results.warnings):
                warn(f"{side.name}: {warning}")
        if save:
            _save(save, sides[1])
        comparison = compare_sides(*sides, limits, even_if_different=even_if_different)
        texts = {
            "--markdown": comparison.to_markdown,
            "--json": comparison.to_json,
            "--csv": comparison.to_csv,
        }
        for name, path in files.items():
            write_atomically(path, texts[name]())
    except UsageError:
        raise
    except PagelabError as error:
        # Status 1 is that of a limit.
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    piped = next((name for name, file in outputs.items() if file == "-"), None)
    if piped:
        print(texts[piped](), end="")
    else:
        for part in parts(comparison):
            if isinstance(part, Table):
                print_table(part.to_rich())
            else:
                print(part)
            print()
        print(result(comparison))
    for verdict in comparison.undecided:
        warn(
            f"{verdict.limit.text} cannot be decided: the limit lies within the interval; use more --seeds or --repeat"
        )
    sys.stdout.flush()
    sys.exit(comparison.status)


def _plans(sources: Sequence[str], commands: Sequence[Sequence[str]]) -> tuple[Plan, Plan]:
    number = len(sources) + len(commands)
    if len(commands) > 2:
        raise UsageError(f"there are more than two programs: {_OWN_DASHES}")
    for words in commands:
        if swallowed := [word for word in words if word.split("=")[0] in _OWN_OPTIONS]:
            raise UsageError(
                f"{swallowed[0]} comes after `--`, where it belongs to the program: put it before the first `--`"
            )
    if number != 2:
        hint = f"; {_OWN_DASHES}" if len(commands) > 1 else ""
        raise UsageError(f"there {'is' if number == 1 else 'are'} {number} to compare and not two: {_SYNTAX}{hint}")
    first, second = [*(plan(source) for source in sources), *(plan(list(command)) for command in commands)]
    return first, second


def _make(plans: tuple[Plan, Plan], options: ReplayOptions, repeat: int, *, quiet: bool) -> tuple[Side, Side]:
    def record(command: list[str], trace: Path) -> int:
        name = "" if quiet else command[0]
        with _standard_input_from(_NOTHING):
            recorded = record_to(trace, command, Bounds(), quiet=quiet, stdout=_NOTHING, name=name)
        if recorded.interrupted:
            raise KeyboardInterrupt
        if recorded.recording.exit_code:
            warn(f"{command[0]} ended with status {recorded.recording.exit_code}")
        return recorded.recording.exit_code

    with progress_bars(quiet=quiet) as bars:
        return make(plans, options, repeat=repeat, recorder=record, progress=bars)


@contextmanager
def _standard_input_from(file: Path) -> Iterator[None]:
    """Programs started meanwhile read a file: the first one would consume our standard input."""
    ours = os.dup(0)
    with file.open("rb") as opened:
        os.dup2(opened.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(ours, 0)
        os.close(ours)


def _save(file: Path, side: Side) -> None:
    if len(side.recordings) == 1:
        side.first.save(file)
        return
    with new_folder(file) as folder:
        for number, results in enumerate(side.recordings, 1):
            results.save(folder / f"{number}.json")
