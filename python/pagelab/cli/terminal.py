"""Consoles, tables and progress bars."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
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


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Prints to standard output or error; a file or pipe gets lines as long as they need to be."""
    console = Console(highlight=False, stderr=stderr)
    if not console.is_terminal:
        needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
        console = Console(highlight=False, stderr=stderr, width=max(needed, 80))
    console.print(table)


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"pagelab: warning: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def progress_bars(*, hidden: bool = False) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Yields what to call with (name, done, total or none): a bar for each name, on a terminal only."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, tuple[TaskID, float]] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total), time.monotonic()
            task, started = tasks[name]
            seconds = max(time.monotonic() - started, 0.1)
            progress.update(task, completed=done, total=total, rate=done / seconds)

        yield report


class _Rate(ProgressColumn):
    """How many accesses have been replayed, and how many a second."""

    def render(self, task: Task) -> Text:
        millions = task.completed / 1e6
        whole = "" if task.total is None else f"/{task.total / 1e6:,.1f}"
        return Text(
            f"{millions:,.1f}{whole} M  {task.fields.get('rate', 0) / 1e6:.1f} M/s", style="progress.data.speed"
        )
