"""The table that puts systems side by side.

Rates and shares are derived here, from the engine's raw counts. A row appears if any of the systems counted it.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

Stats: TypeAlias = Mapping[str, int]
Value: TypeAlias = Callable[[Stats], float | None]

_SERVED = {"l1": "L1", "l2": "L2", "l3": "L3", "dram": "memory", "remote": "another core"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Row:
    """A line of the table: how it is computed from the counts and how it is written."""

    label: str
    value: Value
    write: Callable[[float], str]
    ratio: bool = False
    """Whether the other systems' values are also given as multiples of the first's."""


@dataclass(frozen=True)
class Section:
    """Rows under a heading."""

    title: str
    rows: Sequence[Row]


def comparison(systems: Sequence[tuple[str, Stats]]) -> Table:
    """The systems' statistics as columns; the ratios are against the first system."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for label, _ in systems:
        table.add_column(textwrap.fill(label, 18), justify="right", no_wrap=True)
    all_stats = [stats for _, stats in systems]
    for section in sections(all_stats):
        lines = [(row, values) for row, values in _evaluate(section, all_stats) if any(values)]
        if not lines:
            continue
        table.add_section()
        table.add_row(Text(section.title, style="bold"))
        for row, values in lines:
            table.add_row(f"  {row.label}", *_cells(row, values))
    return table


def sections(systems: Sequence[Stats]) -> list[Section]:
    """The sections of the table; rows that depend on the machine or the layers follow the names that were counted."""
    names = list(dict.fromkeys(name for stats in systems for name in stats))
    return [
        Section("Program", [_count("accesses", "accesses"), _count("instructions", "instructions")]),
        Section(
            "Time",
            [
                _count("cycles", "cycles", ratio=True),
                Row("cycles per access", _per("cycles", "accesses"), _decimal, ratio=True),
                *_each(names, r"cycles\.(\w+)", lambda m: _share(f"{_words(m[1])}", m[0], "cycles")),
            ],
        ),
        Section(
            "TLB",
            [
                _share("L1 data misses per access", "dtlb.l1.misses", "accesses"),
                _share("L2 misses per access", "dtlb.l2.misses", "accesses"),
                _share("instruction misses per access", "itlb.l1.misses", "accesses"),
            ],
        ),
        Section(
            "Page walks",
            [
                _count("walks", "walk.count", ratio=True),
                Row("references per walk", _per("walk.refs", "walk.count"), _decimal, ratio=True),
                Row("cycles per walk", _per("walk.cycles", "walk.count"), _decimal, ratio=True),
                *_each(names, r"walk\.refs\.([\w-]+)\.level(\d)", _level_row),
                *_each(
                    names,
                    rf"walk\.refs\.({'|'.join(_SERVED)})",
                    lambda m: _share(f"served by {_SERVED[m[1]]}", m[0], "walk.refs"),
                ),
            ],
        ),
        Section(
            "Data caches",
            [
                _share("L1 misses per access", "l1d.misses", "accesses"),
                _share("L2 misses per access", "l2.misses", "accesses"),
                _share("L3 misses per access", "l3.misses", "accesses"),
            ],
        ),
        Section(
            "Page faults",
            [
                _count("minor faults", "fault.minor.count", ratio=True),
                _count("major faults", "fault.major.count", ratio=True),
                Row("cycles per fault", _faults("fault.cycles"), _decimal, ratio=True),
                *_each(
                    names,
                    r"fault\.(?:stage\.)?(\w+)\.cycles",
                    lambda m: Row(f"  of them {_words(m[1])}", _faults(m[0]), _decimal),
                ),
                _count("accesses outside any mapping", "unmapped.accesses"),
            ],
        ),
    ]


def _evaluate(section: Section, systems: Sequence[Stats]) -> Iterator[tuple[Row, list[float | None]]]:
    for row in section.rows:
        yield row, [row.value(stats) for stats in systems]


def _cells(row: Row, values: Sequence[float | None]) -> Iterator[Text]:
    first = values[0]
    for position, value in enumerate(values):
        cell = Text("–" if value is None else row.write(value))
        if row.ratio and len(values) > 1:
            known = position > 0 and first and value is not None
            cell.append(f"{f' ×{value / first:.2f}' if known and first and value is not None else '':>7}", style="dim")
        yield cell


def _each(names: Sequence[str], pattern: str, row: Callable[[re.Match[str]], Row]) -> Iterator[Row]:
    return (row(match) for name in names if (match := re.fullmatch(pattern, name)))


def _level_row(match: re.Match[str]) -> Row:
    return Row(f"  {match[1]}, level {match[2]}", _per(match[0], "walk.count"), _decimal)


def _count(label: str, name: str, *, ratio: bool = False) -> Row:
    return Row(label, lambda stats: stats.get(name), _short, ratio)


def _share(label: str, part: str, whole: str) -> Row:
    return Row(label, _per(part, whole), _percent)


def _per(part: str, whole: str) -> Value:
    def value(stats: Stats) -> float | None:
        return stats[part] / stats[whole] if part in stats and stats.get(whole) else None

    return value


def _faults(name: str) -> Value:
    def value(stats: Stats) -> float | None:
        faults = stats.get("fault.minor.count", 0) + stats.get("fault.major.count", 0)
        return stats[name] / faults if name in stats and faults else None

    return value


def _words(name: str) -> str:
    return name.replace("_", " ")


def _short(value: float) -> str:
    """As it is up to 9,999, then four digits with a decimal prefix: 12.35 M."""
    for size, prefix in _PREFIXES:
        if value >= max(size, 10_000):
            return f"{value / size:.4g} {prefix}"
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.1f}" if value >= 1000 else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value == 0 or value >= 0.0001 else f"{100 * value:.1g} %"
