"""`pagelab advise`: what paging costs a program, and what would change that."""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import PagelabError, UsageError
from pagelab.capture.program_exit import failures
from pagelab.capture.stretches import Stretches
from pagelab.cli import command as base
from pagelab.cli.calibrated import tell_unused
from pagelab.cli.completion import names_of
from pagelab.cli.outlook import Outlook
from pagelab.cli.record import Bounds, end_as, record_to
from pagelab.cli.run import Json
from pagelab.cli.stretches import Skip, StartAt, StartOnSignal, StopAt, Windows, stretches_of
from pagelab.cli.terminal import Quiet, progress_bars, warn
from pagelab.confidence.sign_test import FEWEST_VALUES
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.quantities import count

if TYPE_CHECKING:
    from pagelab.advice import Advice, Checked, Observed, Owner, Subject, Trials, Unchecked

_REPEAT = 9
"""Pairs of runs: with nine, the 95 % interval leaves out the extreme pair at either end"""
_INTERRUPTED = 130
_IS_PROGRAM = "pagelab.advise.is_program"


class Command(base.Command):
    """A command that distinguishes programs from traces and workloads: programs come after `--`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta[_IS_PROGRAM] = "--" in args
        return super().parse_args(ctx, args)


def command(
    context: typer.Context,
    program: Annotated[
        list[str],
        typer.Argument(metavar="TRACE|WORKLOAD|CMD…", help="A trace or workload; or, after `--`, a program to record."),
    ],
    machine: Annotated[
        str | None,
        typer.Option("--machine", "-m", help="A machine preset or TOML file.", autocompletion=names_of("machines")),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", "-k", help="A kernel preset or TOML file.", autocompletion=names_of("kernels")),
    ] = None,
    nested: Annotated[
        bool | None,
        typer.Option(
            "--nested/--no-nested",
            help="Replay in a virtual machine, or outside of one. Default: as the program was recorded.",
            show_default=False,
        ),
    ] = None,
    observed: Annotated[
        Path | None,
        typer.Option(
            "--observed",
            metavar="FILE.json",
            help="Replay with the huge pages, and the fragmented memory, of the machine of pagelab observe --json.",
        ),
    ] = None,
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
            "--check", help="Also run the program natively, without and with huge pages, and show what they save."
        ),
    ] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            "-n",
            min=1,
            help="With --check: number of pairs of runs; a 95 % interval needs 6 or more; default: 9.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="NAME.trace", help="Keep the recording as this trace. Default: it is deleted."),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Replay all of a long recording instead of a sample. Takes much longer."),
    ] = False,
    max_accesses: Annotated[
        str | None, typer.Option("--max-accesses", metavar="N", help="Stop the program after N accesses.")
    ] = None,
    skip: Skip = None,
    windows: Windows = None,
    start_at: StartAt = None,
    stop_at: StopAt = None,
    start_on_signal: StartOnSignal = False,
    stdout: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the recorded program's output goes. Default: standard output, before the advice.",
        ),
    ] = None,
    json_: Json = None,
    quiet: Quiet = False,
) -> None:
    """Show what paging costs a program, which memory and code cause it, and what would reduce it."""
    # Its libraries take longer to import than the command line takes to answer.
    from pagelab.advice import Circumstances, Observed, Subject, document_of, parts_of
    from pagelab.report.parts import plain

    destination = Path(json_) if json_ not in (None, "-") else None
    for path, content in ((output, "HTML"), (destination, "JSON"), (keep, "a trace")):
        if path is not None:
            ensure_ending(path, content)
    for path in (output, destination, stdout):
        if path is not None:
            ensure_writable(path)
    ensure_apart(output, destination, keep, stdout)
    stretches = stretches_of(skip, windows, start_at, stop_at, start_on_signal=start_on_signal)
    limit = count("--max-accesses", max_accesses, least=1)
    seen = Observed.read(observed) if observed else None
    chosen = _Chosen(machine, kernel, nested, seen, limit, quiet, whole=whole, reported=output is not None)
    if repeat is not None and not checked:
        raise UsageError("--repeat sets how often --check runs the program: add --check")
    if repeat is not None and repeat < FEWEST_VALUES:
        warn(
            f"--repeat {repeat}: fewer than {FEWEST_VALUES} pairs of runs have no 95 % interval, so they decide nothing"
        )
    recorded = _Recorded()
    if context.meta[_IS_PROGRAM]:
        chosen.ensure_known()
        with ExitStack() as stack:
            trace = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagelab-"))) / "program.trace"
            recorded = _record(trace, program, stretches, stdout, chosen, kept=keep is not None)
            advised = _advise(recorded.subject(Subject.from_source(str(trace))), chosen)
        if checked:
            recorded = _checked(program, repeat or _REPEAT, recorded, quiet=quiet)
    else:
        of_programs = stretches is not None or checked or keep is not None or stdout is not None
        advised = _advise(Subject.from_source(_source(program, of_programs=of_programs)), chosen)
    advice, subject, trials = advised.advice, advised.subject, advised.advice.trials
    circumstances = Circumstances(
        interrupted=recorded.interrupted,
        tells_dependencies=subject.tells_dependencies,
        is_sampled=subject.is_sampled,
        owners=advised.owners,
        recorded=subject.accesses,
    )
    parts = parts_of(advice, recorded.measured, circumstances)
    document = json.dumps(document_of(advice, recorded.measured), indent=1, ensure_ascii=False) + "\n"
    if destination:
        write_atomically(destination, document)
    if output:
        from pagelab.report import Lead, write

        write(output, [trials.window], lead=Lead(subject.name, parts))
    of_traces = [] if context.meta[_IS_PROGRAM] else failures([subject.source])
    for warning in [*_warnings(trials), *recorded.warnings, *of_traces]:
        warn(warning)
    if not quiet:
        tell_unused(machine, kernel)
    print(document if json_ == "-" else plain(parts), end="")
    if recorded.gave_up:
        # A warning has given the reason.
        sys.exit(recorded.status)
    end_as(recorded.status)


@dataclass(frozen=True)
class _Chosen:
    """How replays are made, as the options say."""

    machine: str | None
    kernel: str | None
    nested: bool | None
    observed: "Observed | None"
    max_accesses: int | None
    quiet: bool
    whole: bool
    """Without sampling."""
    reported: bool
    """Whether a report of all replays follows."""

    def ensure_known(self) -> None:
        """Fails if there is no such machine or kernel, rather than after a recording."""
        from pagelab.advice import choose, ensure_known

        ensure_known(choose(self.machine, self.kernel, nested=self.nested, observed=self.observed))


@dataclass(frozen=True)
class _Recorded:
    """How the program itself ended."""

    status: int = 0
    gave_up: bool = False
    """Whether the recorder ended it"""
    interrupted: bool = False
    measured: "Checked | Unchecked | None" = None

    def subject(self, subject: "Subject") -> "Subject":
        """What is known about a recorded program; if it was interrupted, its length is not."""
        return replace(subject, length=replace(subject.length, known=False)) if self.interrupted else subject

    @property
    def warnings(self) -> Sequence[str]:
        return getattr(self.measured, "warnings", ())


def _record(
    trace: Path,
    program: list[str],
    stretches: Stretches | None,
    stdout: Path | None,
    chosen: _Chosen,
    *,
    kept: bool,
) -> _Recorded:
    # The path of a recording that is deleted at once is of no use.
    name = None if kept else "" if chosen.quiet else "recorded"
    recorded = record_to(
        trace, program, Bounds(chosen.max_accesses), stretches=stretches, quiet=chosen.quiet, stdout=stdout, name=name
    )
    recording = recorded.recording
    if recorded.interrupted:
        if not recording.accesses:
            raise KeyboardInterrupt
        warn("interrupted: the advice covers what the program did so far; press Ctrl-C again to stop")
    return _Recorded(recording.status, recording.gave_up, recorded.interrupted)


def _checked(program: list[str], repeat: int, recorded: _Recorded, *, quiet: bool) -> _Recorded:
    """The native saving of huge pages. If it cannot be measured, the advice is still printed."""
    from pagelab.advice import Unchecked, check

    say = (lambda _: None) if quiet else partial(print, file=sys.stderr)
    try:
        return replace(recorded, measured=check(program, repeat, say))
    except PagelabError as error:
        return replace(recorded, measured=Unchecked(str(error)))
    except KeyboardInterrupt:
        return replace(recorded, measured=Unchecked("interrupted"), status=_INTERRUPTED)


def _warnings(trials: "Trials") -> list[str]:
    """All warnings except that about dependencies: the advice itself says what is assumed for them."""
    return [warning for warning in trials.window.warnings if "unknown_dependencies" not in warning]


def _source(words: list[str], *, of_programs: bool) -> str:
    line = shlex.join(words)
    if len(words) > 1:
        raise UsageError(f"{line}: put `--` before a program: pagelab advise -- {line}")
    if of_programs:
        raise UsageError(
            "--keep, --check, --stdout and the stretches of a recording are for programs: pagelab advise OPTIONS -- CMD"
        )
    file = Path(words[0])
    if file.is_file() and os.access(file, os.X_OK):
        own = line if "/" in line else f"./{line}"
        raise UsageError(f"{line} is a program; put `--` before it: pagelab advise -- {own}")
    return words[0]


@dataclass(frozen=True)
class _Advised:
    """The advice and its subject."""

    advice: "Advice"
    subject: "Subject"
    """The replayed source, which may be a sample."""
    owners: Sequence["Owner"]


def _advise(subject: "Subject", chosen: _Chosen) -> _Advised:
    """Replays a subject or a sample of it, and judges the remedies."""
    from pagelab.advice import Memory, advice_of, can_be_sampled, choose, owners_of, replay, sampled

    choice = choose(
        chosen.machine,
        chosen.kernel,
        nested=chosen.nested,
        cpu_model=subject.cpu_model,
        virtualised=subject.virtualised,
        observed=chosen.observed,
    )
    memory = Memory(Path(subject.source) if subject.cpu_model else None)
    limit, replayed = chosen.max_accesses, subject
    with ExitStack() as stack:
        bars = stack.enter_context(progress_bars(quiet=chosen.quiet))
        if can_be_sampled(subject, limit) and not chosen.whole:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagelab-")))
            replayed = sampled(subject, folder, choice.machine, limit, partial(bars, "sample") if bars else None)
            limit = None
        outlook = Outlook(bars, replayed.length.instructions if replayed.is_whole else None) if bars else None
        trials = replay(
            replayed.source,
            choice,
            max_accesses=limit,
            profile_all=chosen.reported,
            malloc_heap=memory.has_malloc_heap(),
            progress=outlook,
        )
    advice = advice_of(subject.name, trials, replayed.length)
    return _Advised(advice, replayed, owners_of(advice.mappings, memory))
