"""An observation while it goes on: a view on the terminal that changes with each sample and look.

Parameters: how often the view changes, and its part of the bound on cost, below. Where that leaves no room, the view
    changes less often.
Deviations: faults of mappings are those that were sampled until the last look. What faults cost is on the page at the
    end: the kernel's functions are looked up once, when the samples are complete.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pagelab._engine import UsageError
from pagelab.observe.heat import curve
from pagelab.observe.observation import Observation
from pagelab.observe.page import borderless, shortened
from pagelab.observe.regions import Amounts, Region
from pagelab.quantities import counted, size_text

if TYPE_CHECKING:
    from rich.table import Table

_AGAIN_SECONDS = 0.5
_LONGEST_SECONDS = 10.0
_PART = 0.25
"""Of the bound on cost; the rest is for samples and looks"""
_RECENT_SECONDS = 2.0
"""What "now" is an average over"""
_MOST_REGIONS = 12
_CURVE_COLUMNS = 60


@contextmanager
def live_view(console: Console | None = None) -> Iterator["View"]:
    """A view on the terminal of standard error until the end of the block; it leaves nothing there.

    Raises:
        UsageError: standard error is not a terminal.
    """
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        raise UsageError("--live needs a terminal; without it, the page comes at the end")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield View(live)


class View:
    """What is shown, and when it was last drawn."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._due, self._spent = 0.0, 0.0

    def show(self, observation: Observation) -> None:
        """Draws an observation again, if it is time and the bound allows it."""
        now = time.monotonic()
        allowed = self._spent <= _PART * observation.budget.share * observation.totals.cpu_seconds
        if now < self._due or not (allowed or now > self._due + _LONGEST_SECONDS):
            return
        before = time.process_time()
        self._live.update(view(observation), refresh=True)
        self._due = now + _AGAIN_SECONDS
        self._spent += time.process_time() - before


def view(observation: Observation) -> Group:
    """The lines and tables of the view."""
    totals = observation.looks.totals()
    parts: list[Text | Table] = [Text(line) for line in (*_head(observation), "", *_curves(observation, totals))]
    regions = sorted(_present(observation), key=lambda region: -region.last.resident)
    shown = borderless("", "at", "size", "resident", "huge", "used", "faults", left=(0, 1))
    for region in regions[:_MOST_REGIONS]:
        shown.add_row(*map(Text, _row(region)))
    parts += [Text(""), shown]
    if len(regions) > _MOST_REGIONS:
        parts.append(Text(f"… and {len(regions) - _MOST_REGIONS} more"))
    return Group(*parts)


def _head(observation: Observation) -> Iterator[str]:
    seconds, faults, cpu = observation.rates[-1] if observation.rates else (0.0, 0, 0.0)
    limit = observation.settings.seconds
    of_limit = f" of {limit:g}" if limit is not None else ""
    yield f"{observation.title}: {seconds:.1f}{of_limit} s observed, {cpu:.2f} s of CPU time; Ctrl-C ends it"
    spent = f"; observing took {observation.budget.spent / cpu:.1%} of the CPU time" if cpu else ""
    now = recent(observation.rates)
    yield f"{faults:,} page faults, {observation.totals.major:,} waited for a device; now {now:,.0f} per second{spent}"


def recent(rates: Sequence[tuple[float, int, float]]) -> float:
    """Faults per second in the last two seconds."""
    if not rates:
        return 0.0
    last, faults, _ = rates[-1]
    before, faults_before, _ = next((rate for rate in reversed(rates) if last - rate[0] >= _RECENT_SECONDS), rates[0])
    return (faults - faults_before) / (last - before) if last > before else 0.0


def _curves(observation: Observation, totals: Sequence[tuple[object, Amounts]]) -> Iterator[str]:
    """Resident and used memory, and faults, over time."""
    amounts = [amounts for _, amounts in totals][-_CURVE_COLUMNS:]
    if amounts:
        resident = [one.resident for one in amounts]
        yield f"resident {size_text(resident[-1]):>11}  {curve(resident)}"
        used = [one.used for one in amounts if one.used is not None]
        if used:
            yield f"used     {size_text(used[-1]):>11}  {curve(used)}"
    seconds = faults_by_second(observation.rates)[-_CURVE_COLUMNS:]
    if seconds:
        yield f"faults   {seconds[-1]:>9,}/s  {curve(seconds)}"


def faults_by_second(rates: Sequence[tuple[float, int, float]]) -> list[int]:
    """Faults in each whole second; between two samples, faults are taken to be even."""
    counts: list[int] = []
    at, known = (0.0, 0.0), 0.0
    for seconds, faults, _ in rates:
        while seconds >= len(counts) + 1:
            border = len(counts) + 1
            part = (border - at[0]) / (seconds - at[0]) if seconds > at[0] else 1.0
            until = at[1] + part * (faults - at[1])
            counts.append(round(until - known))
            known = until
        at = (seconds, float(faults))
    return counts


def _present(observation: Observation) -> Iterator[Region]:
    """The regions that the last look has shown."""
    number = len(observation.looks.looks) - 1
    return (region for region in observation.looks.all_regions() if number in region.looks)


def _row(region: Region) -> tuple[str, ...]:
    amounts = region.last
    return (
        shortened(region.label),
        counted(region.mappings, "mapping", "mappings") if region.small else f"{region.begin:#x}",
        size_text(amounts.size),
        size_text(amounts.resident),
        size_text(amounts.huge),
        "–" if amounts.used is None else size_text(amounts.used),
        f"{region.faults:,.0f}",
    )
