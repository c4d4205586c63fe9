"""The page's part about call stacks: a flame graph, and the costs of memory by where it was created."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pagelab.call_stacks import flame, listing
from pagelab.call_stacks.cost import total
from pagelab.call_stacks.document import has_stacks
from pagelab.call_stacks.stacks import CallStacks
from pagelab.quantities import counted, size_text
from pagelab.report.figures import percent, share
from pagelab.results.results import Results, SystemResult
from pagelab.results.table import short

_METRIC = "cycles"
_MOST_SITES = 12
_MOST_CALLERS = 4


@dataclass(frozen=True)
class SiteRow:
    """A place where memory was created, as the page shows it."""

    what: str
    callers: Sequence[str]
    """The nearest first"""
    blocks: str
    size: str
    walks: str
    faults: str
    cycles: str
    part: float
    """Its share of the cycles of paging, from 0 to 1"""


@dataclass(frozen=True)
class StackPart:
    """The page's text about the call stacks of a system."""

    graph: Markup
    note: str
    sites: Sequence[SiteRow]
    sites_note: str


def make(result: SystemResult, run: Results) -> StackPart | None:
    """The part about a system; none without call stacks that cost anything.

    Raises:
        UsageError: the call stacks are inconsistent.
    """
    if not has_stacks(result):
        return None
    stacks = CallStacks.from_result(result, run)
    if not stacks.cost.cycles:
        return None
    graph = flame.draw(stacks.callers, _METRIC, f"Flame graph of the cycles of paging under {result.label}")
    entries = listing.merge(stacks.sites, _METRIC)
    whole = total(entry.cost for entry in entries).cycles
    shown, rest = entries[:_MOST_SITES], entries[_MOST_SITES:]
    note = ""
    if rest:
        left = percent(share(total(entry.cost for entry in rest).cycles, whole))
        note = f"{counted(len(rest), 'more place takes', 'more places take')} {left} of the paging cycles."
    return StackPart(Markup(graph.svg), graph.note, [_row(entry, whole) for entry in shown], note)


def _row(entry: listing.Entry, whole: int) -> SiteRow:
    creator, *callers = entry.lines
    part = share(entry.cost.cycles, whole)
    return SiteRow(
        what=listing.created_by(entry.kind, creator),
        callers=callers[:_MOST_CALLERS],
        blocks=short(entry.count) if entry.count else "",
        size=size_text(entry.bytes) if entry.bytes else "",
        walks=short(entry.cost.walks),
        faults=short(entry.cost.faults),
        cycles=percent(part),
        part=part,
    )
