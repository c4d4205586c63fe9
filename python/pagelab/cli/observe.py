"""`pagelab observe`: what the memory of a running program does, at native speed."""

import json as json_format
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import _engine
from pagelab.capture.program_exit import SIGNALLED
from pagelab.cli import command as base
from pagelab.cli.interrupts import deferred_interrupts, interrupts_for_the_program
from pagelab.cli.run import Json
from pagelab.cli.terminal import warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically

# They take numpy, which takes longer to import than the command line to answer.
if TYPE_CHECKING:
    from pagelab.observe.conclusions import Conclusions
    from pagelab.observe.observation import Settings
    from pagelab.observe.targets import Target
    from pagelab.observe.trial import Trial

_SECONDS = 30.0


@dataclass(frozen=True)
class Outputs:
    """Where results go, beside the page of the terminal."""

    json: str | None
    """`-`: instead of that page"""
    document: Path | None
    report: Path | None
    samples: Path | None

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.document, self.report, self.samples) if path]

    def numbered(self, number: int) -> "Outputs":
        """The names of a part of a long observation: `seen-0001.json` for `seen.json`."""

        def name(path: Path | None) -> Path | None:
            return path and path.with_name(f"{path.stem}-{number:04}{path.suffix}")

        return Outputs(self.json, name(self.document), name(self.report), name(self.samples))

    def remove(self) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)

    def ensure(self) -> None:
        """Refuses names that cannot be written, before anything is observed."""
        files = ((self.document, "JSON"), (self.report, "HTML"), (self.samples, "Parquet"))
        ensure_apart(*(path for path, _ in files if path))
        for path, content in files:
            if path:
                ensure_ending(path, content)
                ensure_writable(path)


@dataclass(frozen=True)
class Rotation:
    """Parts of a long observation."""

    seconds: float
    keep: int | None
    """How many outputs stay; none: all"""

    def ensure(self, outputs: Outputs, trial: Sequence[str] | None) -> None:
        """Refuses what does not go with it."""
        if not any((outputs.document, outputs.report, outputs.samples)):
            raise _engine.UsageError("--rotate writes files: give --json FILE, --report or --samples")
        if trial:
            raise _engine.UsageError("--rotate and --try do not go together")


