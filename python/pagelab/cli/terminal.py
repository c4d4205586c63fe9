"""Consoles, tables and progress bars."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

Report: TypeAlias = Callable[[str, int, int | None], None]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """A table of labels and what they stand for, without headings."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for label, text in rows:
        # What a program was called with is no markup.
        table.add_row(label, Text(text))
    return table


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Prints to standard output or error, without blanks at the ends of lines.

    A file or pipe gets lines as long as they need to be.
    """
    console = Console(highlight=False, stderr=stderr)
    if not console.is_terminal:
        needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
        console = Console(highlight=False, stderr=stderr, width=max(needed, 80))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip(), file=console.file)


def output_width() -> int | None:
    """Columns of the terminal that standard output is; of another output what COLUMNS says, if anything."""
    console = Console()
    if console.is_terminal:
        return console.width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"pagelab: warning: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def progress_bars(unit: str = "accesses", *, quiet: bool = False, hidden: bool = False) -> Iterator[Report | None]:
    """Yields what to call with (name, done, total or none), or none if nobody wants to see it.

    On a terminal there is a bar for each name; elsewhere a line for each is written every ten seconds.

    Args:
        unit: What is counted.
        quiet: Nothing is shown anywhere.
        hidden: Nothing is shown on a terminal.
    """
    if quiet or (hidden and sys.stderr.isatty()):
        yield None
    elif sys.stderr.isatty():
        with _bars(unit) as report:
            yield report
    else:
        yield Lines(unit).report


class Lines:
    """Progress as lines on standard error, for files and pipes."""

    def __init__(self, unit: str, interval_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._interval, self._clock = unit, interval_seconds, clock
        self._began: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._before: dict[str, tuple[int, int | None]] = {}

    def report(self, name: str, done: int, total: int | None) -> None:
        """Writes a line if the last one of `name` is an interval ago, which the first one never is.

        There may be several of one name, one after the other.
        """
        now = self._clock()
        if _begins_anew(self._before.get(name), done, total):
            del self._began[name], self._due[name]
        self._before[name] = done, total
        began = self._began.setdefault(name, now)
        if now < self._due.setdefault(name, now + self._interval):
            return
        self._due[name] = now + self._interval
        rate = done / (now - began)
        text = f"{name}: {_millions(done, total)} {self._unit}, {rate / 1e6:.1f} M/s"
        if total is not None and rate:
            left = timedelta(seconds=round(max(total - done, 0) / rate))
            text = f"{text}, {100 * done / max(total, 1):.0f} %, {left} left"
        print(text, file=sys.stderr, flush=True)


@contextmanager
def _bars(unit: str) -> Iterator[Report]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, tuple[TaskID, float]] = {}
        before: dict[str, tuple[int, int | None]] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                # Square brackets in a name are no markup.
                tasks[name] = progress.add_task(escape(name), total=total), time.monotonic()
            task, started = tasks[name]
            if _begins_anew(before.get(name), done, total):
                progress.reset(task, total=total)
                tasks[name] = task, (started := time.monotonic())
            before[name] = done, total
            seconds = max(time.monotonic() - started, 0.1)
            progress.update(task, completed=done, total=total, rate=done / seconds)

        yield report


def _begins_anew(before: tuple[int, int | None] | None, done: int, total: int | None) -> bool:
    """Whether what has done so much is another one than what was reported before under its name."""
    if before is None:
        return False
    done_before, total_before = before
    return done < done_before or (done_before == total_before != total)


def _millions(done: int, total: int | None) -> str:
    whole = "" if total is None else f"/{total / 1e6:,.1f}"
    return f"{done / 1e6:,.1f}{whole} M"


class _Rate(ProgressColumn):
    """How much has been done, and how much a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        done = _millions(int(task.completed), None if task.total is None else int(task.total))
        return Text(f"{done} {self._unit}  {task.fields.get('rate', 0) / 1e6:.1f} M/s", style="progress.data.speed")
