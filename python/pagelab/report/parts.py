"""The parts of advice: text on terminals, and the start of a page."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagelab.results.table import cut_in_the_middle

WIDTH = 100
"""Most columns of the text; names of files may be longer"""


@dataclass(frozen=True)
class Heading:
    """A few words above what follows."""

    kind: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Sentences."""

    kind: ClassVar = "paragraph"
    text: str


@dataclass(frozen=True)
class Listing:
    """A table."""

    kind: ClassVar = "listing"
    titles: Sequence[str]
    lefts: int
    """How many of its first columns are text."""
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Remedy:
    """What would help, and how to get it."""

    kind: ClassVar = "remedy"
    what: str
    gain: str
    notes: Sequence[str]
    ways: Sequence[str]


Part: TypeAlias = Heading | Paragraph | Listing | Remedy


@dataclass(frozen=True)
class Lead:
    """Advice, which comes before everything else."""

    name: str
    """Its subject."""
    parts: Sequence[Part]


def plain(parts: Sequence[Part]) -> str:
    """All parts as text, with a newline at its end."""
    return "\n\n".join(_plain(part) for part in parts) + "\n"


def _plain(part: Part) -> str:
    match part:
        case Heading(text):
            return text
        case Paragraph(text):
            return _wrapped(text)
        case Listing():
            return _drawn(part)
        case Remedy(what, gain, notes, ways):
            lines = [_wrapped(f"* {what}: {gain}"), *(_wrapped(note, "    ") for note in notes)]
            return "\n".join([*lines, *(f"    {line}" for line in ways)])


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


_GAP = 2
_LEAST_WIDTH = 12
"""Columns that a text keeps, whatever else a table contains"""


def _widths(listing: Listing) -> list[int]:
    """Widths of the columns: those of text are cut, the widest first, until the table is no wider than `WIDTH`."""
    widths = [max(map(len, column)) for column in zip(listing.titles, *listing.rows, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > WIDTH:
        widest = max(range(listing.lefts), key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= _LEAST_WIDTH:
            break
        widths[widest] -= 1
    return widths


def _drawn(listing: Listing) -> str:
    widths = _widths(listing)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for number, title in enumerate(listing.titles):
        table.add_column(title, justify="left" if number < listing.lefts else "right")
    for row in listing.rows:
        # Names of files and symbols are no markup.
        table.add_row(*(Text(cut_in_the_middle(cell, width)) for cell, width in zip(row, widths, strict=True)))
    console = Console(highlight=False, width=1000, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").splitlines())
