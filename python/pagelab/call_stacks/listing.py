"""Tables of the most expensive stacks, allocation sites and functions, as text."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pagelab.call_stacks.cost import METRICS, NOTHING, Cost, total
from pagelab.call_stacks.stacks import Call, Frame, Location, Stack, without_arguments
from pagelab.call_stacks.tree import build, walk
from pagelab.quantities import counted, size_text
from pagelab.results.table import short

_COLUMN, _SIZE_COLUMN = 9, 11


@dataclass(frozen=True)
class Entry:
    """Stacks with the same text."""

    lines: tuple[str, ...]
    """Functions with their places, the innermost first."""
    kind: str
    cost: Cost
    count: int
    bytes: int


def merge(stacks: Iterable[Stack], metric: str) -> list[Entry]:
    """Stacks with a cost by `metric`, merged if they have the same functions and lines, the most expensive first."""
    texts = _Texts()
    entries: dict[tuple[int, str], Entry] = {}
    for stack in stacks:
        key = texts.number(stack.innermost), stack.kind
        known = entries.get(key) or Entry(texts.lines(stack.innermost), stack.kind, NOTHING, 0, 0)
        entries[key] = Entry(
            known.lines, known.kind, known.cost + stack.cost, known.count + stack.count, known.bytes + stack.bytes
        )
    expensive = [entry for entry in entries.values() if entry.cost.get(metric)]
    return sorted(expensive, key=lambda entry: (-entry.cost.get(metric), entry.lines, entry.kind))


class _Texts:
    """The texts of stacks; each call is looked up once."""

    def __init__(self) -> None:
        self._described: dict[int, tuple[str, ...]] = {}
        """By the location's identity, the innermost function first"""
        self._numbers: dict[Call, int] = {}
        self._known: dict[tuple[int, tuple[str, ...]], int] = {}
        """By the number of the callers' text and the lines of a call"""

    def number(self, innermost: Call) -> int:
        """Stacks with the same text have the same number; 0 is no stack."""
        missing, number = [], 0
        for call in innermost.outwards():
            if call in self._numbers:
                number = self._numbers[call]
                break
            missing.append(call)
        for call in reversed(missing):
            number = self._known.setdefault((number, self._lines(call.location)), len(self._known) + 1)
            self._numbers[call] = number
        return number

    def lines(self, innermost: Call) -> tuple[str, ...]:
        """The lines of a stack, the innermost function first."""
        return tuple(line for call in innermost.outwards() for line in self._lines(call.location))

    def _lines(self, location: Location) -> tuple[str, ...]:
        lines = self._described.get(id(location))
        if lines is None:
            lines = self._described[id(location)] = tuple(reversed(describe(location)))
        return lines


def describe(location: Location) -> list[str]:
    """Functions with their places; the file and the offset if no name is known."""
    return [
        f"{PurePath(location.file).name}+{location.offset:#x}"
        if frame.function == f"[{PurePath(location.file).name}]"
        else f"{location.offset:#x}"
        if frame.function == "[unknown]"
        else f"{without_arguments(frame.function)} ({frame.place})"
        if frame.place
        else without_arguments(frame.function)
        for frame in location.frames
    ]


@dataclass(frozen=True)
class Layout:
    """How much a table shows."""

    rows: int
    depth: int
    """Callers of each stack"""
    width: int
    """Columns of a line"""


def callers(stacks: Sequence[Stack], metric: str, whole: Cost, layout: Layout) -> list[str]:
    """The most expensive stacks: the function of the access, and below it its callers. Shares are of `whole`."""
    return _table(merge(stacks, metric), metric, whole, layout, of_memory=False)


def sites(stacks: Sequence[Stack], metric: str, whole: Cost, layout: Layout) -> list[str]:
    """The memory whose accesses cost most: its creator, and below it the callers. Shares are of `whole`."""
    return _table(merge(stacks, metric), metric, whole, layout, of_memory=True)