class Command(base.Command):
    """A command that reads options after PIDs, too; what follows the name of a program belongs to the program."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        options, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = list(options.get("target") or [])
        ctx.allow_interspersed_args = bool(words) and words[0].isdecimal()
        return super().parse_args(ctx, args)


def command(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PID… | -- CMD…", help="Processes, with their children, or a program to run with its arguments."
        ),
    ] = None,
    cgroup: Annotated[
        str | None,
        typer.Option(
            "--cgroup",
            metavar="NAME",
            help="Observe the processes of a control group: its path, or its last part, such as nginx.service.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            "-t",
            min=0.1,
            max=864_000,
            help=f"How long to observe; default: {_SECONDS:.0f}, or until the end of a program that is run.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", "-i", metavar="SECONDS", min=0.05, max=3600, help="Time between two looks at the memory."
        ),
    ] = 1.0,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="PERCENT",
            help="Bound on the CPU time that observing takes, of that of the program; it samples less to keep it.",
        ),
    ] = "2%",
    referenced: Annotated[
        bool,
        typer.Option(
            "--referenced/--no-referenced",
            help="Clear accessed bits to see which memory is used. This flushes TLBs and changes what reclaim takes.",
        ),
    ] = True,
    idle_pages: Annotated[
        bool,
        typer.Option(
            "--idle-pages",
            help="See which memory is used by the kernel's idle page tracking, which reclaim does not notice.",
        ),
    ] = False,
    damon: Annotated[
        bool,
        typer.Option(
            "--damon", help="Let the kernel's DAMON see which addresses of the process are used; for one PID."
        ),
    ] = False,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="worth|ADDRESS",
            help="Then make huge pages of these mappings (MADV_COLLAPSE; not undone), observe for the same time again, "
            "and compare; repeatable.",
        ),
    ] = None,
    rotate: Annotated[
        float | None,
        typer.Option(
            "--rotate",
            metavar="SECONDS",
            min=1,
            max=864_000,
            help="For runs of hours: write the outputs, with a number in their names, and begin anew each time that so "
            "many seconds are over.",
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Remove all but the last N outputs.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show what is known meanwhile, on the terminal of standard error.")
    ] = False,
    json: Json = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help=f"Write a page with charts. {MISSING_FOLDERS}")
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FILE.parquet", help="Write the sampled faults, a row each."),
    ] = None,
) -> None:
    """Observe a running program at native speed: memory, faults and their cost, and what is worth a recording.

    No process is stopped, and nothing is left behind. Ctrl-C prints what is known until then. The exit status is that
    of the program that was run.
    """
    outputs = Outputs(json, Path(json) if json not in (None, "-") else None, report, samples)
    outputs.ensure()
    if keep is not None and rotate is None:
        raise _engine.UsageError("--keep is for --rotate")
    rotation = Rotation(rotate, keep) if rotate is not None else None
    if rotation:
        rotation.ensure(outputs, try_)
    if live and rotation:
        raise _engine.UsageError("--live and --rotate do not go together")
    wanted = try_ or []
    if wanted:
        from pagelab.observe.collapse import ensure_valid

        ensure_valid(wanted)
    if idle_pages and not referenced:
        raise _engine.UsageError("--idle-pages and --no-referenced do not go together")
    if damon and (cgroup is not None or target is None or len(target) != 1 or not target[0].isdecimal()):
        raise _engine.UsageError("--damon monitors one running process: give one PID")
    share = _share(budget)
    words = target or []
    if bool(words) == (cgroup is not None):
        raise _engine.UsageError("name what to observe: PIDs, or --cgroup NAME, or a program after --")
    if words and words[0].isdecimal() and (wrong := [word for word in words if not word.isdecimal()]):
        raise _engine.UsageError(f"this is not the number of a process: {wrong[0]}")

    from pagelab.observe.observation import Settings

    if cgroup is not None or all(word.isdecimal() for word in words):
        settings = Settings(_SECONDS if seconds is None else seconds, interval, share, referenced, idle_pages, damon)
        _observe_running(words, cgroup, settings, outputs, wanted, rotation, live)
    elif wanted or rotation or live:
        option = "--try" if wanted else "--rotate" if rotation else "--live"
        raise _engine.UsageError(f"{option} is for running processes: give PIDs or --cgroup")
    else:
        _observe_program(words, Settings(seconds, interval, share, referenced, idle_pages), outputs)


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if not 0.0005 <= share <= 1.0:
        raise _engine.UsageError(f"--budget takes a percentage from 0.05% to 100%, such as 2%, not {text!r}")
    return share


def _observe_running(
    words: Sequence[str],
    cgroup: str | None,
    settings: "Settings",
    outputs: Outputs,
    wanted: Sequence[str],
    rotation: Rotation | None,
    live: bool,
) -> None:
    from pagelab.observe.conclusions import conclude
    from pagelab.observe.groups import group_named
    from pagelab.observe.observation import observe
    from pagelab.observe.recipe import command_of
    from pagelab.observe.targets import Members, Processes

    numbers = list(dict.fromkeys(map(int, words)))

    def target() -> "Target":
        return Members(group_named(cgroup)) if cgroup is not None else Processes(numbers)

    chosen = target()
    if wanted:
        from pagelab.observe.collapse import ensure_mapped

        ensure_mapped(wanted, chosen.members())
    program = command_of(numbers[0]) if len(numbers) == 1 else None
    if rotation:
        _observe_in_parts(target, chosen.title, settings, outputs, rotation, program)
        return
    until = f"{chosen.title} for {settings.seconds:g} s; Ctrl-C ends it and prints what is known"

    def begins() -> None:
        print(f"observing {until}", file=sys.stderr, flush=True)

    if live:
        from pagelab.observe.live import live_view

        with live_view() as shown:
            observation = observe(chosen, settings, watch=shown.show)
    else:
        observation = observe(chosen, settings, begins)
    conclusions = conclude(observation, program)
    if not wanted:
        _write(conclusions, outputs)
        return
    from pagelab.observe.trial import Trial, lines

    print(f"making huge pages, and observing {until}", file=sys.stderr, flush=True)
    trial = Trial.make(conclusions, wanted, lambda: conclude(observe(target(), settings), program))
    _write(trial.after, outputs, trial=trial)
    if outputs.json != "-":
        print("\n".join(["", *lines(trial)]), flush=True)


def _observe_in_parts(
    target: Callable[[], "Target"],
    title: str,
    settings: "Settings",
    outputs: Outputs,
    rotation: Rotation,
    program: Sequence[str] | None,
) -> None:
    """Observations one after the other, each with files of its own, so that memory and files are bounded."""
    from pagelab.host.contiguity import ProcessEndedError
    from pagelab.observe.conclusions import conclude
    from pagelab.observe.observation import observe

    begin, number = time.monotonic(), 0
    total = settings.seconds or _SECONDS
    print(f"observing {title} for {total:g} s, in parts of {rotation.seconds:g} s", file=sys.stderr, flush=True)
    # Ctrl-C between two parts.
    with suppress(KeyboardInterrupt):
        while (left := total - (time.monotonic() - begin)) > 0.1:
            try:
                observation = observe(target(), replace(settings, seconds=min(rotation.seconds, left)))
            except (ProcessEndedError, _engine.UsageError):
                if number:
                    return
                raise
            number += 1
            # A part that was observed is written whole.
            with deferred_interrupts() as interrupts:
                conclusions = conclude(observation, program)
                _write_files(conclusions, outputs.numbered(number), _document(conclusions) if outputs.document else "")
                if rotation.keep and number > rotation.keep:
                    outputs.numbered(number - rotation.keep).remove()
                at = f"{time.strftime('%Y-%m-%d %H:%M:%S')}, part {number}"
                print(f"{at}: {conclusions.kind.value}: {conclusions.reason}", flush=True)
            if observation.ended or observation.interrupted or interrupts.pressed:
                return


def _observe_program(words: Sequence[str], settings: "Settings", outputs: Outputs) -> None:
    from pagelab.observe.conclusions import conclude
    from pagelab.observe.observation import observe
    from pagelab.observe.targets import Program

    program = Program(words)
    try:
        observation = observe(program, settings)
        with interrupts_for_the_program():
            # Standard output is the program's.
            _write(conclude(observation, words), outputs, stderr=True)
            if not observation.ended:
                warn(f"the program goes on; this command ends with it (process {program.pid})")
            status = program.finish()
    except BaseException:
        program.kill()
        raise
    if status:
        warn(f"the program ended with status {status if status > 0 else SIGNALLED - status}")
        sys.exit(status if status > 0 else SIGNALLED - status)


def _write(conclusions: "Conclusions", outputs: Outputs, *, stderr: bool = False, trial: "Trial | None" = None) -> None:
    from pagelab.observe.page import page

    text = _document(conclusions, trial) if outputs.json else ""
    _write_files(conclusions, outputs, text)
    if outputs.json == "-":
        print(text, end="", flush=True)
    else:
        print(page(conclusions), file=sys.stderr if stderr else sys.stdout, flush=True)


def _document(conclusions: "Conclusions", trial: "Trial | None" = None) -> str:
    from pagelab.observe.document import document

    figures = document(conclusions) | ({"trial": trial.document()} if trial else {})
    return json_format.dumps(figures, indent=2) + "\n"


def _write_files(conclusions: "Conclusions", outputs: Outputs, text: str) -> None:
    if outputs.document:
        write_atomically(outputs.document, text)
    if outputs.samples:
        write_atomically(outputs.samples, conclusions.observation.log.parquet(conclusions.names))
    if outputs.report:
        from pagelab.observe.report import render

        write_atomically(outputs.report, render(conclusions))
