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
    """A table of labels and values, without headings."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for label, text in rows:
        # A program's arguments are not markup.
        table.add_row(label, Text(text))
    return table


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Prints to standard output or error, without blanks at the ends of lines.

    Lines for a file or pipe may have any length.
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
    """Columns of standard output's terminal; for other outputs the value of COLUMNS, if set."""
    console = Console()
    if console.is_terminal:
        return console.width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"pagelab: warning: {' '.join(message.split())}", file=sys.stderr)


def complain(message: str) -> None:
    """One line on standard error, for an error after which output still matters."""
    print(f"pagelab: error: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def progress_bars(unit: str = "accesses", *, quiet: bool = False, hidden: bool = False) -> Iterator[Report | None]:
    """Yields a function to call with (name, done, total or none), or none if progress is not shown.

    On a terminal there is a bar for each name; elsewhere a line for each is written every ten seconds.

    Args:
        unit: The unit of the counts.
        quiet: Show nothing anywhere.
        hidden: Show nothing on a terminal.
    """
    if quiet or (hidden and sys.stderr.isatty()):
        yield None
    elif sys.stderr.isatty():
        with _bars(unit) as report:
            yield report
    else:
        yield Lines(unit).report


class _Begins:
    """Start times by name. Several replays of one system, one after the other, have the same name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int, int | None]] = {}

    def note(self, name: str, done: int, total: int | None, now: float) -> tuple[float, bool]:
        """The start time of the work with this progress, and whether this is its first report."""
        began, done_before, total_before = self._known.get(name, (now, done, total))
        has_ended = done_before == total_before and total != total_before
        is_new = name not in self._known or done < done_before or has_ended
        if is_new:
            began = now
        self._known[name] = began, done, total
        return began, is_new


class Lines:
    """Progress as lines on standard error, for files and pipes."""

    def __init__(self, unit: str, interval_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._interval, self._clock = unit, interval_seconds, clock
        self._begins = _Begins()
        self._due: dict[str, float] = {}

    def report(self, name: str, done: int, total: int | None) -> None:
        """Writes a line if the last one of `name` is an interval ago; never for the first report."""
        now = self._clock()
        began, is_new = self._begins.note(name, done, total, now)
        if is_new:
            self._due[name] = now + self._interval
        if now < self._due[name]:
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
        begins, tasks = _Begins(), dict[str, TaskID]()

        def report(name: str, done: int, total: int | None) -> None:
            now = time.monotonic()
            began, is_new = begins.note(name, done, total, now)
            if name not in tasks:
                # Square brackets in a name are not markup.
                tasks[name] = progress.add_task(escape(name), total=total)
            elif is_new:
                progress.reset(tasks[name], total=total)
            rate = done / max(now - began, 0.1)
            progress.update(tasks[name], completed=done, total=total, rate=rate)

        yield report


def _millions(done: int, total: int | None) -> str:
    whole = "" if total is None else f"/{total / 1e6:,.1f}"
    return f"{done / 1e6:,.1f}{whole} M"


class _Rate(ProgressColumn):
    """The finished amount, and the rate per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        done = _millions(int(task.completed), None if task.total is None else int(task.total))
        return Text(f"{done} {self._unit}  {task.fields.get('rate', 0) / 1e6:.1f} M/s", style="progress.data.speed")
