"""`pagelab reproduce`: measures a paper's results again."""

import difflib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import pagelab
from pagelab.cli.terminal import facts, print_table, warn
from pagelab.output import MISSING_FOLDERS, ensure_ending
from pagelab_studies import REPRODUCTIONS, kept, report, study
from pagelab_studies import budget as estimate

# Default budget of a study.
BUDGET_MINUTES = 20.0


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help=f"One of: {', '.join(REPRODUCTIONS)}. Without it, a list.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help=f"Where to write the report; default: NAME. {MISSING_FOLDERS}"
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="MINUTES",
            min=0.1,
            show_default=f"{BUDGET_MINUTES:g}",
            help="Approximate time for all runs, in minutes.",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=10.0, help="Length of the windows as a multiple of the nominal length, instead of a budget."
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="SPEC[@CPUS]",
            help="A co-runner, such as a recorded program, where the paper has co-runners; repeatable.",
        ),
    ] = None,
    programs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with recordings of programs like the paper's, made by examples/programs/record.py.",
        ),
    ] = None,
    beyond: Annotated[bool, typer.Option(help="Also run what the shipped results lack: other designs.")] = False,
) -> None:
    """Reproduce a paper's figures and write them next to the published ones: report, pictures, JSON."""
    if name is None:
        print_table(facts((name, known.title) for name, known in REPRODUCTIONS.items()))
        return
    if name not in REPRODUCTIONS:
        near = difflib.get_close_matches(name, REPRODUCTIONS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise pagelab.UsageError(f"unknown reproduction {name!r}; {meant}known are {', '.join(REPRODUCTIONS)}")
    reproduction = REPRODUCTIONS[name]

    if beyond and not any(run.beyond for run in reproduction.runs()):
        raise pagelab.UsageError(f"{name} has no runs beyond the shipped results: omit --beyond")
    there = _recordings(reproduction, programs)

    def only(run: study.Run) -> bool:
        return (beyond or not run.beyond) and (run.recording is None or run.recording in there)

    if with_ and not any(run.beside for run in reproduction.runs()):
        raise pagelab.UsageError(f"{name} has no co-runners: omit --with")
    if scale is not None and budget is not None:
        raise pagelab.UsageError(
            f"--scale {scale:g} sets the length of the windows, and so would --budget {budget:g}: give only one of "
            "them, "
            "--budget for windows that fit the time"
        )
    folder = output or Path(name)
    ensure_ending(folder, "a folder of results")
    before = kept.earlier_request(folder)
    speed = estimate.pilot()
    if scale is None and before and (budget is None or kept.finished(folder)):
        scale = before.scale
        if budget is not None:
            warn(f"{folder} was begun at scale {scale:g} and continues with it, so --budget has no effect: omit it")
    elif scale is None:
        planned = [run for run in reproduction.runs() if only(run)]
        if budget is not None:
            scale = estimate.choose_scale(reproduction, planned, budget, speed)
        else:
            scale, needed = estimate.default_scale(reproduction, planned, BUDGET_MINUTES, speed)
            if needed > BUDGET_MINUTES:
                warn(
                    f"{name} takes about {estimate.duration(60 * needed)} here with the shortest windows, and "
                    f"the default budget is {BUDGET_MINUTES:g} min; Ctrl-C keeps finished runs, and the same command "
                    "continues"
                )
    store = kept.Kept(
        folder,
        kept.StudyRequest(name, pagelab.__version__, kept.build(), scale, tuple(with_ or ()), str(programs or "")),
    )
    print(f"{reproduction.title}: windows at scale {scale:g}", file=sys.stderr)
    if store.count:
        print(f"{folder}: {store.count} finished runs exist and are not repeated", file=sys.stderr)

    watch = _Lines(estimate.TimeLeft(reproduction, scale, speed))
    try:
        measured = study.measure(reproduction, scale, only, watch, with_ or (), store, programs)
    except study.InterruptedStudyError as interrupted:
        measured = interrupted.measured
        report.write(folder, reproduction, scale, measured, study.evaluate(reproduction, measured), pictures=False)
        print(
            f"{folder}: {len(measured.all())} runs and their report are kept; the same command continues from there",
            file=sys.stderr,
        )
        raise
    findings = study.evaluate(reproduction, measured)
    files = report.write(folder, reproduction, scale, measured, findings)
    print_table(_claims(findings))
    if not any(path.suffix == ".svg" for path in files):
        warn("no pictures: matplotlib is not installed (pip install 'pagelab[pictures]')")
    print(f"{folder}: {', '.join(path.name for path in files)}", file=sys.stderr)


def _recordings(reproduction: study.Reproduction, folder: Path | None) -> set[str]:
    """The existing recordings of a reproduction.

        Raises:
    UsageError: it needs recordings, and none exists.
    """
    if folder and not folder.is_dir():
        raise pagelab.UsageError(f"--programs {folder}: there is no such folder")
    wanted = list(dict.fromkeys(run.recording for run in reproduction.runs() if run.recording))
    there = {name for name in wanted if folder and (folder / name).exists()}
    makes_them = "examples/programs/record.py makes them"
    if wanted and not there:
        where = f"{folder} has none of its recordings" if folder else "name their folder with --programs"
        raise pagelab.UsageError(f"{reproduction.name} needs recordings of programs: {where}; {makes_them}")
    if missing := [name for name in wanted if name not in there]:
        warn(f"{folder} has no {', '.join(missing)}, so figures that need them are omitted; {makes_them}")
    if folder and not wanted:
        raise pagelab.UsageError(f"{reproduction.name} replays no recordings: omit --programs")
    return there


class _Lines(study.Watch):
    """Prints a line when a run begins or ends, with the time that the others take."""

    def __init__(self, left: estimate.TimeLeft, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock = left, clock
        self._begun: dict[study.Run, float] = {}

    def planned(self, runs: Sequence[study.Run]) -> None:
        self._left.planned(runs)
        if runs:
            _say(f"{len(runs)} runs to make, about {estimate.duration(self._left.seconds)}")

    def begins(self, run: study.Run) -> None:
        self._begun[run] = self._clock()
        _say(f"begins: {_name(run)}")

    def goes_on(self, run: study.Run, accesses: int) -> None:
        self._left.goes_on(run, accesses)

    def ended(self, run: study.Run, so_far: int, total: int) -> None:
        self._left.ended(run)
        took = estimate.duration(self._clock() - self._begun[run])
        left = f"; about {estimate.duration(self._left.seconds)} left" if so_far < total else ""
        _say(f"[{so_far}/{total}] {_name(run)}: {took}{left}")


def _name(run: study.Run) -> str:
    label = f" ({run.label})" if run.label else ""
    return f"{run.workload} on {run.system}{label}, seed {run.seed}"


def _say(line: str) -> None:
    # A single write, since runs begin on their own threads.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _claims(findings: study.Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("figure", "the paper says", "here", "measured"):
        table.add_column(title)
    for claim in findings.claims:
        table.add_row(claim.figure, claim.text, report.VERDICTS[claim.holds].strip("*"), claim.detail)
    return table
