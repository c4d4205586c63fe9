"""`pagelab sweep`: many runs, with their results in one data set."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pagelab import sweep
from pagelab.cli.terminal import Quiet, print_table
from pagelab.output import MISSING_FOLDERS, ensure_ending
from pagelab.sweep.campaign import Watch
from pagelab.sweep.folder import Folder
from pagelab.sweep.plan import Planned, distinct, plan

_INTERVAL_SECONDS = 10.0


def command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="The runs to perform; docs/sweeps.md lists the keys.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help=f"Where to write results; default: named after the file. {MISSING_FOLDERS}",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of runs at the same time; default: one per CPU.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of this scheduler.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and whether each is done; run nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run all combinations of sources, systems, machines, settings and seeds that have no result yet.

    At the end it prints a table of the runs and their key figures.
    """
    if output:
        ensure_ending(output, "a folder of results")
    if dry_run:
        _list(file, output)
        return
    with _progress(quiet) as watch:
        summary = sweep.run(file, output, scheduler=scheduler, workers=workers, retry=retry, watch=watch)
    failed = f", {summary.failed} failed (in {summary.folder / 'failures'}; --retry tries them again)"
    _say(f"{summary.folder}: {summary.done} runs done, {summary.made} of them now{failed if summary.failed else ''}")
    if summary.done:
        # It takes data frames, which take longer to import than the command line to answer.
        from pagelab.sweep.outcome import outcome

        print_table(outcome(summary.folder))
    if summary.failed:
        raise typer.Exit(1)


def _list(file: Path, output: Path | None) -> None:
    asked, path = sweep.prepare(file, output)
    folder = Folder(path)
    for key, one in distinct(plan(asked)).items():
        state = "done" if folder.done(key) else "failed" if folder.failure(key) else "missing"
        print(f"{state:<8}{key}  {one.run}")


class _Told(Watch):
    """Prints each failure on a line above the progress."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say = say

    def planned(self, runs: int, done: int, failed: int, to_make: int) -> None:
        before = f", {failed} failed before" if failed else ""
        self.say(f"{runs} runs: {done} done{before}, {to_make} to make")
        self.begin(to_make)

    def begin(self, to_make: int) -> None:
        """This many runs will be performed."""

    def failed(self, one: Planned, error: str) -> None:
        self.say(f"failed: {one.run}: {error}")

    def again(self, one: Planned, error: str) -> None:
        self.say(f"tried again: {one.run}: {error}")


class _Bar(_Told):
    def __init__(self, progress: Progress) -> None:
        super().__init__(lambda line: progress.console.print(line, markup=False, highlight=False))
        self._progress = progress
        self._task = progress.add_task("runs", total=None)

    def begin(self, to_make: int) -> None:
        self._progress.update(self._task, total=to_make)

    def goes_on(self, ended: float) -> None:
        self._progress.update(self._task, completed=ended)


class _Lines(_Told):
    """A line every ten seconds, for files and pipes."""

    def __init__(self) -> None:
        super().__init__(_say)
        self._total, self._began, self._due = 0, time.monotonic(), time.monotonic() + _INTERVAL_SECONDS

    def begin(self, to_make: int) -> None:
        self._total, self._began = to_make, time.monotonic()

    def goes_on(self, ended: float) -> None:
        now = time.monotonic()
        if now < self._due or not ended:
            return
        self._due = now + _INTERVAL_SECONDS
        left = timedelta(seconds=round((self._total - ended) * (now - self._began) / ended))
        self.say(f"{int(ended)} of {self._total} runs, {left} left")


@contextmanager
def _progress(quiet: bool) -> Iterator[Watch]:
    if quiet:
        yield Watch()
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield _Bar(progress)
    else:
        yield _Lines()


def _say(line: str) -> None:
    # A single write, since runs end on their own threads.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
