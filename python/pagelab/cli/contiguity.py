"""`pagelab contiguity`: how contiguous the pages of a real process are."""

import json as json_format
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pagelab import _engine
from pagelab.capture.program_exit import SIGNALLED
from pagelab.cli.interrupts import interrupts_for_the_program
from pagelab.cli.run import Json
from pagelab.cli.terminal import print_table, warn
from pagelab.inherited import leave_to_programs
from pagelab.output import ensure_ending, ensure_writable, write_atomically

# It takes numpy, which takes longer to import than the command line to answer: only what measures does.
if TYPE_CHECKING:
    from pagelab.host.contiguity import Measurement, Spread

_ROWS = {
    "groups": "groups of 8 pages",
    "pte_lines_per_group": "  lines of PTEs per group",
    "full_groups": "full groups",
    "full_share": "  of all groups",
    "contiguous_groups": "contiguous groups",
    "contiguous_share": "  of the full ones",
    "pages": "pages in memory",
    "large_pages": "  large pages of 2 MiB",
    "zero_pages": "pages that are the zero page",
    "swapped_pages": "pages in swap",
}


def command(
    target: Annotated[
        list[str], typer.Argument(metavar="PID | -- CMD…", help="A process, or a program to run with its arguments.")
    ],
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            "-n",
            min=1,
            help="How often to measure a process; default: 1. A program is measured until it ends.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", "-i", metavar="SECONDS", min=0.001, max=86_400, help="Time between two measurements."
        ),
    ] = 1.0,
    json: Json = None,
) -> None:
    """Measure the contiguity of a real process's pages: cache lines of PTEs per group of eight pages.

    Needs root, because the kernel hides frame numbers from other users. The exit status is the program's.
    """
    destination = Path(json) if json not in (None, "-") else None
    if destination:
        ensure_ending(destination, "JSON")
        ensure_writable(destination)
    status = 0
    if len(target) == 1 and target[0].isdecimal():
        measurement = _attach(int(target[0]), repeats or 1, interval)
        place = sys.stdout
    elif repeats is not None:
        raise _engine.UsageError("--repeats is for a running process; a program is measured until it ends")
    else:
        measurement, status = _run(target, interval)
        # Standard output is the program's.
        place = sys.stderr
    text = json_format.dumps(measurement.to_dict(), indent=2) + "\n"
    if destination:
        write_atomically(destination, text)
    if json == "-":
        print(text, end="")
    else:
        looks = f"{len(measurement.samples)} measurement{'s' * (len(measurement.samples) != 1)}"
        print(f"process {measurement.pid} ({measurement.name}), {looks}\n", file=place)
        print_table(_table(measurement), stderr=place is sys.stderr)
    if not measurement.huge_zero_known:
        warn("/proc/kpageflags cannot be read: large pages of zeros count as the process's own")
    _pass_on(status)


def _attach(pid: int, repeats: int, interval: float) -> "Measurement":
    from pagelab.host import contiguity

    with contiguity.Process(pid) as process:
        measurement = contiguity.watch(process, interval, repeats=repeats)
    if len(measurement.samples) < repeats:
        warn(f"process {pid} ended after {len(measurement.samples)} of {repeats} measurements")
    return measurement


def _run(command: Sequence[str], interval: float) -> "tuple[Measurement, int]":
    """Runs a program and measures it until it ends; also returns its exit status, as a shell does."""
    from pagelab.host import contiguity

    # Before anything runs in vain.
    zero_frame = contiguity.find_zero_frame()
    with interrupts_for_the_program():
        leave_to_programs()
        try:
            program = subprocess.Popen(command, close_fds=False)
        except OSError as error:
            raise _engine.UsageError(f"{command[0]}: {error.strerror}") from None

        def goes_on(seconds: float) -> bool:
            try:
                program.wait(seconds)
            except subprocess.TimeoutExpired:
                return True
            return False

        try:
            with contiguity.Process(program.pid, zero_frame=zero_frame) as process:
                measurement = contiguity.watch(process, interval, at_once=False, pause=goes_on)
        except contiguity.ProcessEndedError:
            message = (
                f"{command[0]} ended within {interval:g} s, before the first measurement: give a shorter --interval"
            )
            if status := _status(program.wait()):
                warn(message)
                _pass_on(status)
            raise _engine.PagelabError(message) from None
        except BaseException:
            program.kill()
            raise
        finally:
            returned = program.wait()
    return measurement, _status(returned)


def _status(returned: int) -> int:
    return returned if returned >= 0 else SIGNALLED - returned


def _pass_on(status: int) -> None:
    if status:
        warn(f"the program ended with status {status}")
        sys.exit(status)


def _table(measurement: "Measurement") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    several = len(measurement.samples) > 1
    columns = ("last", "largest", "median", "quartiles") if several else ("",)
    table.add_column("private anonymous memory")
    for title in columns:
        table.add_column(title, justify="right")
    for statistic, label in _ROWS.items():
        cells = [_cell(statistic, getattr(measurement.last.contiguity, statistic))]
        if several:
            cells.append(_cell(statistic, getattr(measurement.peak.contiguity, statistic)))
            spread = measurement.spread(statistic)
            cells.append(_cell(statistic, spread.median if spread else None))
            cells.append(_quartiles(statistic, spread) if spread else "")
        table.add_row(label, *cells)
    return table


def _quartiles(statistic: str, spread: "Spread") -> str:
    return " – ".join(_cell(statistic, value) for value in (spread.lower_quartile, spread.upper_quartile))


def _cell(statistic: str, value: float | None) -> str:
    from pagelab.host.contiguity import RATIOS

    if value is None:
        return "–"
    if statistic not in RATIOS:
        return f"{value:,.0f}"
    return f"{value:.2f}" if statistic == "pte_lines_per_group" else f"{value:.2%}"
