"""`pagelab record`: runs a program and records its memory accesses, or its page faults."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pagelab import _engine
from pagelab.capture.recorder import Program, Recording, byte_limit, record
from pagelab.capture.stretches import Stretches
from pagelab.cli.recording_cost import cost, estimate
from pagelab.cli.stretches import Follow, Skip, StartAt, StartOnSignal, StopAt, Windows, stretches_of
from pagelab.cli.terminal import Quiet, Report, progress_bars, warn
from pagelab.output import MISSING_FOLDERS, ensure_ending
from pagelab.quantities import count

MAX_IDLE_SECONDS = 60.0
_STDOUT = 1
"""File descriptor of standard output, which programs inherit"""


def command(
    program: Annotated[list[str], typer.Argument(metavar="CMD…", help="The program and its arguments, after `--`.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME.trace",
            help=f"The trace to write; default: named after the program. {MISSING_FOLDERS}",
        ),
    ] = None,
    max_accesses: Annotated[
        str | None, typer.Option("--max-accesses", metavar="N", help="Stop the program after N accesses.")
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes", metavar="SIZE", help="Stop the program when the trace reaches this size, such as 2GB."
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="N", help="Stop the program after N seconds of wall time."),
    ] = None,
    max_idle: Annotated[
        float,
        typer.Option(
            "--max-idle",
            metavar="N",
            help="When the program has ended: stop its remaining processes after N seconds without activity.",
        ),
    ] = MAX_IDLE_SECONDS,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing trace. It is kept until the new one is complete.")
    ] = False,
    anonymous: Annotated[
        bool,
        typer.Option("--anonymous", help="Replace file names by numbers; omit arguments and notes."),
    ] = False,
    stacks: Annotated[
        bool,
        typer.Option("--stacks", help="Record call stacks, and which call allocated which memory."),
    ] = False,
    max_threads: Annotated[
        int | None,
        typer.Option(
            "--max-threads",
            metavar="N",
            min=1,
            max=10_000,
            help="Maximum number of threads per process; default 2000.",
        ),
    ] = None,
    single_step: Annotated[
        bool,
        typer.Option(
            "--single-step",
            help="Run natively, instruction by instruction: for what Valgrind cannot run, such as AVX-512. Very slow.",
        ),
    ] = False,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Run natively under perf and record the times of page faults, into NAME.faults."),
    ] = False,
    skip: Skip = None,
    windows: Windows = None,
    start_at: StartAt = None,
    stop_at: StopAt = None,
    start_on_signal: StartOnSignal = False,
    follow: Follow = None,
    dependencies: Annotated[
        bool,
        typer.Option(
            "--dependencies/--no-dependencies",
            help="Record branches, and which load each address comes from; core models with a window need them.",
        ),
    ] = True,
    quiet: Quiet = False,
) -> None:
    """Run any x86-64 Linux program and record its memory accesses.

    The exit status is the program's, or 0 if --max-accesses, --max-bytes or --max-seconds ended it. It is 1 if the
    recorder gave up and ended it.
    """
    if output and output.suffix == (".trace" if faults else ".faults"):
        kinds = ("a fault trace, NAME.faults", "with") if faults else ("a trace of accesses, NAME.trace", "without")
        raise _engine.UsageError(f"{output}: {kinds[1]} --faults a recording is {kinds[0]}")
    if output:
        ensure_ending(output, "a fault trace" if faults else "a trace")
    stretches = stretches_of(skip, windows, start_at, stop_at, start_on_signal=start_on_signal)
    if faults:
        if follow is not None:
            raise _engine.UsageError("--follow is not possible with --faults, which records all children")
        if stretches is not None:
            raise _engine.UsageError(
                "--faults records a whole program natively; leave out --skip, --windows, --start-at, --stop-at and "
                "--start-on-signal"
            )
        if max_accesses is not None:
            raise _engine.UsageError("--max-accesses is not possible with --faults, which records no accesses")
        of_accesses = {
            "--max-bytes": max_bytes,
            "--max-seconds": max_seconds,
            "--max-idle": max_idle != MAX_IDLE_SECONDS,
            "--force": force,
            "--anonymous": anonymous,
            "--stacks": stacks,
            "--single-step": single_step,
        }
        for option in (option for option, value in of_accesses.items() if value):
            raise _engine.UsageError(f"{option} is not possible with --faults; leave one out")
        end_as(_record_faults(output or Path(f"{Path(program[0]).name}.faults"), program, quiet=quiet))
        return
    trace = output or Path(f"{Path(program[0]).name}.trace")
    limit = count("--max-accesses", max_accesses, least=1)
    bounds = Bounds(limit, byte_limit("--max-bytes", max_bytes), max_seconds, max_idle)
    recording = record_to(
        trace,
        program,
        bounds,
        max_threads,
        stretches,
        follow,
        dependencies=dependencies,
        force=force,
        anonymous=anonymous,
        call_stacks=stacks,
        single_step=single_step,
        quiet=quiet,
        outlook=None if quiet else f"{trace}: {estimate(trace, stretches, bounds.max_bytes, single_step=single_step)}",
    ).recording
    if not quiet:
        print(f"{trace}: {cost(recording)}", file=sys.stderr)
    end_as_recorded(recording)


def end_as(exit_code: int) -> None:
    """Ends as the program did."""
    if exit_code:
        warn(f"the program ended with status {exit_code}")
        sys.exit(exit_code)


def end_as_recorded(program: Program) -> None:
    """Ends as a recorded program did, or as one that a limit or the recorder ended."""
    if program.gave_up:
        # The losses, which are shown before, give the reason.
        sys.exit(program.status)
    end_as(program.status)


def _record_faults(trace: Path, program: list[str], *, quiet: bool) -> int:
    """Records faults and says what came of it, on standard error. The answer is the program's exit status."""
    from pagelab.faults.recorder import record_faults

    report = None if quiet else partial(print, file=sys.stderr)
    with ExitStack() as stack:
        # Until the program starts, Ctrl-C ends us.
        begins = partial(stack.enter_context, interrupts_for_the_program())
        recording = record_faults(program, trace, report=report, begins=begins)
    for note in recording.notes:
        print(f"note: {note}", file=sys.stderr)
    if recording.lost:
        warn(f"perf lost {recording.lost:,} events; the trace notes it")
    parts = (
        f"{recording.faults:,} faults",
        f"{recording.processes} process{'es' * (recording.processes != 1)}",
        f"{recording.threads} thread{'s' * (recording.threads != 1)}",
        f"{recording.seconds:.2f} s ({recording.cpu_seconds:.2f} s of CPU time)",
        f"{recording.latency_ns} ns per fault",
        f"{recording.recording_cost_ns} ns more while recorded",
    )
    print(f"{trace}: {', '.join(parts)}", file=sys.stderr)
    return recording.exit_code


