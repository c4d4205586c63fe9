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

_CLASSES = {
    "base": "instructions",
    "data_stall": "waiting for data",
    "translation": "waiting for translation",
    "fault": "page faults",
    "kernel": "other kernel work",
    "lock_wait": "waiting for another fault handler",
    "blocked": "waiting for other threads",
    "io": "waiting for devices",
    "stolen": "interrupts",
    "idle": "idle",
}
_SERVED = {
    "l1": "L1",
    "l2": "L2",
    "l3": "L3",
    "dram": "memory",
    "remote": "another core",
    "uncached": "no cache (engine.kernel_refs=off)",
}
_STAGES = ("entry", "lookup", "walk", "allocation", "zeroing", "charge", "rmap", "lru", "install", "return")
_FAULT_KINDS = {
    "zero_page.count": "reads that mapped the zero page",
    "cached.count": "of a file, in the page cache",
    "copy.count": "writes that copied a page",
    "reuse.count": "writes to a page that was no longer shared",
}
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
    """The sections of the table; rows that depend on layers and levels follow the names that were counted."""
    names = list(dict.fromkeys(name for stats in systems for name in stats))
    return [
        Section(
            "Program",
            [
                _count("accesses", "accesses"),
                _count("instructions", "instructions"),
                _count("accesses refused, no mapping allows them", "accesses.refused"),
            ],
        ),
        Section(
            "Time",
            [
                _count("cycles", "cycles", ratio=True),
                Row("cycles per access", _per("cycles", "accesses"), _decimal, ratio=True),
                *(_share(f"  {words}", f"cycles.{name}", "cycles") for name, words in _CLASSES.items()),
            ],
        ),
        Section(
            "Main sources",
            [
                _count("cycles to their end", "main.elapsed_cycles", ratio=True),
                _count("their own cycles", "main.cycles", ratio=True),
                *(_share(f"  {words}", f"main.cycles.{name}", "main.cycles") for name, words in _CLASSES.items()),
                _count("page walks", "main.walk.count", ratio=True),
                _count("minor faults", "main.fault.minor.count", ratio=True),
            ],
        ),
        Section(
            "Beside them",
            [
                _count("ends of co-runners", "co_runner.completed", ratio=True),
                _count("cycles of co-runners", "co_runner.cycles", ratio=True),
                _count("arrivals", "arrivals.count", ratio=True),
                Row(
                    "cycles from arrival to exit, mean", _per("arrivals.sojourn.cycles", "arrivals.count"), _short, True
                ),
                _count("  half of them at most", "arrivals.sojourn.p50_cycles", ratio=True),
                _count("  99 of 100 at most", "arrivals.sojourn.p99_cycles", ratio=True),
                _count("  all of them at most", "arrivals.sojourn.max_cycles", ratio=True),
            ],
        ),
        Section(
            "TLBs",
            [
                _share("L1 data misses", "dtlb.l1.misses", "dtlb.l1.look_ups"),
                _share("L2 data misses", "dtlb.l2.misses", "dtlb.l1.look_ups"),
                _count("L1 instruction misses", "itlb.l1.misses"),
                _share("nested TLB misses", "nested_tlb.misses", "nested_tlb.look_ups"),
            ],
        ),
        Section(
            "Page walks",
            [
                _count("walks", "walk.count", ratio=True),
                Row("cycles per walk", _per("walk.cycles", "walk.count"), _decimal, ratio=True),
                Row("references per walk", _per("walk.refs", "walk.count"), _decimal, ratio=True),
                *_each(names, r"walk\.layer\.(.+)\.level(\d)\.refs", _level_row),
                *(_share(f"  served by {words}", f"walk.refs.{name}", "walk.refs") for name, words in _SERVED.items()),
            ],
        ),
        Section(
            "Data caches, references of the program",
            [
                _share("L1 misses", "l1d.misses.data", "cache.refs.data"),
                _share("L2 misses", "l2.misses.data", "cache.refs.data"),
                _share("L3 misses", "l3.misses.data", "cache.refs.data"),
            ],
        ),
        Section(
            "Page faults",
            [
                _count("minor faults", "fault.minor.count", ratio=True),
                _count("major faults", "fault.major.count", ratio=True),
                _count("faults of the host's kernels", "fault.nested.count", ratio=True),
                *(_count(f"  {words}", f"fault.{name}") for name, words in _FAULT_KINDS.items()),
                _count("pages populated without a fault", "populate.pages"),
                Row("cycles per fault", _per_fault("fault.cycles"), _decimal, ratio=True),
            ],
        ),
        Section(
            "Cycles of page faults by stage",
            [
                *(_exact(stage, f"fault.stage.{stage}.cycles") for stage in _STAGES),
                _exact("all stages", "fault.cycles"),
                _share("  set by the kernel preset", "fault.preset.cycles", "fault.cycles"),
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
        if position:
            ratio = f" ×{value / first:.2f}" if row.ratio and first and value is not None else ""
            cell.append(f"{ratio:>7}", style="dim")
        yield cell


def _each(names: Sequence[str], pattern: str, row: Callable[[re.Match[str]], Row]) -> Iterator[Row]:
    return (row(match) for name in names if (match := re.fullmatch(pattern, name)))


def _level_row(match: re.Match[str]) -> Row:
    return Row(f"  {match[1]}, level {match[2]}", _per(match[0], "walk.count"), _decimal)


def _count(label: str, name: str, *, ratio: bool = False) -> Row:
    return Row(label, lambda stats: stats.get(name), _short, ratio)


def _exact(label: str, name: str) -> Row:
    return Row(label, lambda stats: stats.get(name), lambda value: f"{value:,.0f}")


def _share(label: str, part: str, whole: str) -> Row:
    return Row(label, _per(part, whole), _percent)


def _per(part: str, whole: str) -> Value:
    def value(stats: Stats) -> float | None:
        return stats[part] / stats[whole] if part in stats and stats.get(whole) else None

    return value


def _per_fault(name: str) -> Value:
    def value(stats: Stats) -> float | None:
        faults = sum(stats.get(f"fault.{kind}.count", 0) for kind in ("minor", "major", "nested"))
        return stats[name] / faults if name in stats and faults else None

    return value


def _short(value: float) -> str:
    """As it is up to 9,999, then four digits with a decimal prefix: 12.35 M."""
    for size, prefix in _PREFIXES:
        if value >= max(size, 10_000):
            return f"{value / size:.4g} {prefix}"
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.1f}" if value >= 1000 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _percent(value: float) -> str:
    return "<0.01 %" if 0 < value < 0.00005 else f"{100 * value:.2f} %"
