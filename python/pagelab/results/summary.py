"""The summary of a run: a line per system, in 80 columns whatever their number. `table.py` has the whole."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pagelab.results.table import System, as_ratio, headings, short, wrap_name

_NAMES = 18
COLUMNS = (
    ("busy", "cycles", ""),
    ("", "", ""),
    ("% in", "trans-", "lation"),
    ("% in", "page", "faults"),
    ("page", "walks", ""),
    ("cycles", "per", "walk"),
    ("refs", "per", "walk"),
    ("page", "faults", ""),
    ("cycles", "per", "fault"),
)
"""Headings: the quantity, and its unit"""


def summary(systems: Sequence[System]) -> Table:
    """What paging costs under each system; busy cycles also as multiples of the first system's.

    What hosts do for the memory of a guest's program is in the cycles of its faults. Where sources run beside the main
    ones, cycles, walks and faults are those of the main sources.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left")
    heads = headings([label for label, _ in systems])
    notes = [note for _, note in heads if note]
    if any("main.cycles" in stats for _, stats in systems):
        notes.insert(0, "Cycles, walks and page faults are those of the main sources.")
    if notes:
        table.caption = Text("\n".join(["", *notes]), no_wrap=True, overflow="ignore")
        table.caption_style = ""
    table.add_column("", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(Text("\n".join(heading)), justify="right", no_wrap=True)
    first = systems[0][1]
    for (name, _), (_, stats) in zip(heads, systems, strict=True):
        table.add_row(wrap_name(name, _NAMES), *figures(stats, first))
    return table


def figures(stats: Mapping[str, int], first: Mapping[str, int]) -> list[str]:
    """The cells of a system under `COLUMNS`."""
    cycles, others = busy(stats), busy(first)
    walks = _count(stats, "walk.count")
    faults = sum(_count(stats, f"fault.{kind}.count") or 0 for kind in ("minor", "major"))
    return [
        short(cycles),
        "" if stats is first else as_ratio(cycles / max(others, 1)),
        _share(_count(stats, "cycles.translation"), cycles),
        _share(_count(stats, "cycles.fault"), cycles),
        "–" if walks is None else short(walks),
        _each(_count(stats, "walk.cycles"), walks),
        _each(_count(stats, "walk.refs"), walks, 2),
        short(faults),
        _each(_count(stats, "cycles.fault"), faults),
    ]


def _count(stats: Mapping[str, int], name: str) -> int | None:
    """A count, that of the main sources where these are counted apart."""
    return stats.get(f"main.{name}" if "main.cycles" in stats else name)


def busy(stats: Mapping[str, int]) -> int:
    """Cycles in which a CPU worked, of the main sources where these are counted apart."""
    return (_count(stats, "cycles") or 0) - (_count(stats, "cycles.idle") or 0)


def _share(part: int | None, whole: int) -> str:
    return "–" if part is None or not whole else f"{100 * part / whole:.1f}"


def _each(whole: int | None, count: int | None, digits: int = 1) -> str:
    if not count or whole is None:
        return "–"
    mean = whole / count
    return f"{mean:.{digits}f}" if mean < 999.95 else short(mean)