def _table(entries: Sequence[Entry], metric: str, whole: Cost, layout: Layout, *, of_memory: bool) -> list[str]:
    titles = ["share", "cycles", "walks", "faults"]
    head, title = _row(titles), "accesses made by"
    if of_memory:
        head, title = _row(titles, "blocks", "size"), "memory created by"
    lines = [head + title]
    indent = len(head)
    for entry in entries[: layout.rows]:
        cells = [share_text(entry.cost, whole, metric), *map(short, _counts(entry.cost))]
        blocks = short(entry.count) if entry.count else ""
        size = size_text(entry.bytes) if entry.bytes else ""
        head = _row(cells, blocks, size) if of_memory else _row(cells)
        for text in _stack_lines(entry, layout.depth):
            lines += _wrap(head, text, indent, layout.width)
            head = " " * indent
    if rest := entries[layout.rows :]:
        more = counted(len(rest), "more place takes", "more places take")
        share = share_text(total(entry.cost for entry in rest), whole, metric)
        lines += ["", f"{more} {share} of {METRICS[metric]}; --rows shows more."]
    return lines


def _row(cells: Iterable[str], blocks: str | None = None, size: str = "") -> str:
    """Cells of counts, aligned at the right."""
    memory = "" if blocks is None else blocks.rjust(_COLUMN) + size.rjust(_SIZE_COLUMN)
    return "".join(cell.rjust(_COLUMN) for cell in cells) + memory + "  "


def created_by(kind: str, creator: str) -> str:
    """A function, with the kind of memory that it created, if any."""
    verb = {"allocation": "allocated by ", "mapping": "mapped by "}.get(kind, "")
    return creator if creator.startswith("[") else f"{verb}{creator}"


def _stack_lines(entry: Entry, depth: int) -> list[str]:
    first, *others = entry.lines
    shown = [created_by(entry.kind, first), *(f"  < {line}" for line in others[:depth])]
    if left := len(others) - depth:
        if left == 1:
            shown.append(f"  < {others[-1]}")
        elif left > 1:
            shown.append(f"  < {left:,} more callers; --depth shows more")
    return shown


def functions(stacks: Sequence[Stack], metric: str, whole: Cost, layout: Layout) -> list[str]:
    """The functions in whose calls paging costs most; recursive calls count once."""
    own: dict[tuple[str, str], Cost] = {}
    inclusive: dict[tuple[str, str], Cost] = {}
    for _, node, is_outermost in walk(build(stacks, _function), _function):
        name = _function(node.frame)
        own[name] = own.get(name, NOTHING) + node.own
        if is_outermost:
            inclusive[name] = inclusive.get(name, NOTHING) + node.cost
    order = sorted(
        (name for name, cost in inclusive.items() if cost.get(metric)),
        key=lambda name: (-inclusive[name].get(metric), -own.get(name, NOTHING).get(metric), name),
    )
    head = _row(["share", "its own", "cycles", "walks", "faults"])
    lines = [f"{head}function, with all that it calls"]
    indent = len(head)
    for name in order[: layout.rows]:
        cost = inclusive[name]
        shares = [share_text(cost, whole, metric), share_text(own.get(name, NOTHING), whole, metric)]
        head = _row([*shares, *map(short, _counts(cost))])
        function, file = name
        text = f"{function} in {file}" if file and function != f"[{file}]" else function
        lines += _wrap(head, text, indent, layout.width)
    if len(order) > layout.rows:
        lines += ["", f"{counted(len(order) - layout.rows, 'more function', 'more functions')}; --rows shows more."]
    return lines


def _function(frame: Frame) -> tuple[str, str]:
    """The identity of a function in a table."""
    return frame.function, frame.file.rpartition("/")[2]


def _counts(cost: Cost) -> tuple[int, int, int]:
    return cost.cycles, cost.walks, cost.faults


def share_text(cost: Cost, whole: Cost, metric: str) -> str:
    """A share in per cent, to a tenth; empty for nothing."""
    if not cost.get(metric):
        return ""
    part = cost.get(metric) / whole.get(metric)
    return "<0.1 %" if part < 0.001 else f"{100 * part:.1f} %"


def _wrap(head: str, text: str, indent: int, width: int) -> list[str]:
    """The text after `head`, in lines of `width` columns, with no character lost."""
    further = " " * (indent + len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text,
        max(width, indent + 20),
        initial_indent=head,
        subsequent_indent=further,
        drop_whitespace=True,
        break_on_hyphens=False,
    )
