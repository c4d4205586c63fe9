"""`pagelab advise`: what paging costs a program, and what would change that."""

import json
import shlex
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from pagelab import UsageError
from pagelab.cli.completion import names_of
from pagelab.cli.record import end_as, record_to
from pagelab.cli.run import Json
from pagelab.cli.stretches import Skip, StartAt, StartOnSignal, StopAt, Windows, stretches_of
from pagelab.cli.terminal import Quiet, progress_bars, warn
from pagelab.counts import count
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_writable, write_atomically
from pagelab.traces import trace_info

if TYPE_CHECKING:
    from pagelab.advice import Trials

_REPEAT = 5
_IS_PROGRAM = "pagelab.advise.is_program"


class Command(TyperCommand):
    """A command that tells programs from traces and workloads: they come behind `--`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta[_IS_PROGRAM] = "--" in args
        return super().parse_args(ctx, args)


def command(
    context: typer.Context,
    program: Annotated[
        list[str],
        typer.Argument(metavar="TRACE|WORKLOAD|CMD…", help="A trace or workload, or after `--` a program to record."),
    ],
    machine: Annotated[
        str | None,
        typer.Option("--machine", "-m", help="A machine preset or TOML file.", autocompletion=names_of("machines")),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", "-k", help="A kernel preset or TOML file.", autocompletion=names_of("kernels")),
    ] = None,
    nested: Annotated[bool, typer.Option("--nested", help="The program runs in a virtual machine.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help=f"Write the advice and a report of the replays as a page. {MISSING_FOLDERS}",
        ),
    ] = None,
    checked: Annotated[
        bool,
        typer.Option(
            "--check", help="Run the program natively, too, without and with huge pages, and say what these save."
        ),
    ] = False,
    repeat: Annotated[
        int | None, typer.Option("--repeat", "-n", min=1, help="With --check, runs of each; default 5, alternating.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="NAME.trace", help="Keep the recording there. Without it, nowhere."),
    ] = None,
    max_accesses: Annotated[
        str | None, typer.Option("--max-accesses", metavar="N", help="End the program after so many accesses.")
    ] = None,
    skip: Skip = None,
    windows: Windows = None,
    start_at: StartAt = None,
    stop_at: StopAt = None,
    start_on_signal: StartOnSignal = False,
    json_: Json = None,
    quiet: Quiet = False,
) -> None:
    """Say what paging costs a program, which memory and code pay it, and what huge pages and other remedies change."""
    # Its libraries take longer to import than the command line takes to answer.
    from pagelab.advice import advice_of, check, words

    destination = Path(json_) if json_ not in (None, "-") else None
    for path in (output, destination):
        if path is not None:
            ensure_writable(path)
    ensure_apart(output, destination, keep)
    stretches = stretches_of(skip, windows, start_at, stop_at, start_on_signal=start_on_signal)
    limit = count("--max-accesses", max_accesses, least=1)
    chosen = _Chosen(machine, kernel, nested, limit, quiet)
    if repeat is not None and not checked:
        raise UsageError("--repeat says how often --check runs the program: add --check")
    status, measured = 0, None
    if context.meta[_IS_PROGRAM]:
        with ExitStack() as stack:
            trace = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagelab-"))) / "program.trace"
            recording = record_to(trace, program, limit, stretches=stretches, quiet=quiet)
            if recording.truncated_at is None:
                status = recording.exit_code
            trials = _replay(str(trace), chosen)
            name = shlex.join([Path(program[0]).name, *program[1:]])
        if checked:
            say = (lambda _: None) if quiet else partial(print, file=sys.stderr)
            measured = check(program, repeat or _REPEAT, say)
    else:
        source = _source(program, of_programs=stretches is not None or keep is not None or checked)
        trials = _replay(source, chosen)
        name = _name(source)
    advice = advice_of(name, trials)
    text = words.page(advice, measured)
    document = json.dumps(advice.to_document(measured), indent=1, ensure_ascii=False) + "\n"
    if destination:
        write_atomically(destination, document)
    if output:
        from pagelab.report import write

        write(output, [trials.window], advice=text)
    for warning in [*trials.window.warnings, *(measured.warnings if measured else ())]:
        warn(warning)
    print(document if json_ == "-" else text, end="")
    end_as(status)


@dataclass(frozen=True)
class _Chosen:
    """How replays are made, as the options say."""

    machine: str | None
    kernel: str | None
    nested: bool
    max_accesses: int | None
    quiet: bool


def _source(words: list[str], *, of_programs: bool) -> str:
    if len(words) > 1:
        raise UsageError(f"{shlex.join(words)}: a program comes behind `--`: pagelab advise -- {shlex.join(words)}")
    if of_programs:
        raise UsageError(
            "--keep, --check and the stretches of a recording are for programs: pagelab advise OPTIONS -- CMD"
        )
    return words[0]


def _is_trace(source: str) -> bool:
    return Path(source).is_dir()


def _name(source: str) -> str:
    command = trace_info(source)["meta"]["command"] if _is_trace(source) else []
    return shlex.join([Path(command[0]).name, *command[1:]]) if command else source


def _replay(source: str, chosen: _Chosen) -> "Trials":
    from pagelab.advice import choose, replay

    # Imported traces do not tell.
    host = (trace_info(source)["meta"].get("host") or {}) if _is_trace(source) else {}
    choice = choose(chosen.machine, chosen.kernel, nested=chosen.nested, cpu_model=host.get("cpu_model"))
    with progress_bars(quiet=chosen.quiet) as progress:
        return replay(source, choice, max_accesses=chosen.max_accesses, progress=progress)