@dataclass(frozen=True)
class Bounds:
    """What ends a recording before its program."""

    max_accesses: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    max_idle_seconds: float = MAX_IDLE_SECONDS


@dataclass(frozen=True)
class Recorded:
    """A recording, and how it ended."""

    recording: Recording
    interrupted: bool
    """Whether Ctrl-C was pressed meanwhile."""


def record_to(
    trace: Path,
    program: list[str],
    bounds: Bounds,
    max_threads: int | None = None,
    stretches: Stretches | None = None,
    follow: str | None = None,
    *,
    dependencies: bool = True,
    force: bool = False,
    anonymous: bool = False,
    call_stacks: bool = False,
    single_step: bool = False,
    quiet: bool = False,
    stdout: Path | None = None,
    name: str | None = None,
    outlook: str | None = None,
) -> Recorded:
    """Records and says what came of it, on standard error.

    Args:
        stdout: Where the program's output goes; to ours unless given.
        outlook: A line on what it will cost, said once the program runs: what cannot be recorded costs nothing.
        name: What the recording is called there; its path unless given, and nothing is said if it is empty.
    """
    name = str(trace) if name is None else name
    with ExitStack() as stack:
        stack.enter_context(_standard_output_to(stdout))
        interrupts = stack.enter_context(interrupts_for_the_program())
        # A progress bar would write into what a program shows on the terminal.
        bars = stack.enter_context(progress_bars(quiet=quiet, hidden=os.isatty(_STDOUT)))
        report = _report(bars, trace.name, bounds.max_accesses, outlook) if bars or outlook else None
        recording = record(
            program,
            trace,
            max_accesses=bounds.max_accesses,
            max_bytes=bounds.max_bytes,
            max_seconds=bounds.max_seconds,
            max_idle_seconds=bounds.max_idle_seconds,
            max_threads=max_threads,
            stretches=stretches,
            follow=follow,
            dependencies=dependencies,
            force=force,
            anonymous=anonymous,
            call_stacks=call_stacks,
            single_step=single_step,
            progress=report,
        )
    for loss in recording.losses:
        warn(f"the trace is incomplete: {loss}")
    if recording.needs_single_steps:
        warn("--single-step runs what Valgrind cannot, natively, but takes about 23 s per million instructions")
    for note in recording.notes:
        warn(note)
    parts = (
        f"{recording.accesses:,} accesses",
        f"{recording.processes} process{'es' * (recording.processes != 1)}",
        f"{recording.threads} thread{'s' * (recording.threads != 1)}",
        f"{recording.size_bytes / max(recording.accesses, 1):.2f} bytes per access",
        f"{recording.elapsed_seconds:.1f} s",
    )
    if recording.truncated_by is not None:
        warn(
            f"{recording.truncated_by} stopped the program after {recording.accesses:,} accesses; the trace is "
            "complete up to there"
        )
    if name:
        print(f"{name}: {', '.join(parts)}", file=sys.stderr)
        if recording.stretches is not None:
            print(f"{name}: {recording.stretches.describe()}", file=sys.stderr)
    return Recorded(recording, bool(interrupts))


def _report(bars: Report | None, name: str, most: int | None, outlook: str | None) -> Callable[[int], None]:
    """Tells how far a recording is, after what it will cost."""
    lines = [outlook] if outlook else []

    def report(accesses: int) -> None:
        if accesses and lines:
            print(lines.pop(), file=sys.stderr)
        if bars:
            bars(name, accesses, most)

    return report


@contextmanager
def _standard_output_to(file: Path | None) -> Iterator[None]:
    """What is started meanwhile writes to a file instead of our standard output, unless there is none."""
    if file is None:
        yield
        return
    sys.stdout.flush()
    with file.open("wb") as opened:
        ours = os.dup(_STDOUT)
        os.dup2(opened.fileno(), _STDOUT)
    try:
        yield
    finally:
        os.dup2(ours, _STDOUT)
        os.close(ours)


@contextmanager
def interrupts_for_the_program() -> Iterator[list[bool]]:
    """Ctrl-C ends the program, not us: what it did until then makes a whole trace. There is an item for each Ctrl-C."""
    interrupted: list[bool] = []
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # As in the background of a script: the program inherits it.
        yield interrupted
        return
    previous = signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    try:
        yield interrupted
    except _engine.PagelabError:
        # Before the program runs, an interrupt ends the compiler, and there is nothing to keep.
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
